"""A profile adds up, and measuring changes nothing."""

from __future__ import annotations

import pytest

from sim.profiling import PARTS, REST, Profile, Profiler, call_s


def seconds_of(profile: Profile) -> dict[str, float]:
    return {part.name: part.seconds for part in profile.parts}


def test_parts_add_up_to_the_total_and_the_rest_is_what_nobody_measured() -> None:
    profile = Profile.of(10.0, {"lookup": 2.0, "eviction": 1.5}, {"lookup": 4}, 1.0)
    assert [part.name for part in profile.parts] == list(PARTS)
    assert seconds_of(profile)[REST] == 6.5
    assert sum(seconds_of(profile).values()) == profile.total_s == 10.0
    assert profile.overhead_s == 1.0


class Clock:
    """Says what time it is; passes only where a test says so."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def passes(self, duration_ns: int) -> None:
        self.now_ns += duration_ns


def test_own_time_leaves_out_measured_calls_within_a_call() -> None:
    clock = Clock()
    profiler = Profiler(clock)
    evict = profiler.timed("eviction", lambda: clock.passes(50))

    def allocate(number: int, *, twice: bool) -> int:
        clock.passes(20)
        evict()
        evict()
        clock.passes(3)
        return number * 2 if twice else number

    assert profiler.timed("allocation", allocate)(4, twice=True) == 8
    seconds = seconds_of(profiler.profile(1.0))
    assert seconds["eviction"] == pytest.approx(100e-9)
    assert seconds["allocation"] == pytest.approx(23e-9)
    assert (profiler.calls["allocation"], profiler.calls["eviction"]) == (1, 2)


def test_a_call_that_raises_is_measured_and_raises() -> None:
    clock = Clock()
    profiler = Profiler(clock)

    def fail() -> None:
        clock.passes(7)
        raise KeyError("a")

    outer = profiler.timed("scheduling", lambda: profiler.timed("lookup", fail)())
    with pytest.raises(KeyError):
        outer()
    assert (profiler.calls["scheduling"], profiler.calls["lookup"]) == (1, 1)
    seconds = seconds_of(profiler.profile(1.0))
    assert (seconds["scheduling"], seconds["lookup"]) == (0, pytest.approx(7e-9))


def test_the_cost_of_measuring_a_call_is_below_a_hundredth_of_a_millisecond() -> None:
    assert 0 <= call_s() < 1e-5


def test_json_has_every_part() -> None:
    data = Profiler().profile(2.0).as_json()
    assert list(data["parts"]) == list(PARTS)
    assert data["parts"][REST] == {"seconds": 2.0, "calls": 0}

from itertools import islice, pairwise
from math import sqrt

import numpy as np
import pytest
import simpy
from pydantic import ValidationError

from workloads.arrivals import Arrival, closed_loop, instants_ns, open_loop, pause_ns
from workloads.streams import Streams

S = 1_000_000_000
NUM_DRAWS = 4000


def instants(arrival: Arrival, num: int = NUM_DRAWS) -> list[int]:
    return list(islice(instants_ns(arrival, Streams(11).child("t")), num))


def gaps_s(arrival: Arrival) -> np.ndarray:
    return np.diff([0, *instants(arrival)]) / S


@pytest.mark.parametrize(
    ("arrival", "mean_s", "cv"),
    [
        (Arrival(rate_per_s=4.0), 0.25, 1.0),
        (Arrival(rate_per_s=4.0, arrival_scale=0.2), 1.25, 1.0),
        (Arrival(kind="gamma", rate_per_s=2.0, burstiness=0.25), 0.5, 2.0),
        (Arrival(kind="gamma", rate_per_s=2.0, burstiness=16.0), 0.5, 0.25),
    ],
)
def test_gaps_have_the_stated_mean_and_spread(arrival, mean_s, cv):
    found = gaps_s(arrival)
    # A gamma variable of shape k has cv 1 / sqrt(k) and kurtosis 3 + 6 / k = 3 + 6 cv^2.
    standard_error = mean_s * cv / sqrt(NUM_DRAWS)
    assert abs(found.mean() - mean_s) < 5 * standard_error
    std_error = mean_s * cv * sqrt((2 + 6 * cv**2) / (4 * NUM_DRAWS))
    assert abs(found.std() - mean_s * cv) < 5 * std_error


def test_burstiness_one_is_poisson():
    gamma = Arrival(kind="gamma", rate_per_s=3.0, burstiness=1.0)
    assert instants(gamma, 50) == instants(Arrival(rate_per_s=3.0), 50)


def test_instants_are_non_decreasing_whole_numbers():
    found = instants(Arrival(kind="gamma", rate_per_s=1000.0, burstiness=0.01))
    assert all(type(at) is int for at in found)
    assert all(a <= b for a, b in pairwise(found))


def test_another_rate_stretches_the_same_pattern():
    fast, slow = instants(Arrival(rate_per_s=8.0), 200), instants(Arrival(rate_per_s=1.0), 200)
    # each instant is rounded once, so eight times the fast one is off by at most 4 + 1/2 ns
    assert max(abs(b - 8 * a) for a, b in zip(fast, slow, strict=True)) <= 5


def test_pause_has_the_stated_mean():
    rng = Streams(2).child("t")
    found = np.array([pause_ns(2.0, rng) for _ in range(NUM_DRAWS)]) / S
    assert abs(found.mean() - 2.0) < 5 * 2.0 / sqrt(NUM_DRAWS)
    assert pause_ns(0.0, rng) == 0


def test_open_loop_starts_jobs_on_time_and_in_order():
    env = simpy.Environment(0)
    started = []
    jobs = [(5, "a"), (5, "b"), (9, "c")]
    env.process(open_loop(env, jobs, lambda job: started.append((env.now, job))))
    env.run()
    assert started == [(5, "a"), (5, "b"), (9, "c")]


def test_open_loop_takes_a_job_only_when_the_one_before_has_started():
    env = simpy.Environment(0)
    taken = []

    def jobs():
        for at in (3, 7, 8):
            taken.append((env.now, at))
            yield at, at

    env.process(open_loop(env, jobs(), lambda job: None))
    env.run()
    assert taken == [(0, 3), (3, 7), (7, 8)]


def run_closed(durations: list[int], concurrency: int):
    env = simpy.Environment(0)
    log = []

    def work(job):
        log.append((env.now, "start", job))
        yield env.timeout(durations[job])
        log.append((env.now, "end", job))

    process = env.process(closed_loop(env, iter(range(len(durations))), concurrency, work))
    env.run(until=process)
    return log


def test_closed_loop_gives_the_next_job_to_the_first_free_client():
    assert run_closed([10, 3, 4, 5], 2) == [
        (0, "start", 0),
        (0, "start", 1),
        (3, "end", 1),
        (3, "start", 2),
        (7, "end", 2),
        (7, "start", 3),
        (10, "end", 0),
        (12, "end", 3),
    ]


@pytest.mark.parametrize("concurrency", [1, 3, 1000])
def test_closed_loop_never_has_more_going_than_clients_and_never_fewer_than_it_can(concurrency):
    durations = [1 + (7 * i) % 5 for i in range(20)]
    log = run_closed(durations, concurrency)
    going, most = 0, 0
    for _, what, _ in log:
        going += 1 if what == "start" else -1
        most = max(most, going)
    assert (going, most) == (0, min(concurrency, 20))
    assert sorted(job for _, what, job in log if what == "start") == list(range(20))


def test_closed_loop_without_jobs_ends_at_once():
    assert run_closed([], 4) == []


def test_an_error_of_the_job_source_ends_the_run():
    def jobs():
        yield 0
        yield 1
        raise LookupError("line 3")

    env = simpy.Environment(0)

    def work(job):
        yield env.timeout(5)

    env.process(closed_loop(env, jobs(), 2, work))
    with pytest.raises(LookupError, match="line 3"):
        env.run()


class TestParameters:
    def test_a_field_left_out_takes_the_default_of_the_kind_that_uses_it(self):
        assert Arrival(kind="gamma").model_dump() == {
            "kind": "gamma",
            "rate_per_s": 1.0,
            "burstiness": 1.0,
            "arrival_scale": 1.0,
            "concurrency": None,
            "think_time_s": None,
        }

    @pytest.mark.parametrize("kind", ["poisson", "gamma", "closed"])
    def test_a_resolved_section_reads_back_as_itself(self, kind):
        resolved = Arrival(kind=kind)
        assert Arrival(**resolved.model_dump(mode="json")) == resolved

    @pytest.mark.parametrize(
        ("field", "data"),
        [
            ("burstiness", {"burstiness": 1.0}),
            ("concurrency", {"kind": "gamma", "concurrency": 4}),
            ("rate_per_s", {"kind": "closed", "rate_per_s": 1.0}),
            ("arrival_scale", {"kind": "closed", "arrival_scale": 0.5}),
            ("rate_per_s", {"rate_per_s": 0.0}),
            ("rate_per_s", {"rate_per_s": float("inf")}),
            ("rate_per_s", {"rate_per_s": True}),
            ("arrival_scale", {"arrival_scale": 0.0}),
            ("burstiness", {"kind": "gamma", "burstiness": -1.0}),
            ("concurrency", {"kind": "closed", "concurrency": 0}),
            ("think_time_s", {"kind": "closed", "think_time_s": -1.0}),
            ("kind", {"kind": "timestamps"}),
            ("rate", {"rate": 1.0}),
        ],
    )
    def test_wrong_parameters_are_refused_by_name(self, field, data):
        with pytest.raises(ValidationError) as caught:
            Arrival(**data)
        assert [error["loc"] for error in caught.value.errors()] == [(field,)]

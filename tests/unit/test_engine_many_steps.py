"""Events of requests are made when somebody asks; a core that takes many steps changes nothing."""

from __future__ import annotations

import random

import pytest
import simpy

from sim.core.kv_cache_manager import KVCacheManager
from sim.engine import Engine
from sim.engine_core import Advance, EngineCore
from sim.prefix_ids import PrefixIds
from sim.request import RequestSpec, Span
from sim.scheduler.scheduler import Scheduler, SchedulerLimits
from tests.helpers import full, make_kv_cache_config, sliding

BLOCK = 4
STEP_NS = 10


class HastyCore(EngineCore):
    """Goes on by itself as far as a core may, and tells afterwards what ended on the way."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._watched = set()
        self._held_back = None
        self.num_wakes = 0

    def watch(self, request, first_token=True):
        self._watched.add(request)

    def advance(self, now_ns, horizon_ns):
        ended = []
        self.num_wakes += 1
        while True:
            advance = super().advance(now_ns, horizon_ns)
            ended += advance.ended
            if advance.wake_ns is None or advance.wake_ns >= horizon_ns:
                return Advance(ended, advance.wake_ns)
            if self._watched.intersection(advance.ended):
                return Advance(ended, advance.wake_ns)
            now_ns = advance.wake_ns
            completed = super().complete(now_ns)
            if self._watched.intersection((*completed.ended, *completed.first_tokens)):
                self._held_back = completed
                return Advance(ended, now_ns)
            ended += completed.ended
            if not self.is_busy and not self.has_requests:
                return Advance(ended, None)

    def complete(self, now_ns):
        if self._held_back is not None:
            completed, self._held_back = self._held_back, None
            return completed
        return super().complete(now_ns)

    @property
    def is_busy(self):
        return super().is_busy or self._held_back is not None


class Diary:
    """Remembers steps and ended requests."""

    def __init__(self):
        self.steps = []
        self.ended = []

    def step(self, start_ns, end_ns, work, scheduler, manager, num_preempted):
        self.steps.append((start_ns, end_ns, list(work.prefill), list(work.decode), num_preempted))

    def request_done(self, request, outcome, reason):
        self.ended.append((request.request_id, outcome, request.first_token_ns, request.finish_ns))


class World:
    """An engine on a small pool; every step takes ten nanoseconds."""

    def __init__(self, kind=EngineCore, *, specs=(), num_blocks=100, is_async=False, **limits):
        self.diary, self.log, self.ended = Diary(), [], []
        config = make_kv_cache_config(specs or [full(BLOCK)], num_blocks=num_blocks)
        manager = KVCacheManager(config, 1000, BLOCK, BLOCK, max_num_batched_tokens=32)
        limits = SchedulerLimits(32, 8, 1000, **limits)
        scheduler = Scheduler(manager, limits, async_scheduling=is_async)
        self.core = kind(scheduler, lambda work: STEP_NS, self.diary)
        on_end = lambda request: self.ended.append(request.request_id)  # noqa: E731
        self.engine = Engine(self.core, PrefixIds(BLOCK).of, on_end)
        self.env = self.engine.env

    def submit(self, name, prompt=8, output=1):
        spec = RequestSpec(name, (Span(name, 0, prompt),), Span(f"{name}.out", 0, output))
        return self.engine.submit(spec)

    def run(self):
        self.engine.run()
        self.core.give_up_all()
        return self


def test_no_event_is_made_for_a_request_that_nobody_asks_about():
    world = World()
    submission = world.submit("a", output=3)
    world.run()
    assert submission.done_event is submission.first_token_event is None
    assert world.ended == ["a"]


def test_moment_in_the_past_is_an_event_that_has_been_processed():
    world, seen = World(), []

    def late():
        submission = world.submit("a", output=3)
        yield world.env.timeout(1000)
        first = yield submission.first_token
        outcome = yield submission.done
        seen.append((world.env.now, first, outcome.finish_ns, outcome.status))
        seen.append((submission.first_token.processed, submission.done.processed))

    world.env.process(late())
    world.run()
    assert seen == [(1000, 10, 30, "finished"), (True, True)]


def test_moment_of_this_instant_is_an_event_that_is_about_to_happen():
    world, seen = World(), []

    def punctual():
        submission = world.submit("a", output=1)
        yield world.env.timeout(STEP_NS)
        assert submission.done.triggered
        assert not submission.done.processed
        seen.append((yield submission.done).finish_ns)

    world.env.process(punctual())
    world.run()
    assert seen == [10]


def test_both_events_of_a_request_wait_together():
    world, seen = World(), []

    def client():
        submission = world.submit("a", output=2)
        both = yield submission.first_token & submission.done
        seen.append((world.env.now, len(both.todict())))
        late = yield submission.first_token & submission.done
        seen.append((world.env.now, len(late.todict())))

    world.env.process(client())
    world.run()
    assert seen == [(20, 2), (20, 2)]


def test_request_that_ends_without_a_first_token_never_has_that_event():
    world = World()
    submission = world.submit("a", output=3)
    submission.abort()
    world.run()
    assert submission.done.value.status == "aborted"
    assert not submission.first_token.triggered


def test_two_engines_share_a_clock():
    clock = simpy.Environment(initial_time=0)
    world, other = World(), World()
    engines = [Engine(w.core, PrefixIds(BLOCK).of, env=clock) for w in (world, other)]
    spec = RequestSpec("a", (Span("a", 0, 8),), Span("o", 0, 2))
    done = [engine.submit(spec).done for engine in engines]
    clock.run()
    assert [event.value.finish_ns for event in done] == [20, 20]
    assert all(engine.env is clock for engine in engines)


def test_core_is_told_how_far_it_may_go():
    world, horizons = World(), []
    advance = world.core.advance

    def spy(now_ns, horizon_ns):
        horizons.append((now_ns, horizon_ns))
        return advance(now_ns, horizon_ns)

    world.core.advance = spy

    def arrivals():
        world.submit("a", output=2)
        yield world.env.timeout(13)
        world.submit("b", output=1)

    world.env.process(arrivals())
    world.run()
    assert horizons[:2] == [(0, 13), (10, 13)]
    assert horizons[-1][1] == float("inf")


def test_hasty_core_is_entered_for_what_others_see_only():
    world = World(HastyCore)
    world.submit("a", output=50)
    submission = world.submit("b", output=20)
    seen = submission.done
    world.run()
    # It begins, goes on when b has its first token, and again when b is done.
    assert world.core.num_wakes == 3
    assert seen.value.finish_ns == 200
    assert world.ended == ["b", "a"]


def clients(world, seed):
    """Requests of every sort: watched or not, late questions, aborts, some that never fit."""
    rng = random.Random(seed)

    def client(number):
        yield world.env.timeout(rng.randrange(200))
        for turn in range(rng.randrange(1, 5)):
            name = f"{number}.{turn}"
            submission = world.submit(name, rng.randrange(1, 70), rng.randrange(1, 25))
            way = rng.randrange(6)
            if way == 0:
                world.log.append((name, (yield submission.done).status, world.env.now))
            elif way == 1:
                first = yield submission.first_token | world.env.timeout(rng.randrange(90))
                world.log.append((name, len(first.todict()), world.env.now))
                world.log.append((name, (yield submission.done).finish_ns, world.env.now))
            elif way == 2:
                yield world.env.timeout(rng.randrange(150))
                world.log.append((name, submission.done.triggered, world.env.now))
            elif way == 3:
                yield world.env.timeout(rng.randrange(60))
                submission.abort()
                world.log.append((name, (yield submission.done).status, world.env.now))
            yield world.env.timeout(rng.randrange(3) * rng.randrange(20))

    for number in range(rng.randrange(2, 8)):
        world.env.process(client(number))
    return world


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_many_steps_at_once_give_the_same_history(seed, is_async):
    specs = [[full(BLOCK)], [sliding(BLOCK, 8)], [full(BLOCK), sliding(BLOCK, 8)]][seed % 3]
    settings = {
        "specs": specs,
        "num_blocks": random.Random(seed).randrange(12, 60),
        "is_async": is_async,
        "scheduler_reserve_full_isl": seed % 2 == 0,
    }
    plain, hasty = (
        clients(World(kind, **settings), seed).run() for kind in (EngineCore, HastyCore)
    )
    assert hasty.log == plain.log
    assert hasty.diary.steps == plain.diary.steps
    assert hasty.diary.ended == plain.diary.ended
    assert hasty.ended == plain.ended
    assert hasty.core.num_steps == plain.core.num_steps

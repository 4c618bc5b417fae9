"""Two batches in flight: what is scheduled when, and what arrivals and aborts see."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.core.kv_cache_manager import KVCacheManager
from sim.engine import Engine
from sim.engine_core import EngineCore
from sim.prefix_ids import PrefixIds
from sim.request import RequestSpec, Span
from sim.scheduler.scheduler import Scheduler, SchedulerLimits
from tests.helpers import full, make_kv_cache_config, sliding
from tests.unit.test_engine import Diary

BLOCK = 4
STEP_NS = 10


class World:
    """An asynchronous engine on a small pool; every step takes ten nanoseconds."""

    def __init__(self, *, num_blocks=100, specs=(), budget=64, reject=True, gate=True,
        length=1000, threshold=0, **settings,
    ):  # fmt: skip
        self.diary, self.times = Diary(), []
        config = make_kv_cache_config(specs or [full(BLOCK)], num_blocks=num_blocks)
        self.manager = KVCacheManager(config, length, BLOCK, BLOCK, max_num_batched_tokens=budget)
        limits = SchedulerLimits(budget, 8, length, threshold, scheduler_reserve_full_isl=gate)
        self.scheduler = Scheduler(self.manager, limits, **{"async_scheduling": True, **settings})
        self.core = EngineCore(
            self.scheduler,
            lambda work: STEP_NS,
            self.diary,
            reject_unschedulable=reject,
            check_every=1,
            on_step=self.times.append,
        )
        self.engine = Engine(self.core, PrefixIds(BLOCK).of)
        self.env = self.engine.env

    def submit(self, name, *, prompt=8, output=1, **fields):
        spec = RequestSpec(name, (Span(name, 0, prompt),), Span(f"{name}.out", 0, output), **fields)
        return self.engine.submit(spec)

    def later(self, at, action):
        def wait():
            yield self.env.timeout(at)
            action()

        self.env.process(wait())

    def run(self):
        self.engine.run()
        check_integrity(self.manager)
        return self.diary


def test_a_lone_request_takes_as_long_as_ever():
    world = World()
    outcome = world.submit("a", output=3).done
    assert world.run().steps == [(0, [(0, 8)], []), (10, [], [8]), (20, [], [9])]
    assert (outcome.value.first_token_ns, outcome.value.finish_ns) == (10, 30)


def test_the_first_two_batches_are_scheduled_at_one_instant():
    world = World()
    world.submit("a", output=3)
    world.run()
    # Two schedules at 0; at 10 outputs and a schedule; at 20 outputs and one that is empty, since
    # the last token is under way; at 30 the last outputs.
    assert world.times == [0, 0, 10, 10, 20, 20, 30]


def test_eos_costs_a_step_that_nobody_needs():
    world = World()
    outcome = world.submit("a", output=3, max_tokens=10).done
    steps = world.run().steps
    # The third token comes at 30; the step scheduled at 20 runs from 30 to 40 all the same.
    assert outcome.value.finish_ns == 30
    assert steps[3:] == [(30, [], [10])]


def test_an_arrival_in_that_step_waits_for_its_end():
    world = World()
    world.submit("a", output=3, max_tokens=10)
    late = []
    world.later(32, lambda: late.append(world.submit("late")))
    world.run()
    assert late[0].done.value.first_token_ns == 50


def test_an_arrival_joins_the_batch_after_the_one_that_is_waiting():
    """b comes while the batch of 10 runs; that of 20 is scheduled already: b is in that of 30."""
    world = World()
    world.submit("a", output=9)
    late = []
    world.later(13, lambda: late.append(world.submit("b")))
    steps = world.run().steps
    assert steps[3] == (30, [(0, 8)], [10])
    assert late[0].done.value.first_token_ns == 40


def test_a_client_that_answers_at_once_is_scheduled_at_that_instant():
    world = World()

    def client():
        yield world.submit("a", output=1).done
        yield world.submit("b", output=1).done

    world.env.process(client())
    assert [start for start, _, _ in world.run().steps] == [0, 10]


def test_an_abort_takes_effect_when_the_batch_that_runs_ends():
    world = World()
    submission = world.submit("a", output=50)
    world.later(13, submission.abort)
    steps = world.run().steps
    outcome = submission.done.value
    # Aborted at 20, after the outputs of that instant; the batch that begins then runs to its end.
    assert (outcome.status, outcome.finish_ns, outcome.num_output_tokens) == ("aborted", 20, 2)
    assert steps[-1] == (20, [], [9])
    assert world.manager.block_pool.get_num_free_blocks() == 99


def test_an_abort_between_end_and_schedule_takes_effect_at_once():
    """At 10, when its first token is told, the client hangs up: before the next schedule."""
    world = World()
    submission = world.submit("a", output=50)

    def impatient():
        yield submission.first_token
        submission.abort()

    world.env.process(impatient())
    steps = world.run().steps
    assert submission.done.value.finish_ns == 10
    assert len(steps) == 2


def test_rows_tell_who_runs_while_the_batch_runs():
    world = World()
    running = []
    world.core.recorder.step = lambda start, end, work, scheduler, manager, preempted: (
        running.append((start, [r.request_id for r in scheduler.running]))
    )
    world.submit("a", output=2, max_tokens=9)
    world.submit("b", output=4, max_tokens=9)
    world.run()
    # a ends at 20: the batch of 20 still computes a token of it, but it does not run any more.
    assert running == [
        (0, ["a", "b"]),
        (10, ["a", "b"]),
        (20, ["b"]),
        (30, ["b"]),
        (40, []),
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_preempted_requests_come_back_and_everything_finishes(is_async):
    world = World(num_blocks=13, budget=16, gate=False, async_scheduling=is_async)
    done = [world.submit(n, prompt=16, output=20, max_tokens=30).done for n in "abc"]
    world.run()
    assert world.scheduler.num_preemptions > 0
    assert [event.value.num_output_tokens for event in done] == [20, 20, 20]
    assert world.manager.block_pool.get_num_free_blocks() == 12


@pytest.mark.parametrize("num_blocks", range(3, 12))
def test_a_request_that_may_come_in_finishes_also_if_its_end_is_not_foreseen(num_blocks):
    """The step too many may find no block: then the request is preempted, and ends all the same."""
    for prompt, output in [(3, 2), (4, 1), (5, 1), (9, 4), (13, 10), (20, 1), (6, 30), (17, 8)]:
        answers = []
        for reject in (True, False):
            world = World(num_blocks=num_blocks, budget=8, reject=reject)
            submission = world.submit("r", prompt=prompt, output=output, max_tokens=output + 5)
            world.run()
            answers.append(submission.done.triggered and submission.done.value.status)
        assert answers in (["finished", "finished"], ["rejected", False]), (prompt, output)


@pytest.mark.parametrize("reject", [True, False])
def test_a_chunk_that_outgrows_the_pool_ends_the_run_and_not_the_time(reject):
    """As in the synchronous test: the second chunk of 32 never fits beside the window."""
    world = World(specs=[sliding(BLOCK, 8)], num_blocks=10, budget=32, gate=False, reject=reject)
    big = world.submit("big", prompt=70, output=2)
    small = world.submit("small", prompt=8, output=2)
    world.run()
    if reject:
        assert big.done.value.reason == "70 tokens do not fit the whole pool"
        assert small.done.value.status == "finished"
    else:
        assert world.core.give_up_all()[0].request_id == "big"


@pytest.mark.parametrize("is_async", [False, True])
def test_hopeless_requests_that_take_turns_end_the_run(is_async):
    # Nine blocks of four hold 36 tokens. One adapter at a time: when a fails, b is next, and so on.
    world = World(
        num_blocks=10, reject=False, gate=False, threshold=8, max_loras=1, async_scheduling=is_async
    )
    for name in "ab":
        world.submit(name, prompt=50, lora_name=name)
    world.run()
    left = world.core.give_up_all()
    assert [r.reason for r in left] == [
        "preempted with 50 tokens: it does not fit the whole pool of 9 blocks"
    ] * 2


def test_a_running_request_that_no_step_takes_is_not_said_to_lack_blocks():
    # As vLLM 0.25.1: a reset with drafts in flight discards an output per draft, and the request
    # waits for outputs that were thrown away.
    world = World(length=24, num_spec_tokens=3, num_sampled=lambda request, num_drafts: 1)
    world.submit("a", prompt=8, output=9)
    world.later(15, lambda: world.scheduler.reset_prefix_cache(reset_running_requests=True))
    world.run()
    (left,) = world.core.give_up_all()
    assert left.reason == "running with 9 tokens: no step can take any of them"


def test_drafts_are_proposed_after_a_synchronous_step():
    """All three drafts are accepted: 1 + 4 + 4 + 1 tokens in four steps."""
    world = World(
        async_scheduling=False, num_spec_tokens=3, num_lookahead_tokens=3,
        num_sampled=lambda request, num_drafts: num_drafts + 1,
    )  # fmt: skip
    outcome = world.submit("a", output=10).done
    world.run()
    assert (outcome.value.finish_ns, outcome.value.num_output_tokens) == (40, 10)

"""The engine in simulated time: order at one instant, aborts, refusals, stuck runs."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from sim.core.kv_cache_manager import KVCacheManager
from sim.engine import Engine
from sim.engine_core import EngineCore
from sim.errors import ConfigError
from sim.layout.kv_cache_spec import MambaSpec
from sim.prefix_ids import PrefixIds
from sim.request import RequestSpec, Span
from sim.scheduler.scheduler import Scheduler, SchedulerLimits
from tests.helpers import full, make_kv_cache_config, mamba, sliding

BLOCK = 4
STEP_NS = 10


class Diary:
    """Remembers steps and ended requests."""

    def __init__(self):
        self.steps = []
        self.ended = []
        self.preemptions = []

    def step(self, start_ns, end_ns, work, scheduler, manager, num_preempted):
        self.steps.append((start_ns, list(work.prefill), list(work.decode)))
        self.preemptions.append(num_preempted)

    def request_done(self, request, outcome, reason):
        self.ended.append((request.request_id, outcome, request.finish_ns))


class World:
    """An engine on a small pool; every step takes ten nanoseconds."""

    def __init__(self, *, num_blocks=100, specs=(), budget=64, reject=True, **limits):
        self.diary = Diary()
        config = make_kv_cache_config(specs or [full(BLOCK)], num_blocks=num_blocks)
        self.manager = KVCacheManager(config, 1000, BLOCK, BLOCK, max_num_batched_tokens=budget)
        align = BLOCK if any(isinstance(s, MambaSpec) for s in specs) else None
        scheduler = Scheduler(self.manager, SchedulerLimits(budget, 8, 1000, **limits), align)
        self.core = EngineCore(
            scheduler, lambda work: STEP_NS, self.diary, reject_unschedulable=reject, check_every=1
        )
        self.engine = Engine(self.core, PrefixIds(BLOCK).of)
        self.env = self.engine.env

    def submit(self, name, *, prompt=8, output=1, source=None):
        spec = RequestSpec(name, (Span(source or name, 0, prompt),), Span(f"{name}.out", 0, output))
        return self.engine.submit(spec)

    def run(self):
        self.engine.run()
        check_integrity(self.manager)
        return self.diary


def test_request_gets_its_first_token_at_the_end_of_its_prefill():
    world = World()
    submission = world.submit("a", prompt=8, output=3)
    world.run()
    outcome = submission.done.value
    # One prefill step and two decode steps of 10 ns; the first token comes with the prefill.
    assert (outcome.first_token_ns, outcome.finish_ns, outcome.num_output_tokens) == (10, 30, 3)
    assert submission.first_token.value == 10
    assert world.diary.steps == [(0, [(0, 8)], []), (10, [], [8]), (20, [], [9])]


def test_step_end_comes_before_arrivals_and_scheduling_comes_last_at_one_instant():
    world = World()
    order = []

    def client(name, at):
        yield world.env.timeout(at)
        order.append(f"{name} arrives")
        submission = world.submit(name, output=1)
        yield submission.done
        order.append(f"{name} done at {world.env.now}")

    # b arrives at the very instant at which a's only step ends, although its timer is older.
    world.env.process(client("b", STEP_NS))
    world.env.process(client("a", 0))
    world.env.process(client("c", STEP_NS))
    world.run()
    assert order == [
        "a arrives",
        "b arrives",
        "c arrives",
        "a done at 10",
        "b done at 20",
        "c done at 20",
    ]
    # The step that begins at 10 holds both: scheduling came after everything at that instant.
    assert world.diary.steps[1] == (10, [(0, 8), (0, 8)], [])
    assert world.diary.ended[0] == ("a", "finished", 10)


def test_client_without_think_time_joins_the_step_that_begins_when_its_last_one_ended():
    world = World()

    def client():
        for turn in range(3):
            yield world.submit(f"t{turn}", output=1).done

    world.env.process(client())
    world.run()
    assert [start for start, _, _ in world.diary.steps] == [0, 10, 20]


def test_arrivals_at_one_instant_are_admitted_in_the_order_of_submission():
    world = World(budget=8)
    for name in "abc":
        world.submit(name, prompt=8, output=1)
    world.run()
    assert [name for name, _, _ in world.diary.ended] == ["a", "b", "c"]


def test_idle_engine_takes_no_step_and_wakes_on_arrival():
    world = World()

    def late():
        yield world.env.timeout(1000)
        world.submit("late", output=1)

    world.env.process(late())
    world.run()
    assert world.diary.steps == [(1000, [(0, 8)], [])]


def test_abort_of_a_waiting_request_takes_effect_at_once():
    world = World(budget=8)
    world.submit("a", prompt=8, output=1)
    waiting = world.submit("b", prompt=8, output=1)
    waiting.abort()
    world.run()
    assert waiting.done.value.status == "aborted"
    assert ("b", "aborted", 0) in world.diary.ended


def test_abort_during_a_step_takes_effect_when_the_step_ends():
    world = World()
    submission = world.submit("a", prompt=8, output=50)

    def impatient():
        yield world.env.timeout(STEP_NS + 3)
        submission.abort()

    world.env.process(impatient())
    world.run()
    assert submission.done.value.status == "aborted"
    assert submission.done.value.finish_ns == 2 * STEP_NS
    assert world.manager.block_pool.get_num_free_blocks() == 99


def test_abort_after_the_end_changes_nothing():
    world = World()
    submission = world.submit("a", output=1)
    world.run()
    submission.abort()
    world.run()
    assert submission.done.value.status == "finished"
    assert world.diary.ended == [("a", "finished", 10)]


def test_abort_in_the_step_that_finishes_the_request_comes_too_late():
    world = World()
    submission = world.submit("a", output=1)

    def impatient():
        yield world.env.timeout(STEP_NS - 1)
        submission.abort()

    world.env.process(impatient())
    world.run()
    assert submission.done.value.status == "finished"


@pytest.mark.parametrize(
    ("prompt", "output", "words"),
    [
        (996, 5, "prompt and output of 1,001 tokens, max_model_len 1,000"),
        (1000, 1, "prompt of 1,000 tokens, max_model_len 1,000"),
        # 399 computed tokens (the last is only sampled) need 100 blocks of 4; 99 are usable.
        (390, 10, "400 tokens need 100 blocks, the pool has 99"),
    ],
)
def test_request_that_can_never_fit_is_rejected_at_arrival(prompt, output, words):
    world = World()
    submission = world.submit("big", prompt=prompt, output=output)
    assert submission.done.value.status == "rejected"
    assert submission.done.value.reason == words
    assert world.run().steps == []


def test_request_that_just_fits_is_served():
    # 396 computed tokens fill the 99 usable blocks; the 397th token is sampled, not computed.
    world = World()
    submission = world.submit("big", prompt=390, output=7)
    world.run()
    assert submission.done.value.status == "finished"


def test_unschedulable_request_waits_for_ever_and_is_named_at_the_end():
    world = World(reject=False)
    world.submit("big", prompt=500, output=5)
    behind = world.submit("behind", prompt=8, output=1)
    world.run()
    left = world.core.give_up_all()
    # Head-of-line blocking: the small request behind it is stuck too.
    assert [request.request_id for request in left] == ["big", "behind"]
    reason = "waiting with 500 tokens: it needs 125 blocks at once, 99 of 99 are free"
    assert [request.reason for request in left] == [reason, "waiting with 8 tokens behind big"]
    assert not behind.done.triggered


@pytest.mark.parametrize(
    ("prompt", "output", "words"),
    [
        # 36 computed tokens fill the 9 usable blocks.
        (30, 8, "38 tokens need 10 blocks, the pool has 9"),
        (37, 1, "38 tokens need 10 blocks, the pool has 9"),
    ],
)
def test_outgrowing_the_pool_is_noticed_at_arrival_without_the_gate_too(prompt, output, words):
    world = World(num_blocks=10, scheduler_reserve_full_isl=False)
    big = world.submit("big", prompt=prompt, output=output)
    assert big.done.value.reason == words
    fits = world.submit("fits", prompt=prompt - 1, output=output)
    world.run()
    assert fits.done.value.status == "finished"


def test_request_whose_chunk_outgrows_the_whole_pool_is_given_up_and_others_go_on():
    # A window of 8 needs 3 blocks at most while it decodes. The first chunk of 32 takes 8 of the
    # 9 usable blocks; the second would keep 2 of them and take 8 more.
    world = World(
        specs=[sliding(BLOCK, 8)], num_blocks=10, budget=32, scheduler_reserve_full_isl=False
    )
    big = world.submit("big", prompt=70, output=2)
    small = world.submit("small", prompt=8, output=2)
    world.run()
    assert big.done.value.status == "rejected"
    assert big.done.value.reason == "70 tokens do not fit the whole pool"
    assert small.done.value.status == "finished"


def test_hopeless_request_that_may_wait_does_not_keep_others_from_finishing():
    world = World(
        specs=[sliding(BLOCK, 8)],
        num_blocks=10,
        budget=32,
        reject=False,
        scheduler_reserve_full_isl=False,
        long_prefill_token_threshold=31,
    )
    world.submit("big", prompt=70, output=2)
    small = world.submit("small", prompt=1, output=1)
    world.run()
    # One token of budget is left beside the chunk of 31, so the small request gets its turn.
    assert small.done.value.status == "finished"
    assert [r.request_id for r in world.core.give_up_all()] == ["big"]


@pytest.mark.parametrize("num_blocks", range(3, 14))
@pytest.mark.parametrize("specs", [[full(4)], [full(4), sliding(4, 8)], [full(4), mamba(4)]])
def test_arrival_check_tells_exactly_what_a_lone_request_can_do(num_blocks, specs):
    """Whatever is let in finishes; whatever is refused cannot be served by waiting either."""
    for prompt, output in [(3, 2), (4, 1), (5, 1), (9, 4), (13, 10), (20, 1), (6, 30), (17, 8)]:
        answers = []
        for reject in (True, False):
            world = World(specs=specs, num_blocks=num_blocks, budget=8, reject=reject)
            submission = world.submit("r", prompt=prompt, output=output)
            world.run()
            answers.append(submission.done.triggered and submission.done.value.status)
        assert answers in (["finished", "finished"], ["rejected", False]), (prompt, output)


def test_stale_abort_handle_leaves_the_next_request_of_that_id_alone():
    world = World()
    first = world.submit("a", output=1)
    world.run()
    second = world.submit("a", output=5)
    first.abort()
    world.run()
    assert second.done.value.status == "finished"


def test_preemptions_of_a_step_that_schedules_nothing_are_told_with_the_next_step():
    world = World(
        specs=[sliding(BLOCK, 8)], num_blocks=10, budget=32, scheduler_reserve_full_isl=False
    )
    world.submit("big", prompt=70, output=2)
    world.submit("small", prompt=8, output=2)
    world.run()
    assert sum(world.diary.preemptions) == world.core.scheduler.num_preemptions == 1


def test_time_beyond_the_tables_is_refused():
    world = World()
    world.core.step_time = lambda work: 1 << 62
    world.submit("a", output=2)
    with pytest.raises(ConfigError, match="simulated time within 146 years"):
        world.run()


def test_request_that_outgrows_the_whole_pool_ends_the_run_if_it_may_wait():
    world = World(num_blocks=10, reject=False)
    world.submit("big", prompt=30, output=20)
    world.run()
    (left,) = world.core.give_up_all()
    assert left.outcome == "stuck"
    assert left.reason == "preempted with 37 tokens: it does not fit the whole pool of 9 blocks"


def test_request_id_in_use_is_refused():
    world = World()
    world.submit("a")
    with pytest.raises(ConfigError, match="request_id: a: an id that is not in use"):
        world.submit("a")


def test_preempted_requests_come_back_and_everything_finishes():
    # 12 usable blocks of 4; three requests of 16 + 20 tokens need 9 blocks each at their end.
    world = World(num_blocks=13, budget=16, scheduler_reserve_full_isl=False)
    done = [world.submit(n, prompt=16, output=20).done for n in "abc"]
    world.run()
    assert world.core.scheduler.num_preemptions > 0
    assert [event.value.num_output_tokens for event in done] == [20, 20, 20]
    assert world.manager.block_pool.get_num_free_blocks() == 12


def test_outputs_of_a_finished_request_are_hit_by_its_continuation():
    world = World(specs=[full(BLOCK), sliding(BLOCK, 8)])
    prompt = (Span("p", 0, 10),)
    first = RequestSpec("t0", prompt, Span("t0.out", 0, 7))
    second = RequestSpec("t1", (*prompt, first.output, Span("u", 0, 9)), Span("t1.out", 0, 2))
    world.engine.submit(first)
    world.run()
    submission = world.engine.submit(second)
    world.run()
    # 16 of the 17 tokens were computed (the last is only sampled): four full blocks.
    assert submission.done.value.num_cached_tokens == 16

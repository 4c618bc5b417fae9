"""The real manager and the naive one get the same calls and must agree on everything.

The laws of spec/manager.md 8 are recounted after every call as well.
"""

from __future__ import annotations

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sim.core.integrity import check_integrity
from sim.request import RequestStatus
from tests.conftest import load_implementation
from tests.properties.invariants import (
    check_hit,
    check_pool,
    check_queue_after_free,
    check_tables_after,
)
from tests.properties.worlds import (
    Choices,
    ManagerPair,
    RequestMaker,
    choose_prompt,
    machine_settings,
    plain,
    random_world,
)

MAX_TOKENS = 12
MAX_REQUESTS = 7


class ManagerMachine(RuleBasedStateMachine):
    """Requests come, get slots chunk by chunk, are preempted or freed; caches are reset."""

    @initialize(seed=st.integers(0, 10**9))
    def build(self, seed):
        self.world = random_world(seed)
        note(repr(self.world))
        self.pair = ManagerPair(
            self.world, load_implementation("reference"), load_implementation("sim")
        )
        self.maker = RequestMaker(self.world.hash_block_size)
        self.waiting: list = []
        self.running: list = []

    @rule(script=st.binary(min_size=40, max_size=160))
    def calls(self, script):
        """Each call takes a few bytes of the script; after each, both sides are compared."""
        choices = Choices(script)
        while choices:
            name = choices.of(CALLS)
            if name in ("admit", "retry") and not self.waiting:
                name = "a_request_comes"
            if name in NEED_RUNNING and not self.running:
                name = "a_step_starts"
            getattr(self, name)(choices)
            self.they_agree()

    def they_agree(self):
        self.pair.compare(len(self.maker.prefix_ids))
        self.pair.compare_events()
        check_pool(self.pair.real, self.world)
        check_integrity(self.pair.real)

    # -- calls ----------------------------------------------------------------------------
    def a_request_comes(self, choices):
        if len(self.waiting) + len(self.running) >= MAX_REQUESTS:
            return
        longest = min(48, self.world.max_model_len - 1)
        prompt = choose_prompt(choices, longest, self.maker.num_made)
        note(f"request r{self.maker.num_made}: {prompt}")
        self.waiting.append(self.maker.make(prompt, MAX_TOKENS, choices.below(12) == 1))

    def admit(self, choices):
        requests = choices.of(self.waiting)
        _, hit = self.look_up(requests)
        num_new = max(1, (requests[0].num_tokens - hit) // choices.of([1, 1, 2, 3]))
        lookahead = choices.of([0, 0, 0, 1, 3])
        gate, others = choices.of([True, False]), choices.of([True, False])
        new = self.pair.both(
            lambda manager, k: manager.allocate_slots(
                requests[k],
                num_new,
                num_new_computed_tokens=hit,
                new_computed_blocks=self.rows[k],
                num_lookahead_tokens=lookahead,
                full_sequence_must_fit=gate,
                has_scheduled_reqs=others,
            )
        )
        note(f"admit {requests[0].request_id}: {hit} + {num_new} + {lookahead}: {new}")
        if new is None:
            return
        self.waiting.remove(requests)
        self.running.append(requests)
        self.after_allocation(requests, hit, num_new, lookahead)

    def go_on(self, choices):
        requests = choices.of(self.running)
        naive = requests[0]
        if naive.num_computed_tokens == naive.num_tokens:
            last = min(naive.num_prompt_tokens + MAX_TOKENS, self.world.max_model_len)
            if naive.num_tokens >= last:
                self.release(requests)
                return
            for request in requests:
                request.num_tokens += 1
        computed = naive.num_computed_tokens
        num_new = max(1, (naive.num_tokens - computed) // choices.of([1, 1, 2]))
        lookahead = choices.of([0, 0, 0, 2])
        # Drafts are proposed behind the known tokens; all of them are rejected.
        drafts = choices.of([0, 0, 1, 3]) if self.world.speculative else 0
        new = self.pair.both(
            lambda manager, k: manager.allocate_slots(
                requests[k], num_new + drafts, num_lookahead_tokens=lookahead
            )
        )
        note(f"go on {naive.request_id}: {computed} + {num_new} + {drafts} + {lookahead}: {new}")
        if new is not None:
            self.after_allocation(requests, computed, num_new, lookahead + drafts)

    def after_allocation(self, requests, computed, num_new, lookahead):
        for request in requests:
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = computed + num_new
        slots = min(computed + num_new + lookahead, self.world.max_model_len)
        check_tables_after(self.pair.real, self.world, requests[1], computed, slots)
        if not self.world.speculative and self.world.rows_equal_hit:
            predicted, taken = self.pair.naive.last_prediction
            assert predicted == taken  # law 24

    def free(self, choices):
        self.release(choices.of(self.running))

    def preempt(self, choices):
        requests = choices.of(self.running)
        self.release(requests)
        for request in requests:
            request.status = RequestStatus.PREEMPTED
            request.num_computed_tokens = 0
            request.num_preemptions += 1
        self.waiting.append(requests)

    def release(self, requests):
        pool = self.pair.real.block_pool
        before = list(pool.free_block_queue.get_all_free_blocks())
        held = [b for row in self.pair.real.get_block_ids(requests[1].request_id) for b in row if b]
        self.pair.both(lambda manager, k: manager.free(requests[k]))
        note(f"free {requests[0].request_id}")
        after = list(pool.free_block_queue.get_all_free_blocks())
        if len(self.world.specs) == 1:
            check_queue_after_free(before, after, held, pool.prefix_id)
        self.running.remove(requests)

    def a_step_starts(self, choices):
        self.pair.both(lambda manager, _: manager.new_step_starts())

    def reset(self, choices):
        if choices.below(5) == 1:
            while self.running:
                self.release(self.running[-1])
        done = self.pair.both(lambda manager, _: manager.reset_prefix_cache())
        num_free = self.pair.real.block_pool.get_num_free_blocks()
        assert done == (num_free == self.world.num_blocks - 1)

    def evict(self, choices):
        usable = self.world.num_blocks - 1
        ids = sorted({1 + choices.below(usable) for _ in range(choices.below(4))})
        self.pair.both(lambda manager, _: manager.evict_blocks(ids))
        note(f"evict {ids}")

    def look_up_only(self, choices):
        queue = self.pair.real.block_pool.free_block_queue
        before = list(queue.get_all_free_blocks())
        requests = choices.of(self.waiting + self.running)
        first = self.look_up(requests)
        assert self.look_up(requests) == first  # law 23
        assert list(queue.get_all_free_blocks()) == before  # law 13

    def look_up(self, requests):
        answers = [
            manager.get_computed_blocks(requests[k])
            for k, manager in enumerate((self.pair.naive, self.pair.real))
        ]
        self.rows = [rows for rows, _ in answers]
        naive, real = plain(answers[0]), plain(answers[1])
        assert real == naive
        if not requests[0].skip_reading_prefix_cache:
            check_hit(self.world, *naive, requests[0].num_tokens)
        return naive

    def common_prefix(self, choices):
        names = [r.request_id for r, _ in self.running + self.waiting] + ["nobody"]
        request_id = choices.of(names)
        self.pair.both(lambda m, _: m.get_num_common_prefix_blocks(request_id))

    def slide(self, choices):
        requests = choices.of(self.running)
        name, computed = requests[0].request_id, requests[0].num_computed_tokens
        self.pair.both(lambda manager, _: manager.remove_skipped_blocks(name, computed))
        note(f"slide {name} at {computed}")


CALLS = (
    ["admit"] * 10
    + ["go_on"] * 14
    + ["a_request_comes"] * 4
    + ["a_step_starts"] * 4
    + ["free"] * 3
    + ["preempt", "evict", "look_up_only", "common_prefix", "slide", "reset"]
)
NEED_RUNNING = {"go_on", "free", "preempt", "look_up_only", "common_prefix", "slide"}

TestManager = ManagerMachine.TestCase
TestManager.settings = machine_settings(120, 8)

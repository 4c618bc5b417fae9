"""The real scheduler and the naive one run the same streams and must decide the same, step by step.

The scheduler laws of spec/manager.md 8 (28 to 31) are recounted after every step as well.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sim.core.integrity import check_integrity
from sim.request import RequestStatus
from tests.conftest import load_implementation
from tests.properties.invariants import check_pool
from tests.properties.worlds import (
    Choices,
    ManagerPair,
    RequestMaker,
    choose_prompt,
    machine_settings,
    plain,
    random_world,
)

MAX_REQUESTS = 12


def random_limits(world, rng: random.Random) -> dict:
    """Return settings of a scheduler that are legal for the world."""
    chunked = rng.random() < 0.85
    block = align_block_size(world) or 1
    threshold = rng.choice([0, 0, 0, rng.randint(1, 12)])
    return {
        "max_num_batched_tokens": max(world.max_num_batched_tokens, block),
        "max_num_seqs": rng.choice([2, 4, 16, 16]),
        "max_model_len": world.max_model_len,
        "long_prefill_token_threshold": max(threshold, block) if threshold else 0,
        "enable_chunked_prefill": chunked,
        "scheduler_reserve_full_isl": rng.random() < 0.4,
    }


def align_block_size(world) -> int | None:
    return min(spec.block_size for spec in world.specs) if world.has_align else None


def names(requests) -> list[str]:
    return [request.request_id for request in requests]


def shown(output) -> dict:
    """Return what a step decided, with ids instead of records."""
    return {
        "scheduled": [(r.request_id, computed, n) for r, computed, n in output.scheduled],
        "new_block_ids": {
            name: plain(rows) for name, rows in output.new_block_ids.items() if any(map(len, rows))
        },
        "admitted": names(output.admitted),
        "resumed": names(output.resumed),
        "preempted": names(output.preempted),
        "finished": sorted(output.finished_req_ids),
    }


RECORD = (
    "status",
    "num_tokens",
    "num_computed_tokens",
    "num_preemptions",
    "num_cached_tokens",
)


class SchedulerMachine(RuleBasedStateMachine):
    """Requests come and leave, steps are taken, caches are reset, running requests thrown out."""

    @initialize(seed=st.integers(0, 10**9))
    def build(self, seed):
        world = random_world(seed)
        few = random.Random(seed).randint(8, 24) * len(world.specs)
        world = replace(world, num_blocks=min(world.num_blocks, few))
        self.world = world
        self.limits = random_limits(world, random.Random(seed))
        note(f"{world!r} {self.limits}")
        naive, real = load_implementation("reference"), load_implementation("sim")
        self.pair = ManagerPair(world, naive, real)
        self.schedulers = [
            side.Scheduler(
                manager,
                side.SchedulerLimits(**self.limits),
                align_block_size(world),
                use_eagle=world.use_eagle,
            )
            for side, manager in ((naive, self.pair.naive), (real, self.pair.real))
        ]
        self.maker = RequestMaker(world.hash_block_size)
        self.requests: dict[str, tuple] = {}
        self.admission: list[str] = []

    @rule(script=st.binary(min_size=40, max_size=160))
    def calls(self, script):
        choices = Choices(script)
        while choices:
            call = choices.of(CALLS) if self.schedulers[0].requests else "a_request_comes"
            getattr(self, call)(choices)
            self.they_agree()

    @rule(num_steps=st.integers(1, 40))
    def run_on(self, num_steps):
        """Take steps only, so that requests also come to their ends."""
        for _ in range(num_steps):
            scheduled = self.step(None)
            self.they_agree()
            if not scheduled:
                break

    # -- calls ----------------------------------------------------------------------------
    def a_request_comes(self, choices):
        if len(self.schedulers[0].requests) >= MAX_REQUESTS:
            return
        number = self.maker.num_made
        prompt = choose_prompt(choices, min(48, self.world.max_model_len - 1), number)
        max_tokens = 1 + choices.below(20)
        pair = self.maker.make(prompt, max_tokens, choices.below(14) == 1)
        note(f"request r{number}: {prompt}, {max_tokens}, {pair[0].skip_reading_prefix_cache}")
        self.requests[pair[0].request_id] = pair
        for scheduler, request in zip(self.schedulers, pair, strict=True):
            scheduler.add_request(request)

    def step(self, choices):
        outputs = [scheduler.schedule() for scheduler in self.schedulers]
        self.check_step(*outputs)
        self.update(outputs)
        return outputs[0].scheduled

    def step_with_an_abort_in_it(self, choices):
        outputs = [scheduler.schedule() for scheduler in self.schedulers]
        self.check_step(*outputs)
        self.abort(choices)
        self.update(outputs)

    def step_with_a_reset_in_it(self, choices):
        outputs = [scheduler.schedule() for scheduler in self.schedulers]
        self.check_step(*outputs)
        self.reset(choices)
        self.update(outputs)

    def update(self, outputs):
        finished = [
            names(scheduler.update_from_output(output))
            for scheduler, output in zip(self.schedulers, outputs, strict=True)
        ]
        assert finished[1] == finished[0]
        assert names(outputs[1].first_tokens) == names(outputs[0].first_tokens)

    def abort(self, choices):
        known = list(self.schedulers[0].requests)
        ids = sorted({choices.of([*known, "nobody"]) for _ in range(1 + choices.below(2))})
        note(f"abort {ids}")
        for scheduler in self.schedulers:
            scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)

    def reset(self, choices):
        force = choices.below(3) == 1
        answers = [s.reset_prefix_cache(reset_running_requests=force) for s in self.schedulers]
        note(f"reset, forced {force}: {answers}")
        assert answers[1] == answers[0]

    # -- what must hold ---------------------------------------------------------------------
    def check_step(self, naive, real):
        if naive.scheduled or naive.preempted:
            note(f"step {shown(naive)}")
        assert shown(real) == shown(naive)
        limits, scheduler = self.limits, self.schedulers[1]
        tokens = [n for _, _, n in real.scheduled]
        assert sum(tokens) <= limits["max_num_batched_tokens"]  # 28
        assert all(n > 0 for n in tokens)
        assert len(scheduler.running) <= limits["max_num_seqs"]
        self.check_composition(real)
        if real.preempted:
            assert not real.admitted and not real.resumed  # 30
        thrown_out = [r for r in real.preempted if r.status is RequestStatus.PREEMPTED]
        for request in thrown_out:  # 30
            assert request.num_computed_tokens == 0
            assert not any(map(any, self.pair.real.get_block_ids(request.request_id)))
            assert request in list(scheduler.waiting)

    def check_composition(self, output):
        """The step-time models see the same tokens: prefill chunks and decoded ones."""
        decodes = [c for r, c, n in output.scheduled if n == 1 and c >= r.num_prompt_tokens]
        prefills = [
            (c, n) for r, c, n in output.scheduled if not (n == 1 and c >= r.num_prompt_tokens)
        ]
        assert list(output.decode) == decodes
        assert list(output.prefill) == prefills

    def they_agree(self):
        self.pair.compare(len(self.maker.prefix_ids))
        self.pair.compare_events()
        check_pool(self.pair.real, self.world)
        check_integrity(self.pair.real)
        mine, other = self.schedulers
        assert names(other.running) == names(mine.running)
        assert names(other.waiting) == names(mine.waiting)
        assert set(other.requests) == set(mine.requests)
        assert sorted(names(other.running) + names(other.waiting)) == sorted(other.requests)  # 28
        for naive, real in self.requests.values():
            for field in RECORD:
                assert getattr(real, field) == getattr(naive, field), (real.request_id, field)
            assert real.num_computed_tokens <= real.num_tokens  # 29

    def teardown(self):
        """Law 31: after everybody has left, everything is free and the cache can be reset."""
        if not hasattr(self, "schedulers"):
            return
        for scheduler in self.schedulers:
            scheduler.finish_requests(list(scheduler.requests), RequestStatus.FINISHED_ABORTED)
        self.they_agree()
        assert self.pair.real.block_pool.get_num_free_blocks() == self.world.num_blocks - 1
        assert self.schedulers[1].reset_prefix_cache() is True


CALLS = (
    ["step"] * 16
    + ["a_request_comes"] * 8
    + ["step_with_an_abort_in_it", "step_with_a_reset_in_it", "abort", "reset"]
)

TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = machine_settings(170, 8)

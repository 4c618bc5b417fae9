"""The laws of spec/manager.md 8 in random runs of every kind, both policies, and two steps ahead.

tests/properties has the same laws against a naive second implementation, for fewer kinds.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from sim.core.integrity import check_integrity
from sim.core.kv_events import KVEventLog, replay
from sim.request import RequestStatus
from tests.helpers import free_list, full, make_kv_cache_config, mamba, sliding
from tests.spec.serving import Serving
from tests.spec.worlds import chunked, rswa

KINDS = {
    "full": [full(4)],
    "window": [sliding(4, 8)],
    "full and window": [full(4), sliding(4, 8)],
    "unequal blocks": [full(16), sliding(4, 8)],
    "three": [full(4), sliding(4, 8), sliding(4, 20)],
    "align": [full(4), mamba(4)],
    "all": [full(4), mamba(4, "all")],
    "chunked": [full(4), chunked(4, 8)],
    "generated window": [rswa(4, 8)],
}
BUDGET, NUM_BLOCKS, MAX_SEQS = 24, 48, 5


class Run:
    """A random stream of calls; ``is_async`` keeps a second step in flight."""

    def __init__(self, specs, policy, is_async):
        self.rng = random.Random(f"{[spec.kind for spec in specs]} {policy} {is_async}")
        config = make_kv_cache_config(specs, num_blocks=NUM_BLOCKS)
        self.log = KVEventLog(config, min(spec.block_size for spec in specs))
        self.serving = Serving(
            *specs,
            num_blocks=NUM_BLOCKS,
            max_num_batched_tokens=BUDGET,
            max_num_seqs=MAX_SEQS,
            policy=policy,
            async_scheduling=is_async,
            observer=self.log,
        )
        self.scheduler, self.manager = self.serving.scheduler, self.serving.manager
        self.in_flight, self.depth = [], 1 + is_async
        self.index: Counter = Counter()
        self.all, self.aborted = [], set()

    def go(self, num_steps):
        for _ in range(num_steps):
            self.come_and_go()
            self.step()
            self.check_state()
        while self.scheduler.requests:
            self.step()
        while self.in_flight:
            self.scheduler.update_from_output(self.in_flight.pop(0))

    def come_and_go(self):
        rng = self.rng
        if rng.random() < 0.4:
            shared = rng.choice([0, 0, 12, 33])
            request = self.serving.add(
                f"r{len(self.all)}",
                shared + rng.randint(1, 40),
                shared=shared,
                max_tokens=rng.randint(1, 12),
                priority=rng.randint(0, 3),
            )
            self.all.append(request)
        if rng.random() < 0.03 and self.scheduler.requests:
            victim = rng.choice(list(self.scheduler.requests))
            self.aborted.add(victim)
            self.scheduler.finish_requests([victim], RequestStatus.FINISHED_ABORTED)
        if rng.random() < 0.02:
            assert self.scheduler.reset_prefix_cache(reset_running_requests=True)

    def step(self):
        output = self.scheduler.schedule()
        self.check_output(output)
        self.in_flight.append(output)
        if len(self.in_flight) >= self.depth:
            self.scheduler.update_from_output(self.in_flight.pop(0))

    def check_output(self, output):
        """Laws 28 and 30."""
        counts = output.num_scheduled_tokens
        assert sum(counts.values()) <= BUDGET
        assert all(n > 0 for n in counts.values())
        for victim in output.preempted:
            assert victim.num_computed_tokens == 0
            assert victim.status is RequestStatus.PREEMPTED
            assert not any(self.manager.get_block_ids(victim.request_id))
            assert victim.request_id in self.serving.ids("waiting")
        assert not output.preempted or not (output.admitted or output.resumed)

    def check_state(self):
        """Laws 1 to 8 by recounting; 28, 29, 33."""
        check_integrity(self.manager)
        ids = self.serving.ids
        places = [*ids("running"), *ids("waiting"), *ids("skipped_waiting")]
        assert sorted(places) == sorted(self.scheduler.requests)
        assert len(ids("running")) <= MAX_SEQS
        for request in self.scheduler.requests.values():
            known = request.num_tokens + request.num_output_placeholders
            assert request.num_computed_tokens <= known
        replay(self.log.take_events(), self.index)
        pool = self.manager.block_pool
        pairs = zip(pool.group_id, pool.prefix_id, strict=True)
        assert self.index == Counter((g, name) for g, name in pairs if name >= 0)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("kind", KINDS)
def test_laws_of_steps(kind, policy, is_async):
    """Law 31 at the end, and 32 as far as it goes without tokens: everybody gets its output."""
    run = Run(KINDS[kind], policy, is_async)
    run.go(150)
    assert len(free_list(run.manager)) == NUM_BLOCKS - 1
    assert run.scheduler.reset_prefix_cache() is True
    served = [r for r in run.all if r.request_id not in run.aborted]
    assert len(served) > 30
    assert all(r.num_output_tokens == r.max_tokens for r in served)


@pytest.mark.parametrize("kind", KINDS)
def test_laws_of_hits(kind):
    """Laws 13, 17, 18, 19, 23 for lookups at every length between random steps."""
    run = Run(KINDS[kind], "fcfs", False)
    coordinator = run.manager.coordinator
    managers = coordinator.single_type_managers
    seen = set()
    for place in range(25):
        run.go(3)
        probe = run.serving.prefixes.request(f"p{place}", range(run.rng.randint(8, 33)))
        before = free_list(run.manager)
        lengths = range(1, probe.num_tokens)
        hits = [coordinator.find_longest_cache_hit(probe.prefix_ids, n) for n in lengths]
        assert free_list(run.manager) == before
        assert all(x <= y for (_, x), (_, y) in pairwise(hits))
        for length, (rows, hit) in zip(lengths, hits, strict=True):
            assert hit <= length
            assert hit % coordinator.scheduler_block_size == 0
            sizes = [len(row) * m.block_size for row, m in zip(rows, managers, strict=True)]
            assert sizes == [hit] * len(managers)
            assert coordinator.find_longest_cache_hit(probe.prefix_ids, length) == (rows, hit)
        seen.update(hit for _, hit in hits)
    assert len(seen) > 1

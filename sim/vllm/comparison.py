"""Both sides of a run beside each other: what is compared after each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from sim.core.kv_events import KVEventLog
from sim.scheduler.scheduler import Scheduler
from sim.vllm.account import account
from sim.vllm.compare_events import of_events
from sim.vllm.compare_state import STATS, StateComparison, of_statistics
from sim.vllm.difference import Difference, Divergence, first_of
from sim.vllm.hash_names import HashNames
from sim.vllm.pool_view import BlockPoolView, GroupView


class Comparison:
    """Compares events, statistics and, where it is due, the whole state.

    ours, raw : our scheduler and vLLM's; log : the events of our manager, None leaves them out;
    every : the whole state is compared at every so many steps.
    """

    def __init__(
        self, ours: Scheduler, raw: Any, names: HashNames, log: KVEventLog | None, every: int
    ):
        self.ours = ours
        self.raw = raw
        self.names = names
        self.log = log
        self.every = every
        self.step = 0
        self.now_ns = 0
        self.counts: Counter[str] = Counter()
        manager = raw.kv_cache_manager
        self._pool = BlockPoolView(manager, names)
        groups = [GroupView(m) for m in manager.coordinator.single_type_managers]
        self._state = StateComparison(ours.kv_cache_manager, self._pool, groups)
        self._drained = dict.fromkeys(STATS, 0)

    def ask(self, call: str, of_vllm: Callable[[], Any]) -> Any:
        """Return what vLLM answers; an exception of its own is a difference."""
        try:
            return of_vllm()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self._tell(call, Difference("an exception", None, text))

    def check(self, call: str, *more: Difference | None, whole: bool = False) -> None:
        """Raise Divergence if one of ``more``, or anything that is compared here, differs."""
        self.counts["calls"] += 1
        self._pool.changed()
        found = first_of(more) or first_of(self._differences(whole))
        if found is not None:
            self._tell(call, found)

    def _differences(self, whole: bool) -> Iterator[Difference | None]:
        yield self._of_events()
        yield of_statistics(self.ours.kv_cache_manager.prefix_cache_stats, self._their_statistics())
        if whole or (self.every and self.step % self.every == 0):
            self.counts["states"] += 1
            yield self._state.difference()
            self.counts["blocks"] = self._state.num_blocks

    def _tell(self, call: str, found: Difference) -> None:
        manager = self.ours.kv_cache_manager
        kinds = [m.kv_cache_spec.kind for m in manager.coordinator.single_type_managers]
        pools = (manager.block_pool, self._pool)
        raise Divergence(account(found, call, self.step, self.now_ns, kinds, *pools))

    def _of_events(self) -> Difference | None:
        published, self.raw.kv_event_publisher.events = self.raw.kv_event_publisher.events, []
        theirs = [*published, *self.raw.kv_cache_manager.take_events()]
        if self.log is None:
            return None
        ours = self.log.take_events()
        self.counts["events"] += len(ours)
        return of_events(ours, theirs, self.names.of_event)

    # -- statistics ----------------------------------------------------------------------------
    def before_drain(self) -> None:
        """Keep vLLM's counts of lookups, which it forgets when it applies outputs."""
        self._drained = self._their_statistics()

    def _their_statistics(self) -> dict[str, int]:
        current = self.raw.kv_cache_manager.prefix_cache_stats
        return {name: self._drained[name] + getattr(current, name) for name in STATS}

"""What a scenario may ask to be recorded beside the tables: KV events, block residency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sim.config import Scenario
from sim.contents import NamePrefixes
from sim.core.block_metrics import BlockMetrics
from sim.event_recorder import EventRecorder
from sim.layout.plan import Layout
from sim.observer import Observer

Clock = Callable[[int], None]


class Watchers:
    """Builds the recorders that a scenario asks for, and tells them what happens.

    random : numbers in [0, 1) for the sample of blocks, one per allocated block
    """

    def __init__(self, scenario: Scenario, layout: Layout, random: Callable[[], float]):
        engine, cache = scenario.engine, scenario.cache
        self.events: EventRecorder | None = None
        self.residency: BlockMetrics | None = None
        if engine.kv_events is not None:
            self.events = EventRecorder(
                layout.kv_cache_config,
                layout.hash_block_size,
                engine.kv_events,
                engine.kv_events_hash,
                engine.kv_events_hash_seed,
                layout.limits.context_parallel_size,
            )
        if cache.kv_cache_metrics:
            rate, is_cached = cache.kv_cache_metrics_sample, layout.enable_prefix_caching
            self.residency = BlockMetrics(rate, random, is_cached)

    @property
    def observers(self) -> list[Observer]:
        """Those that the pool tells what happens."""
        logs = [self.events.log] if self.events is not None else []
        return [*logs, *([self.residency] if self.residency is not None else [])]

    def clock(self, others: Sequence[Clock] = ()) -> Clock | None:
        """Return who is to be told the time of each step: these watchers and ``others``."""
        own = [self.events.step_starts] if self.events is not None else []
        listening = [*own, *([self.residency.at] if self.residency is not None else []), *others]
        if not listening:
            return None
        return listening[0] if len(listening) == 1 else _Clocks(listening)

    def noting(self, name_prefixes: NamePrefixes) -> NamePrefixes:
        """Return the function that names prefixes, with the content noted where events need it."""
        return name_prefixes if self.events is None else self.events.contents.noting(name_prefixes)

    def request_ended(self, request_id: str) -> None:
        """Forget the content of a request."""
        if self.events is not None:
            self.events.contents.forget(request_id)

    def files(self) -> dict[str, EventRecorder]:
        """Return what is to be saved beside the tables, by file name."""
        return {self.events.file_name: self.events} if self.events is not None else {}

    def block_residency(self) -> dict[str, Any] | None:
        """Return the content of ``kv_cache_metrics`` in ``summary.json``."""
        return self.residency.summary() if self.residency is not None else None


class _Clocks:
    """Tells several the time."""

    def __init__(self, listening: Sequence[Clock]):
        self._listening = listening

    def __call__(self, now_ns: int) -> None:
        for listen in self._listening:
            listen(now_ns)

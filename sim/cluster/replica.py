"""One engine of a cluster: the parts of a plain run, on a clock that all replicas share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from sim.engine import SCHEDULE, Engine
from sim.metrics.run_tables import RunTables
from sim.records import Recorder
from sim.watchers import Watchers


class ReplicaEngine(Engine):
    """An engine that takes its turn: at one instant, what replicas do is ordered by their number.

    So the steps of all replicas end first, replica 0's before replica 1's, then come arrivals, and
    last the schedules, in the same order.

    turn, num_turns : its number, and how many there are
    horizon : a time before which nothing arrives anywhere, or None: the next event of all
    """

    def __init__(
        self,
        *arguments: Any,
        turn: int,
        num_turns: int,
        horizon: Callable[[], float] | None = None,
        **more: Any,
    ):
        super().__init__(*arguments, **more)
        self._turn = turn
        self._num_turns = num_turns
        self._next_arrival = horizon

    def _at(self, time_ns: int, priority: int, action: Callable[[Any], None]) -> None:
        shift = self._turn - (0 if priority >= SCHEDULE else self._num_turns - 1)
        super()._at(time_ns, priority + shift, action)

    def _horizon(self) -> float:
        return super()._horizon() if self._next_arrival is None else self._next_arrival()

    def next_foreign_event(self) -> float:
        """Return the time of the next event on the clock that no replica's step is behind."""
        # SimPy tells the first event only; its queue holds (time, priority, number, event).
        queue = self.env._queue
        return min((time for time, priority, *_ in queue if 0 <= priority < SCHEDULE), default=inf)


@dataclass(frozen=True, slots=True)
class Replica:
    """An engine with those who take down what it does."""

    engine: ReplicaEngine
    recorder: Recorder
    watchers: Watchers

    def finish(self) -> RunTables:
        """End what is stuck, recount the state, and return the tables."""
        self.engine.core.give_up_all()
        self.engine.core.check()
        return self.recorder.tables(self.engine.core)

"""Two loops that drive any implementation: a manager by itself, and a whole scheduler.

A loop knows verbs only. What it measures is the time inside the verbs, not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from benchmarks.stream import Turn


class Side(Protocol):
    """One implementation under one of the loops."""

    manager: Any

    def request(self, request_id: str) -> Any: ...

    def append(self, request: Any) -> None: ...

    def block_ids(self, blocks: Any) -> Sequence[Sequence[int]]: ...


Record = Callable[[Any], None]


class Arrivals:
    """Requests by the step at which they come."""

    def __init__(self, stream: list[tuple[int, Turn]]):
        self._by_step: dict[int, list[Turn]] = {}
        self.turns: dict[str, Turn] = {}
        self.left = 0
        for step, first in stream:
            self._by_step.setdefault(step, []).append(first)
            turn: Turn | None = first
            while turn is not None:
                self.turns[turn.spec.request_id] = turn
                self.left += 1
                turn = turn.after

    def at(self, step: int) -> list[str]:
        return [turn.spec.request_id for turn in self._by_step.pop(step, ())]

    def ended(self, request_id: str, step: int) -> None:
        self.left -= 1
        turn = self.turns[request_id]
        if turn.after is not None:
            self._by_step.setdefault(step + 1 + turn.think, []).append(turn.after)


class ManagerLoop:
    """A small scheduler: first come first served, chunks, preemption of the youngest.

    align : block size that prefill chunks end on, or None. ``record`` gets every decision.
    """

    def __init__(
        self,
        side: Any,
        stream: list[tuple[int, Turn]],
        budget: int,
        max_num_seqs: int,
        align: int | None,
        record: Record | None,
    ):
        self.side, self.manager = side, side.manager
        self.arrivals = Arrivals(stream)
        self.budget, self.max_num_seqs, self.align = budget, max_num_seqs, align
        self.record = record
        self.waiting: list[Any] = []
        self.running: list[Any] = []
        self.num_preemptions = 0

    def run(self) -> int:
        """Serve the whole stream; return the number of steps."""
        step = 0
        while self.arrivals.left:
            self.waiting += map(self.side.request, self.arrivals.at(step))
            self.manager.new_step_starts()
            scheduled, budget, preempted = self._running(self.budget)
            if not preempted:
                self._waiting(scheduled, budget)
            self._apply(scheduled, step)
            step += 1
        return step

    def _running(self, budget: int) -> tuple[list[tuple[Any, int]], int, bool]:
        scheduled, preempted, place = [], False, 0
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            place += 1
            computed = request.num_computed_tokens
            count = self._split(request, computed, min(request.num_tokens - computed, budget), 0)
            if count <= 0:
                continue
            while (blocks := self.manager.allocate_slots(request, count)) is None:
                preempted = True
                victim = self.running.pop()
                self._preempt(victim)
                if victim is request:
                    return scheduled, budget, True
            self._take_down(request, count, blocks)
            scheduled.append((request, count))
            budget -= count
        return scheduled, budget, preempted

    def _preempt(self, request: Any) -> None:
        self.manager.free(request)
        request.num_computed_tokens = 0
        request.status = self.side.preempted
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.insert(0, request)

    def _waiting(self, scheduled: list[tuple[Any, int]], budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            hits, num_hit = self.manager.get_computed_blocks(request)
            hint = self.side.hint()
            count = self._split(request, num_hit, min(request.num_tokens - num_hit, budget), hint)
            blocks = count > 0 and self.manager.allocate_slots(
                request,
                count,
                num_hit,
                hits,
                full_sequence_must_fit=True,
                has_scheduled_reqs=bool(self.running),
            )
            if not blocks:
                return
            self._take_down(request, count, blocks)
            self.waiting.pop(0)
            request.status = self.side.running
            request.num_computed_tokens = num_hit
            self.running.append(request)
            scheduled.append((request, count))
            budget -= count

    def _split(self, request: Any, computed: int, count: int, hint: int) -> int:
        size = self.align
        if not size or computed >= max(request.num_prompt_tokens, request.num_tokens - 1):
            return count
        last = request.num_tokens // size * size
        if computed + count < last:
            count = count // size * size
        elif computed < last < computed + count:
            count = last - computed
        return hint // size * size if hint >= size and count > hint else count

    def _take_down(self, request: Any, count: int, blocks: Any) -> None:
        if self.record:
            self.record((request.request_id, count, self.side.block_ids(blocks)))

    def _apply(self, scheduled: list[tuple[Any, int]], step: int) -> None:
        for request, count in scheduled:
            request.num_computed_tokens += count
            if request.num_computed_tokens < request.num_tokens:
                continue
            self.side.append(request)
            if request.num_tokens - request.num_prompt_tokens >= request.max_tokens:
                self.manager.free(request)
                self.running.remove(request)
                self.arrivals.ended(request.request_id, step)


class SchedulerLoop:
    """Steps of a whole scheduler."""

    def __init__(self, side: Any, stream: list[tuple[int, Turn]], record: Record | None):
        self.side = side
        self.arrivals = Arrivals(stream)
        self.record = record

    def run(self) -> int:
        """Serve the whole stream; return the number of steps."""
        step = 0
        while self.arrivals.left:
            for request_id in self.arrivals.at(step):
                self.side.scheduler.add_request(self.side.request(request_id))
            for request_id in self.side.step(self.record):
                self.arrivals.ended(request_id, step)
            step += 1
        return step

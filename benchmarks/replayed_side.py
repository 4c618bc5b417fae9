"""The manager loop without a manager: answers that were given before are given again.

What it takes is the loop's own time, which both implementations pay and neither is to be judged by.
"""

from __future__ import annotations

from typing import Any

from benchmarks.native_side import NativeSide


class _Listener:
    """Passes calls on and keeps the answers, in order."""

    def __init__(self, manager: Any):
        self._manager = manager
        self.answers: list[Any] = []
        self.new_step_starts, self.free = manager.new_step_starts, manager.free

    def allocate_slots(self, *args: Any, **kwargs: Any) -> Any:
        self.answers.append(self._manager.allocate_slots(*args, **kwargs))
        return self.answers[-1]

    def get_computed_blocks(self, request: Any) -> Any:
        self.answers.append(self._manager.get_computed_blocks(request))
        return self.answers[-1]


class _Replayed:
    """Gives the answers, decides nothing."""

    def __init__(self, answers: list[Any]):
        self._next = iter(answers).__next__

    def allocate_slots(self, *args: Any, **kwargs: Any) -> Any:
        return self._next()

    def get_computed_blocks(self, request: Any) -> Any:
        return self._next()

    def free(self, request: Any) -> None: ...

    def new_step_starts(self) -> None: ...


class ListeningSide(NativeSide):
    """Our manager, and what it answered."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.coordinator = self.manager.coordinator
        self.hints: list[int] = []
        self.manager = _Listener(self.manager)  # type: ignore[assignment]

    def hint(self) -> int:
        self.hints.append(self.coordinator.num_uncached_common_prefix_tokens)
        return self.hints[-1]


class ReplayedSide(NativeSide):
    """No manager: the answers of a ListeningSide that has been through the same loop."""

    def __init__(self, told: ListeningSide, *args: Any):
        super().__init__(*args)
        self.manager = _Replayed(told.manager.answers)  # type: ignore[attr-defined,assignment]
        self._next_hint = iter(told.hints).__next__

    def hint(self) -> int:
        return self._next_hint()

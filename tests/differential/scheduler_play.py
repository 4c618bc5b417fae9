"""Plays the operations of a scheduler world on one side, one record after every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.differential.manager_play import NOTHING, Record
from tests.differential.scheduler_side import Nonsense, SchedulerSide
from tests.differential.world import Content, World, num_proposed

MAX_IDLE = 2  # empty steps in a row, after which only something new makes a difference


class SchedulerPlay:
    """The engine's part: arrivals, steps, outputs that may come late, aborts and resets."""

    def __init__(self, world: World, content: Content, side: SchedulerSide, errors: tuple):
        self.world, self.content, self.side, self.errors = world, content, side, errors
        self.unborn = list(range(len(world.requests)))[::-1]
        self.in_flight: list[Any] = []
        self.num_idle = 0
        self.parked: list[list[int]] = []  # nothing defers frees without a connector
        self.ready: set[str] = set()
        self.asked: tuple[Any, ...] = ()

    def records(self) -> Iterator[Record]:
        """Play all operations; those that need what is not there are left out."""
        for verb, *numbers in self.world.ops:
            if verb not in ("schedule", "update"):
                self.num_idle = 0
            call: Callable[..., Any] = getattr(self, verb)
            try:
                answer = call(*numbers)
            except Nonsense as nonsense:
                yield Record(self.asked, ("nonsense", str(nonsense)), None)
                return
            except self.errors as error:
                yield Record(self.asked, ("error", type(error).__name__, str(error)), None)
                return
            if answer is not NOTHING:
                yield Record(self.asked, answer, self.side.snapshot())

    def add(self, count: int = 1) -> Any:
        if not self.unborn:
            return NOTHING
        numbers = [self.unborn.pop() for _ in range(min(count, len(self.unborn)))]
        self.asked = ("add", numbers)
        for number in numbers:
            self.side.add(number)
        return None

    def schedule(self, throttle: int = 0) -> Any:
        """Decide a step; asynchronous scheduling may have two in flight."""
        if len(self.in_flight) > self.world.asynchronous:
            return self.update()
        if self.num_idle >= MAX_IDLE:
            return NOTHING
        self.asked = ("schedule", throttle, len(self.in_flight))
        handle, step = self.side.schedule(bool(throttle))
        self.num_idle = 0 if step.scheduled or self.in_flight else self.num_idle + 1
        if step.scheduled or not self.world.asynchronous:
            self.in_flight.append(handle)
        return step

    def update(self) -> Any:
        """The oldest batch ends."""
        if not self.in_flight:
            return NOTHING
        self.asked = ("update",)
        told = self.side.update(self.in_flight.pop(0))
        if self.world.num_spec_tokens and not self.world.asynchronous:
            self.side.propose(self._drafts())
        return told

    def _drafts(self) -> dict[str, int]:
        """Drafts are proposed for whatever decodes."""
        drafts = {}
        for name, request in self.side.requests().items():
            if request.status.name == "RUNNING" and request.num_output_tokens > 0:
                number = int(name[1:])
                drafts[name] = num_proposed(self.world, number, request.num_output_tokens)
        return drafts

    def evict(self, *block_ids: int) -> Any:
        if self.world.num_blocks < 2:
            return NOTHING
        ids = sorted({1 + b % max(self.world.num_blocks - 1, 1) for b in block_ids})
        self.asked = ("evict", ids)
        return self.side.manager.evict_blocks(set(ids))

    def abort(self, *which: int) -> Any:
        known = sorted(self.side.requests(), key=lambda name: int(name[1:]))
        if not known:
            return NOTHING
        ids = list(dict.fromkeys(known[w % len(known)] for w in which))
        self.asked = ("abort", ids)
        # One by one: given several, the reference frees them in the order of a set of texts.
        return [self.side.abort([name, "nobody"]) for name in ids]

    def reset(self, running: int = 0) -> Any:
        self.asked = ("reset", running)
        return self.side.reset(bool(running))

    def grammar(self, which: int) -> Any:
        """The grammar of a request that waits for it is ready."""
        blocked = [
            name
            for name, request in self.side.requests().items()
            if request.status.name == "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR"
            and name not in self.ready
        ]
        if not blocked:
            return NOTHING
        name = blocked[which % len(blocked)]
        self.asked = ("grammar ready", name)
        self.ready.add(name)
        return self.side.grammar_ready(name)

"""The compiled scheduler behind the interface of a side, driven call by call."""

from __future__ import annotations

from typing import Any

from sim.references import held
from sim.request import RequestStatus
from sim.scheduler import apply_outputs_compiled as outputs
from sim.scheduler import scheduler_compiled
from sim.scheduler.request_queue_compiled import add_request
from sim.scheduler.scheduler_state_compiled import NUM_BATCHES, new_scheduler, with_manager
from tests.compiled import compiled_state
from tests.compiled.compiled_manager import CompiledManager
from tests.compiled.compiled_state import Record
from tests.compiled.python_sides import ENDED, PythonScheduler
from tests.differential.scheduler_side import SchedulerSide, Step
from tests.differential.side import SNAPSHOT
from tests.differential.world import Content, World

RUNNING = RequestStatus.RUNNING.name
PREEMPTED = RequestStatus.PREEMPTED.name
ABORTED = int(RequestStatus.FINISHED_ABORTED)


class CompiledScheduler(SchedulerSide):
    """The functions of ``scheduler_compiled`` and ``apply_outputs_compiled``.

    A step's handle is the place of its batch; batches take turns, at most two are in flight.
    """

    name = "compiled"

    def __init__(self, world: World, content: Content):
        self.world = world
        python = PythonScheduler(world, content)  # the rules; it serves nothing
        self._last_num_tokens = python.scheduler._last_num_tokens
        self.python = python
        self.manager = CompiledManager(world, content)
        self.s = new_scheduler(python.scheduler, self.manager.m)
        self.views: dict[str, Record] = {}
        self.place, self.now_ns = 0, 0
        self.finished: list[str] = []
        self.first_tokens: tuple[str, ...] = ()
        self.is_awaited = False
        self._held: tuple[Any, Any] = (None, None)

    def hold(self) -> Any:
        """Return what compiled functions take for the state as it is now."""
        if self.s.manager is not self.manager.m:
            self.s = with_manager(self.s, self.manager.m)
        if self._held[0] is not self.s:
            self._held = (self.s, held(self.s))
        return self._held[1]

    # -- requests --------------------------------------------------------------------------
    def add(self, number: int) -> None:
        request = self.python.make_request(number)
        view = self.manager.take(request, self._last_num_tokens(request))
        self.manager.records.watch(self.manager.m, request, True)
        self.views[request.request_id] = view
        add_request(self.hold(), view.r)

    def requests(self) -> dict[str, Record]:
        return self.views

    def abort(self, request_ids: list[str]) -> list[str]:
        known = [i for i in request_ids if self.manager.records.find(i) is not None]
        for request_id in known:
            outputs.end(self.hold(), self.views[request_id].r, ABORTED, self.now_ns)
            outputs.forget_running(self.hold())
        return self._take_ended()

    def _take_ended(self) -> list[str]:
        counters = self.s.counters[0]
        ended = self.s.ended[: counters.num_ended].copy()
        counters.num_ended = 0
        requests = self.manager.records.ended(self.manager.m, ended)
        names = [request.request_id for request in requests]
        for name in names:
            del self.views[name]
        self.finished += names
        return names

    # -- steps -----------------------------------------------------------------------------
    def schedule(self, throttle: bool) -> tuple[Any, Step]:
        self.manager.want_rows(int(scheduler_compiled.num_rows_needed(self.hold())))
        before = {name: view.status.name for name, view in self.views.items()}
        place = self.place
        count = scheduler_compiled.schedule(self.hold(), place, self.now_ns)
        if count or not self.world.asynchronous:
            self.place = (place + 1) % NUM_BATCHES
        step = self._step(place, before)
        self.finished = []
        return place, step

    def _step(self, place: int, before: dict[str, str]) -> Step:
        scheduled = self._rows(place)
        names = [name for name, _, _ in scheduled]
        now = {name: view.status.name for name, view in self.views.items()}
        gone = [n for n in now if before[n] == RUNNING and now[n] == PREEMPTED]
        return Step(
            scheduled=scheduled,
            new_block_ids={},
            admitted=[n for n in names if before[n] not in (RUNNING, PREEMPTED)],
            resumed=[n for n in names if before[n] == PREEMPTED],
            preempted=sorted(gone),
            finished=sorted(self.finished),
            drafts={},
            common=[],
            to_zero=[],
        )

    def _rows(self, place: int) -> list[tuple[str, int, int]]:
        batch = self.s.batch
        count = int(batch.length[place])
        columns = [
            c[place, :count].tolist() for c in (batch.request, batch.computed, batch.num_new)
        ]
        return [(self._name(r), computed, n) for r, computed, n in zip(*columns, strict=True)]

    def update(self, handle: Any) -> Any:
        before = {view.r: (name, view.num_tokens) for name, view in self.views.items()}
        self.is_awaited = bool(outputs.delivers(self.hold(), handle))
        self.now_ns += 1
        outputs.apply_outputs(self.hold(), handle, self.now_ns)
        after = {r: self.manager.m.requests[r].num_tokens for r in before}
        finished = set(self._take_ended())
        told = []
        for r in self.s.batch.request[handle, : self.s.batch.length[handle]].tolist():
            name, num_tokens = before.get(r, ("", 0))
            if r in before and (after[r] > num_tokens or name in finished):
                reason = ENDED if name in finished else None
                told.append((name, int(after[r] - num_tokens), reason))
        self.first_tokens = self._take_first_tokens(before)
        return told, [compiled_state.take_statistics(self.manager.m)]

    def _take_first_tokens(self, names: dict[int, tuple[str, int]]) -> tuple[str, ...]:
        counters = self.s.counters[0]
        first = self.s.first_tokens[: counters.num_first_tokens].tolist()
        counters.num_first_tokens = 0
        return tuple(names[r][0] for r in first)

    # -- what can be seen -------------------------------------------------------------------
    def snapshot(self) -> tuple[Any, ...]:
        counters = self.s.counters[0]
        running = self.s.running[: counters.num_running].tolist()
        manager = self.manager.shown()
        return (
            *manager[: len(SNAPSHOT)],
            [self._name(r) for r in self._waiting()],
            [],
            [self._name(r) for r in running],
            {name: view.fields() for name, view in self.views.items()},
            *manager[len(SNAPSHOT) :],
            int(counters.num_preemptions),
            self.first_tokens,
            self.is_awaited,
        )

    def _name(self, r: int) -> str:
        return self.manager.records.requests[r].request_id

    def _waiting(self) -> list[int]:
        """Return the records of the queue in the order in which they will be admitted."""
        return self._heap() if self.world.policy == "priority" else self._list()

    def _list(self) -> list[int]:
        r, found = int(self.s.counters[0].waiting_head), []
        while r >= 0:
            found.append(r)
            r = int(self.manager.m.requests[r].next)
        assert len(found) == self.s.counters[0].num_waiting
        return found

    def _heap(self) -> list[int]:
        """The heap itself may lie in any order; what counts is the order of its keys."""
        heap = self.s.heap[: self.s.counters[0].num_waiting].tolist()
        keys = {r: self._key(r) for r in heap}
        for place in range(1, len(heap)):
            assert keys[heap[(place - 1) // 2]] < keys[heap[place]]
        return sorted(heap, key=keys.__getitem__)

    def _key(self, r: int) -> tuple[int, ...]:
        record = self.manager.m.requests[r]
        return int(record.priority), int(record.arrival_ns), int(record.tie)

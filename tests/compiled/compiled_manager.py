"""The compiled manager behind the interface of a side, driven call by call."""

from __future__ import annotations

from typing import Any

from sim.core import kv_cache_coordinator_compiled as coordinator
from sim.core import kv_cache_manager_compiled as compiled_manager
from sim.core.integrity_compiled import is_intact
from sim.core.kv_cache_state_compiled import with_rows
from sim.jit import compiled
from sim.references import held
from sim.request import Request, RequestStatus, Run
from tests.compiled import compiled_state
from tests.compiled.compiled_state import Record
from tests.differential.ours import OurManager
from tests.differential.side import ManagerSide, Rows
from tests.differential.world import Content, World

RECOUNT_EVERY = 8  # calls: it takes as long as all the rest


@compiled
def _find(m, r, max_length):
    return coordinator.find_longest_cache_hit(m, m.requests[r], max_length)


@compiled
def _slide(m, r, total_computed_tokens):
    coordinator.remove_skipped_blocks(m, m.requests[r], total_computed_tokens)


def runs_of(prefix_ids: list[int]) -> list[Run]:
    """Return identities as the compiled engine takes them: ranges of numbers that follow."""
    runs: list[Run] = []
    for prefix_id in prefix_ids:
        if runs and runs[-1][1] == prefix_id:
            runs[-1] = (runs[-1][0], prefix_id + 1)
        else:
            runs.append((prefix_id, prefix_id + 1))
    return runs


class CompiledManager(ManagerSide):
    """Also what a play calls the manager: the functions of ``kv_cache_manager_compiled``."""

    name = "compiled"

    def __init__(self, world: World, content: Content):
        self.world, self.content = world, content
        self.ours = OurManager(world, content)  # the rules, and what the state is shown with
        self.m, self.records = compiled_state.new_state(self.ours)
        self.manager = self
        self.views: list[Record] = []
        self._held: tuple[Any, Any] = (None, None)
        self._num_shown = 0
        self.new_step_starts()  # the compiled engine allocates within steps only

    def hold(self) -> Any:
        """Return what compiled functions take for the state as it is now."""
        if self._held[0] is not self.m:
            self._held = (self.m, held(self.m))
        return self._held[1]

    # -- requests --------------------------------------------------------------------------
    def request(self, number: int) -> Record:
        self.views.append(self.take(self.ours.request(number)))
        return self.views[-1]

    def take(self, request: Request, ends_at: int = 0) -> Record:
        """Give a request a record, and room for whatever it may need."""
        number = int(request.request_id[1:])
        runs = runs_of(self.content.prefix_ids[number])
        self.m = self.records.with_room(self.m, request, runs)
        return Record(self, self.records.add(self.m, request, ends_at), request)

    def append(self, number: int, request: Record, count: int) -> None:
        request.num_tokens += count

    def set_status(self, request: Record, status: str) -> None:
        request.row.status = int(RequestStatus[status])

    def want_rows(self, count: int) -> None:
        """Make room for the tables of so many more requests."""
        missing = count - int(self.m.lookup[0].num_free_rows)
        if missing > 0:
            self.m = with_rows(self.m, len(self.m.tables.free_rows) + missing)

    # -- calls -----------------------------------------------------------------------------
    def look_up(self, request: Record) -> tuple[Any, Rows, int]:
        hit = compiled_manager.get_computed_blocks(self.hold(), request.r)
        if not self.world.enable_caching or not self.m.lookup[0].has_rows:
            return True, tuple([] for _ in self.m.groups), int(hit)
        return True, compiled_state.hits(self.m), int(hit)

    def look_up_direct(self, request: Record, max_length: int, per_group: bool) -> Any:
        length = _find(self.hold(), request.r, max_length)
        self.m.lookup[0].serial = -1  # the rows of the last lookup are gone
        return compiled_state.hits(self.m), int(length)

    def allocate(self, request: Record, num_new: int, rows: Any, **settings: Any) -> Any:
        self.want_rows(1)
        has_room = compiled_manager.allocate_slots(
            self.hold(),
            request.r,
            num_new,
            settings.get("num_new_computed_tokens", 0),
            rows is not None,
            bool(settings.get("full_sequence_must_fit")),
            settings.get("has_scheduled_reqs", True),
        )
        return True if has_room else None

    def free(self, request: Record) -> None:
        compiled_manager.free(self.hold(), request.r)

    def take_stats(self) -> tuple[int, ...]:
        return compiled_state.take_statistics(self.m)

    # -- what a play calls the manager -------------------------------------------------------
    def new_step_starts(self) -> None:
        compiled_manager.new_step_starts(self.hold())

    def remove_skipped_blocks(self, name: str, total: int) -> None:
        r = next(view.r for view in self.views if view.request_id == name)
        _slide(self.hold(), r, total)

    def cache_blocks(self, request: Record, num_computed_tokens: int) -> None:
        compiled_manager.cache_blocks(self.hold(), request.r, num_computed_tokens)

    # -- everything that can be seen -----------------------------------------------------------
    def snapshot(self) -> tuple[Any, ...]:
        quiet = {view.request_id: view.quiet_until for view in self.views}
        return *self.shown(), quiet

    def shown(self) -> tuple[Any, ...]:
        """Return what is to be seen of blocks and tables; now and then recount them, too."""
        if self._num_shown % RECOUNT_EVERY == 0:
            self._recount()
        self._num_shown += 1
        seen, inside = compiled_state.show(self.ours, self.m, self.records)
        return *seen, *inside

    def _recount(self) -> None:
        num_blocks, num_groups = self.m.config[0].num_gpu_blocks, len(self.m.groups)
        sizes = num_blocks, num_groups, self.records.num_prefix_ids
        if not is_intact(self.m, list(self.records.requests), *sizes):
            raise AssertionError("the compiled recount finds the state broken")

"""The Recorder: append-only tables of what happened in a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sim.errors import InvariantError
from sim.latency.work import StepWork
from sim.metrics.run_tables import RunTables
from sim.metrics.sampling import ThinnedSamples
from sim.metrics.waste import WastePartition
from sim.request import Request
from sim.tables import (
    OUTCOMES,
    ROW_GROUP_ROWS,
    WASTE_COLUMNS,
    IntegerRows,
    RequestRows,
    integer_frame,
    step_columns,
)

if TYPE_CHECKING:
    import numpy as np

    from sim.core.kv_cache_manager import KVCacheManager
    from sim.layout.plan import Layout
    from sim.reasons.recording import Reasons
    from sim.scheduler.scheduler import Scheduler, SpecDecodeStats


class Recorder:
    """Collects one row per step that did something and one per request that ended.

    Columns are declared in ``sim.tables``; ``docs/metrics.md`` explains them. Recording reads the
    scheduler and the manager and changes neither. Less than a row group of steps is in memory, and
    the requests that ``RequestRows`` holds; the rest is in temporary files.

    A core that takes many steps at once hands over their rows as a block (``steps``), and samples
    the memory at step ``next_sample`` (``waste_row``).

    Parameters
    ----------
    layout : its groups, its blocks and its memory
    waste_samples : most rows of the waste table; every k-th step is sampled, k doubles when full
    reasons : observer of the run's manager, whose tables become part of the run's
    row_group_rows : rows that are written to a file at once

    Source: ours.
    """

    def __init__(
        self,
        layout: Layout,
        waste_samples: int = 256,
        reasons: Reasons | None = None,
        row_group_rows: int = ROW_GROUP_ROWS,
    ):
        self.reasons = reasons
        self.partition = WastePartition.of(layout)
        self.num_steps = 0
        columns = step_columns(len(layout.kv_cache_config.kv_cache_groups))
        self._steps = IntegerRows(columns, row_group_rows)
        self._requests = RequestRows(row_group_rows)
        self._waste = ThinnedSamples(waste_samples)
        self.spec_decode_stats: SpecDecodeStats | None = None  # the scheduler's, if it has drafts

    def step(
        self,
        start_ns: int,
        end_ns: int,
        work: StepWork,
        scheduler: Scheduler,
        manager: KVCacheManager,
        num_preempted: int,
    ) -> None:
        """Take down one step while it runs: blocks are taken, outputs not yet applied."""
        step, pool = self.num_steps, manager.block_pool
        self._steps.append(
            (
                step,
                start_ns,
                end_ns,
                work.num_prefill_tokens,
                work.num_decode_tokens,
                len(scheduler.running),
                len(scheduler.waiting) + len(scheduler.skipped_waiting),
                num_preempted,
                pool.get_num_free_blocks(),
                pool.num_cached_free,
                *pool.held_by_group,
            )
        )
        if self._waste.is_due(step):
            sample = self.partition.sample(manager, scheduler.requests)
            self._waste.rows.append((step, start_ns, *sample))
        self.num_steps = step + 1

    def steps(self, rows: np.ndarray) -> None:
        """Take down the next steps, a row of int64 for each in the order of the table's columns."""
        if len(rows) and rows[0, 0] != self.num_steps:
            raise InvariantError(f"step {rows[0, 0]} follows after {self.num_steps} steps")
        self._steps.append_block(rows)
        self.num_steps += len(rows)
        self._waste.passed(self.num_steps)

    @property
    def next_sample(self) -> int:
        """Number of the next step whose memory is to be sampled."""
        return self._waste.next_due

    def waste_row(self, step: int, start_ns: int, parts: Iterable[int]) -> None:
        """Take down where the memory is while step ``next_sample`` runs: the bytes of ``PARTS``."""
        if step != self.next_sample or not self._waste.is_due(step):
            raise InvariantError(f"step {step} was sampled, due is step {self.next_sample}")
        self._waste.rows.append((step, start_ns, *parts))

    def request_added(self, arrival_ns: int) -> None:
        """Note that a request arrived, be it taken or rejected; it must come before its end."""
        self._requests.added(arrival_ns)

    def tell_time(self, now_ns: int) -> None:
        """Tell the reasons the time and the number of the step that is about to be scheduled."""
        if self.reasons is not None:
            self.reasons.at(now_ns, self.num_steps)

    def request_done(self, request: Request, outcome: str, reason: str | None) -> None:
        """Take down a request that ended: how, out of ``OUTCOMES``, and why."""
        if outcome not in OUTCOMES:
            raise ValueError(f"outcome is {outcome!r}, must be one of {OUTCOMES}")
        self._requests.ended(
            (
                request.arrival_ns,
                request.first_scheduled_ns,
                request.first_token_ns,
                request.finish_ns,
                request.num_prompt_tokens,
                request.num_tokens - request.num_prompt_tokens,
                request.num_cached_tokens,
                request.num_preemptions,
            ),
            (
                request.request_id,
                request.session_id,
                ",".join(request.tags) or None,
                outcome,
                reason,
            ),
        )

    def tables(self, manager: KVCacheManager) -> RunTables:
        """Return the tables so far, with the manager's own counters.

        Requests are ordered by arrival; those that arrived at one instant by when they ended. A run
        whose tables are in files is over then: further rows are an InvariantError.
        """
        stats = manager.prefix_cache_stats
        reasons = self.reasons.finish() if self.reasons is not None else None
        return RunTables(
            request_table=self._requests.finish(),
            step_table=self._steps.finish(),
            waste=integer_frame(self._waste.rows, WASTE_COLUMNS),
            num_blocks=self.partition.num_blocks,
            kv_memory_bytes=self.partition.kv_memory_bytes,
            prefix_cache_queries=stats.queries,
            prefix_cache_hits=stats.hits,
            **self._spec_decode_counts(),
            lookups=reasons.lookups() if reasons is not None else None,
            reasons=reasons.reasons() if reasons is not None else None,
        )

    def _spec_decode_counts(self) -> dict[str, int]:
        stats = self.spec_decode_stats
        if stats is None:
            return {}
        return {
            "spec_decode_num_drafts": stats.num_drafts,
            "spec_decode_num_draft_tokens": stats.num_draft_tokens,
            "spec_decode_num_accepted_tokens": stats.num_accepted_tokens,
        }

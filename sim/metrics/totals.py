"""What one pass over a table finds: exact sums and extremes, whatever the table's length."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from sim.metrics.metric import exact_dot
from sim.metrics.run_tables import RunTables
from sim.tables import HELD_PREFIX, Rows

_REQUEST_COLUMNS = (
    "arrival_ns",
    "first_scheduled_ns",
    "first_token_ns",
    "finish_ns",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "preemptions",
    "outcome",
)
_SUMMED = ("prefill_tokens", "decode_tokens")
_OVER_TIME = ("num_running", "free_blocks")
_LARGEST = ("end_ns", "num_running", "num_waiting", "cached_free_blocks")


@dataclass(slots=True)
class RequestTotals:
    """Sums over the request table; all exact.

    waits_ns sums first scheduling minus arrival, or end minus arrival of requests that were never
    scheduled. prompt_tokens is of requests with a first token, asked_tokens of admitted ones.
    Arrivals are None of no request.
    """

    num_requests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    first_arrival_ns: int | None = None
    last_arrival_ns: int | None = None
    waits_ns: int = 0
    prompt_tokens: int = 0
    asked_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0

    @classmethod
    def of(cls, tables: RunTables) -> RequestTotals:
        """Return those of a run."""
        totals = cls()
        for rows in tables.request_table.rows(_REQUEST_COLUMNS):
            if len(rows):
                totals._add(rows)
        return totals

    def _add(self, rows: Rows) -> None:
        prompts = rows.integers("prompt_tokens")
        self.num_requests += len(rows)
        self.outcomes.update(rows.counts("outcome"))
        self.prompt_tokens += int(prompts[rows.is_known("first_token_ns")].sum())
        self.asked_tokens += int(prompts[rows.is_known("cached_tokens")].sum())
        self.cached_tokens += int(rows.integers("cached_tokens").sum())
        self.output_tokens += int(rows.integers("output_tokens").sum())
        self.preemptions += int(rows.integers("preemptions").sum())
        self._add_times(rows)

    def _add_times(self, rows: Rows) -> None:
        arrivals = rows.integers("arrival_ns")
        self.first_arrival_ns = _least(self.first_arrival_ns, arrivals)
        self.last_arrival_ns = _most(self.last_arrival_ns, arrivals)
        has_begun = rows.is_known("first_scheduled_ns")
        ends = np.where(has_begun, rows.integers("first_scheduled_ns"), rows.integers("finish_ns"))
        waits = (ends - arrivals)[has_begun | rows.is_known("finish_ns")]
        self.waits_ns += exact_dot(waits, np.ones_like(waits))


@dataclass(slots=True)
class StepTotals:
    """Sums and extremes over the step table; all exact.

    over_time sums a column times the step time. busy_ns_by_sample sums the step times from each row
    of the waste table up to the next. Extremes are missing if there was no step.
    """

    num_steps: int = 0
    busy_ns: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    over_time: Counter[str] = field(default_factory=Counter)
    largest: dict[str, int] = field(default_factory=dict)
    least_free_blocks: int | None = None
    busy_ns_by_sample: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, tables: RunTables) -> StepTotals:
        """Return those of a run."""
        totals, samples = cls(), tables.waste["step"].to_numpy()
        held = [name for name in tables.step_table.kinds if name.startswith(HELD_PREFIX)]
        columns = ("start_ns", *_SUMMED, *_LARGEST, "free_blocks", *held)
        busy_before = np.zeros(len(samples), np.int64)  # each sample
        for rows in tables.step_table.rows(columns):
            times = rows.integers("end_ns") - rows.integers("start_ns")
            busy = np.concatenate([[0], np.cumsum(times)])
            is_here = (samples >= totals.num_steps) & (samples < totals.num_steps + len(rows))
            busy_before[is_here] = totals.busy_ns + busy[samples[is_here] - totals.num_steps]
            if len(rows):
                totals._add(rows, times, held)
        busy_before[samples >= totals.num_steps] = totals.busy_ns
        bounds = [*busy_before.tolist(), totals.busy_ns]
        totals.busy_ns_by_sample = [end - begin for begin, end in pairwise(bounds)]
        return totals

    def _add(self, rows: Rows, times: np.ndarray, held: list[str]) -> None:
        self.num_steps += len(rows)
        self.busy_ns += int(times.sum())
        for name in _SUMMED:
            self.sums[name] += int(rows.integers(name).sum())
        for name in _OVER_TIME:
            self.over_time[name] += exact_dot(rows.integers(name), times)
        for name in _LARGEST:
            self.largest[name] = _most(self.largest.get(name), rows.integers(name))
        num_held = sum((rows.integers(name) for name in held), np.zeros_like(times))
        self.largest["held_blocks"] = _most(self.largest.get("held_blocks"), num_held)
        self.least_free_blocks = _least(self.least_free_blocks, rows.integers("free_blocks"))


def _least(so_far: int | None, values: np.ndarray) -> int:
    least = int(values.min())
    return least if so_far is None else min(least, so_far)


def _most(so_far: int | None, values: np.ndarray) -> int:
    most = int(values.max())
    return most if so_far is None else max(most, so_far)

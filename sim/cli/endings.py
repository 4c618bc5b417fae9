"""What a run tells beside its summary: requests that were rejected, stuck, or never submitted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sim.errors import MAX_LINES

if TYPE_CHECKING:
    from sim.simulation import Assembly
    from sim.tables import Table


def stuck_lines(requests: Table) -> list[str]:
    """Return a line for each request that was left when nothing could go on, at most ten."""
    stuck = requests.that("outcome", "stuck", ("request_id", "reason"))
    pairs = zip(stuck["request_id"], stuck["reason"], strict=True)
    return _at_most_ten([f"stuck: {request_id}: {reason}" for request_id, reason in pairs])


def ending_lines(requests: Table, assembly: Assembly) -> list[str]:
    """Return remarks on requests that were rejected, by reason, and on those never submitted."""
    return [*_rejected(requests), *_never_submitted(requests, assembly)]


def _rejected(requests: Table) -> list[str]:
    rejected = requests.that("outcome", "rejected", ("request_id", "reason"))
    groups: dict[str, list[str]] = {}
    for request_id, reason in zip(rejected["request_id"], rejected["reason"], strict=True):
        groups.setdefault(_without_numbers(reason), []).append(f"{request_id}: {reason}")
    return _at_most_ten(
        [f"rejected: {_requests(len(group))}, first: {group[0]}" for group in groups.values()]
    )


def _without_numbers(reason: str) -> str:
    """Reasons that differ in their numbers only are one reason."""
    return re.sub(r"[0-9][0-9,]*", "#", reason)


def _never_submitted(requests: Table, assembly: Assembly) -> Iterator[str]:
    """Only a request that did not finish can keep others from being submitted."""
    counts = requests.counts("outcome")
    causes = [name for name in ("rejected", "aborted", "stuck") if counts.get(name)]
    if not causes:
        return
    planned = assembly.workload.count(assembly.workload_params)
    missing = (planned or 0) - requests.num_rows
    if missing > 0:
        why = " or ".join(causes)
        yield (
            f"never submitted: {missing:,} of {planned:,} requests: "
            f"an earlier one of their session or client was {why}"
        )


def _requests(number: int) -> str:
    return f"{number:,} request{'s' if number != 1 else ''}"


def _at_most_ten(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], *([f"and {more} more like these"] if more > 0 else [])]

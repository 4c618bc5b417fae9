"""The block ids of a trace as they are listed, for those who count blocks and run no engine.

The workload ``mooncake`` makes spans of a trace, and a partial last block is private there. Here
the lists stay as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from .mooncake import MooncakeParams, _arrival_ns, _hash_ids, _value, _whole
from .trace_file import rows


class Listed(NamedTuple):
    """One line: arrival in nanoseconds, prompt tokens (0 is allowed), 64-bit ids of its blocks."""

    arrival_ns: int
    num_prompt_tokens: int
    ids: array[int]


def listed_ids(params: MooncakeParams) -> Iterator[Listed]:
    """Yield the requests of a trace in file order, reading no further than asked.

    An id beyond 64 bits keeps its lowest 64. Lines are checked as ``mooncake.requests`` checks
    them, but for output lengths, and prompts without tokens, which list no blocks.

    Raises
    ------
    workloads.errors.TraceFormatError : with the line and the field
    """
    last_ns = 0
    for row in islice(rows(Path(params.path)), params.max_requests):
        arrival_ns = _arrival_ns(row, params)
        if arrival_ns < last_ns:
            row.refuse("timestamp", _value(row, "timestamp"), "no earlier than the line before")
        last_ns = arrival_ns
        num_prompt = _whole(row, "input_length", 0)
        ids = _hash_ids(row, num_prompt, params.block_size)
        yield Listed(arrival_ns, num_prompt, _as_64_bits(ids))


def _as_64_bits(ids: list[int | str]) -> array[int]:
    try:
        return array("q", ids)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return array("q", [(int(i) + 2**63) % 2**64 - 2**63 for i in ids])

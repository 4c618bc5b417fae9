"""The blocks of requests as flat arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

BATCH_BLOCKS = 1 << 18
"""A batch ends with the request that brings it to so many blocks."""


class Batch(NamedTuple):
    """Requests of one chain of blocks, in order.

    ids : int64 (blocks,), a number for what each block holds, its prefix included
    starts : int64 (requests + 1,), where the blocks of each request begin
    num_lookups : int64 (requests,), leading blocks of each that a lookup may find
    num_prompt_tokens : int64 (requests,)
    """

    ids: np.ndarray
    starts: np.ndarray
    num_lookups: np.ndarray
    num_prompt_tokens: np.ndarray

    def only(self, keep: np.ndarray) -> Batch:
        """Return the requests with a part of their blocks; keep : bool (blocks,)."""
        looked_up = keep & self.is_looked_up
        return Batch(
            self.ids[keep],
            sums_before(keep)[self.starts],
            np.diff(sums_before(looked_up)[self.starts]),
            self.num_prompt_tokens,
        )

    @property
    def is_looked_up(self) -> np.ndarray:
        """Whether a lookup may find each block; bool (blocks,)."""
        looked_up: np.ndarray = places(self.starts) < by_block(self.num_lookups, self.starts)
        return looked_up


class Requests(NamedTuple):
    """Requests as an engine gets them, in order.

    prefix_ids : int64 (hash blocks,), identities of the prefixes of prompt and output together
    starts : int64 (requests + 1,), where those of each request begin
    num_prompt_tokens, num_output_tokens : int64 (requests,)
    """

    prefix_ids: np.ndarray
    starts: np.ndarray
    num_prompt_tokens: np.ndarray
    num_output_tokens: np.ndarray


def places(starts: np.ndarray) -> np.ndarray:
    """Return the number of each block within its request, from 0."""
    return np.arange(starts[-1]) - by_block(starts[:-1], starts)


def by_block(of_request: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return for each block the value of its request."""
    return np.repeat(of_request, np.diff(starts))


def sums_before(values: np.ndarray) -> np.ndarray:
    """Return the sum of all values before each place, and of all at the end."""
    return np.concatenate([[0], np.cumsum(values)])


def batches(
    rows: Iterable[tuple[Sequence[int], int, int]], size: int = BATCH_BLOCKS
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield rows (ids, number, number) in flat columns (ids, starts, numbers, numbers).

    Each has about ``size`` ids; the last one may have fewer.
    """
    ids: list[Sequence[int]] = []
    numbers: list[tuple[int, int, int]] = []
    num_ids = 0
    for row_ids, first, second in rows:
        ids.append(row_ids)
        numbers.append((len(row_ids), first, second))
        num_ids += len(row_ids)
        if num_ids >= size:
            yield _columns(ids, numbers)
            ids, numbers, num_ids = [], [], 0
    if numbers:
        yield _columns(ids, numbers)


def _columns(
    ids: list[Sequence[int]], numbers: list[tuple[int, int, int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    lengths, first, second = np.array(numbers, np.int64).T.copy()
    return np.concatenate(ids).astype(np.int64, copy=False), sums_before(lengths), first, second


def chain(requests: Requests, hash_block_size: int, block_size: int, *, outputs: bool) -> Batch:
    """Return the blocks that one chain of ``block_size`` tokens a block caches of requests.

    Full blocks only. The last token of a prompt is always computed, so a lookup finds blocks of
    the others; the last token of an output is never computed, so its block is not filled.

    block_size : a multiple of ``hash_block_size``
    outputs : whether blocks that hold generated tokens are kept
    """
    factor = block_size // hash_block_size
    num_prompt = requests.num_prompt_tokens
    num_kept = num_prompt + requests.num_output_tokens - 1 if outputs else num_prompt
    where = places(requests.starts)
    is_end = where % factor == factor - 1
    kept = is_end & (where < by_block(num_kept // block_size * factor, requests.starts))
    return Batch(
        requests.prefix_ids[kept],
        sums_before(kept)[requests.starts],
        (num_prompt - 1) // block_size,
        num_prompt,
    )

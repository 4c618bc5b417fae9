"""Hit tokens when a trace is served one request at a time from a finite pool.

One full-attention group. Each request looks up, takes the blocks that it hits, allocates the rest
of its prompt and outputs, registers what is full, and gives everything back before the next one
comes. Nothing runs beside it, so the whole manager reduces to one ordered dict: block id -> name
of its content, head of the free queue first. Source: spec/manager.md 1.4, 3.1, 3.2, 5.2, 5.3.
"""

from __future__ import annotations

import gzip
import json
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Served(NamedTuple):
    """A request: lengths in tokens, and a name for each full block of prompt and outputs."""

    num_prompt_tokens: int
    num_output_tokens: int
    names: Sequence[Hashable]


class SerialPool:
    """``num_blocks`` blocks, one of them null; all of them free between two requests."""

    def __init__(self, num_blocks: int, block_size: int):
        self.block_size = block_size
        self.free: OrderedDict[int, Hashable | None] = OrderedDict.fromkeys(range(1, num_blocks))
        self.holders: dict[Hashable, list[int]] = {}

    def serve(self, request: Served) -> int | None:
        """Return the hit tokens, or None if the request can never fit (and change nothing)."""
        size = self.block_size
        # The last sampled token is never computed: it needs no slot and completes no block.
        num_computed = request.num_prompt_tokens + request.num_output_tokens - 1
        num_needed = -(-num_computed // size)
        if num_needed > len(self.free):
            return None
        hits = self._leading_hits(request.names, (request.num_prompt_tokens - 1) // size)
        contents = {block_id: self.free.pop(block_id) for block_id in hits}
        for i in range(len(hits), num_needed):
            block_id, old = self.free.popitem(last=False)
            self._forget(block_id, old)
            full = i < num_computed // size
            contents[block_id] = self._register(block_id, request.names[i]) if full else None
        self._give_back(contents)
        return len(hits) * size

    def _leading_hits(self, names: Sequence[Hashable], at_most: int) -> list[int]:
        hits: list[int] = []
        for name in names[:at_most]:
            if not self.holders.get(name):
                break
            hits.append(self.holders[name][0])
        return hits

    def _register(self, block_id: int, name: Hashable) -> Hashable:
        self.holders.setdefault(name, []).append(block_id)
        return name

    def _forget(self, block_id: int, name: Hashable | None) -> None:
        if name is not None:
            self.holders[name].remove(block_id)

    def _give_back(self, contents: dict[int, Hashable | None]) -> None:
        """Tail first: blocks with content to the end; those without to the front, as a list."""
        hashless = [b for b in reversed(contents) if contents[b] is None]
        for block_id in reversed(contents):
            self.free[block_id] = contents[block_id]
        for block_id in reversed(hashless):
            self.free.move_to_end(block_id, last=False)


def serial_hits(
    requests: Iterable[Served], *, num_blocks: int, block_size: int
) -> list[int | None]:
    """Return the hit tokens of each request; None for one that is larger than the pool."""
    pool = SerialPool(num_blocks, block_size)
    return [pool.serve(request) for request in requests]


def block_names(
    number: int,
    num_tokens: int,
    num_prompt_tokens: int,
    hash_ids: Sequence[int],
    trace_block: int,
    block_size: int,
) -> list[Hashable]:
    """Return names of the prefixes that end at multiples of ``block_size``.

    A prefix that ends at token e inside the full trace blocks of the prompt is (id that covers
    token e - 1, e); everything behind belongs to the request alone. Source: design.md 4.3.
    """
    shared = min(num_prompt_tokens // trace_block, len(hash_ids)) * trace_block
    return [
        (hash_ids[(end - 1) // trace_block], end) if end <= shared else ("only", number, end)
        for end in range(block_size, num_tokens + 1, block_size)
    ]


def read_trace(path: Path, block_size: int, trace_block: int = 512) -> Iterator[Served]:
    """Yield the requests of a Mooncake trace file in file order, which is order of arrival."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            prompt, output = row["input_length"], row["output_length"]
            names = block_names(
                number, prompt + output, prompt, row["hash_ids"], trace_block, block_size
            )
            yield Served(prompt, output, names)

"""Nanoseconds per block operation of the compiled pool, beside one random access to memory.

    python -m benchmarks.bench_operations [--blocks 20000 200000 2000000] [--out FOLDER]

Each kind of work is done to all blocks of a pool, in chunks of 64 (a prompt of 1,024 tokens) and,
for taking, one by one (decode); chunks follow each other in random order, so that a large pool is
seen as a long run leaves it. ``take`` of blocks that cache something is ``take`` and ``evict``: the
latter is the difference. ``together``: for each chunk look up, take, register, give back, in seven
groups, as in the first trial of such a pool (12 to 14 ns per operation). A random access is one
step of a pointer chase through an array of so many bytes: each address is only known when the one
before has come, as for a block whose id was just read. Five repeats, CPU time, the least one first.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from sim.core.block_pool_compiled import (
    NO_BLOCK,
    Pool,
    free_cached_blocks,
    free_empty_blocks,
    get_new_blocks,
    new_pool,
    register_range,
    touch,
)
from sim.jit import compiled, is_available
from sim.references import held

CHUNK = 64
COLUMNS = ("what", "size", "ns_min", "ns_median", "ns_max")
CHASE_BYTES = tuple(1 << n for n in (15, 18, 21, 24, 26, 28))
CHASE_STEPS = 2_000_000
TRIAL_NS = "12 to 14"
GROUPS = 7


@compiled
def _take(pool, tables, order, n):
    for place in range(len(order)):
        row = order[place]
        for start in range(0, CHUNK, n):
            get_new_blocks(pool, n, 0, tables[row], start)


@compiled
def _register(pool, tables, ids, order):
    for place in range(len(order)):
        row = order[place]
        register_range(pool, 0, tables[row], 0, CHUNK, ids[row], 0, 1)


@compiled
def _free(pool, tables, ids, order):
    for place in range(len(order)):
        row = order[place]
        free_cached_blocks(pool, tables[row], 0, CHUNK, 0, ids[row], 0, 1)


@compiled
def _free_empty(pool, tables, order):
    for place in range(len(order)):
        free_empty_blocks(pool, tables[order[place]], 0, CHUNK, 0)


@compiled
def _touch(pool, tables, order):
    for place in range(len(order)):
        row = order[place]
        touch(pool, tables[row], 0, CHUNK, 0)


@compiled
def _look_up(pool, tables, ids, order):
    found, index = 0, pool.index[0]
    for place in range(len(order)):
        row = order[place]
        for i in range(CHUNK):
            block_id = index[ids[row, i]]
            if block_id == NO_BLOCK:
                break
            tables[row, i] = abs(block_id)
            found += 1
    return found


@compiled
def _together(pool, tables, ids, order, groups):
    """Serve every chunk once in every group; return the operations."""
    count = 0
    for place in range(len(order)):
        row = order[place]
        for group in range(groups):
            table, index = tables[group], pool.index[group]
            hits = 0
            while hits < CHUNK and index[ids[row, hits]] != NO_BLOCK:
                table[hits] = abs(index[ids[row, hits]])
                hits += 1
            touch(pool, table, 0, hits, group)
            evicted = pool.counters[0].num_evicted
            get_new_blocks(pool, CHUNK - hits, group, table, hits)
            register_range(pool, group, table, hits, CHUNK, ids[row], hits, 1)
            # Looked up, touched or taken and registered, given back; and what was evicted.
            count += hits + 1 + hits + 2 * (CHUNK - hits) + CHUNK
            count += pool.counters[0].num_evicted - evicted
        for group in range(groups):
            free_cached_blocks(pool, tables[group], 0, CHUNK, group, ids[row], 0, 1)
    return count


@compiled
def _chase(following, steps):
    place = 0
    for _ in range(steps):
        place = following[place]
    return place


def cycle(length: int, rng: np.random.Generator) -> np.ndarray:
    """Return a permutation that is one cycle: ``following[i]`` comes after ``i``."""
    order = rng.permutation(length).astype(np.int64)
    following = np.empty(length, np.int64)
    following[order] = np.roll(order, -1)
    return following


class Bench:
    """One pool whose blocks all have a place in a table; ``ns`` collects what was measured."""

    def __init__(self, num_blocks: int, rng: np.random.Generator):
        rows = num_blocks // CHUNK
        self.size = rows * CHUNK
        self.rng = rng
        self.state: Pool = new_pool(self.size + 1, 1, 2 * self.size)
        self.pool: Any = held(self.state)
        self.tables = np.zeros((rows, CHUNK), np.uint32)
        # Prompts' identities follow each other; which prompt comes next is random.
        self.ids = np.arange(2 * self.size, dtype=np.uint32).reshape(2, rows, CHUNK)
        self.ns: dict[str, float] = {}

    def order(self) -> np.ndarray:
        """Return the chunks in a new random order."""
        return self.rng.permutation(len(self.tables))

    def timed(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call and note the time per block."""
        begin = process_time()
        answer = function(*args)
        self.ns[name] = (process_time() - begin) / self.size * 1e9
        return answer

    def run(self) -> dict[str, float]:
        """Do every kind of work once, to all blocks; return the time of each [ns per block]."""
        pool, tables, (old, new) = self.pool, self.tables, self.ids
        self.timed("take, 64 at a time", _take, pool, tables, self.order(), CHUNK)
        self.timed("register", _register, pool, tables, old, self.order())
        self.timed("give back (cached)", _free, pool, tables, old, self.order())
        found = self.timed("look up", _look_up, pool, tables, old, self.order())
        self.timed("touch", _touch, pool, tables, self.order())
        _free(pool, tables, old, self.order())
        self.timed("evict", _take, pool, tables, self.order(), CHUNK)
        self.ns["evict"] -= self.ns["take, 64 at a time"]
        self.timed("give back (empty)", _free_empty, pool, tables, self.order())
        self.timed("take, one by one", _take, pool, tables, self.order(), 1)
        _register(pool, tables, new, self.order())
        _free(pool, tables, new, self.order())
        taken = int(self.state.counters[0].num_evicted)
        if (found, taken) != (self.size, self.size):
            raise SystemExit(f"found {found}, evicted {taken} of {self.size} blocks")
        return self.ns


def kinds(num_blocks: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the times of one pass over a new pool."""
    return Bench(num_blocks, rng).run()


def together(num_blocks: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the time per operation when all kinds of work follow each other, warm pool."""
    rows = max(2, 2 * num_blocks // (CHUNK * GROUPS))
    pool: Any = held(new_pool(num_blocks + 1, GROUPS, rows * CHUNK))
    ids = np.arange(rows * CHUNK, dtype=np.uint32).reshape(rows, CHUNK)
    tables = np.zeros((GROUPS, CHUNK), np.uint32)
    _together(pool, tables, ids, rng.permutation(rows), GROUPS)
    begin = process_time()
    count = _together(pool, tables, ids, rng.integers(0, rows, 2 * rows), GROUPS)
    return {f"together, {GROUPS} groups": (process_time() - begin) / count * 1e9}


def chase(num_bytes: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the time of one access [ns]."""
    following = cycle(num_bytes // 8, rng)
    begin = process_time()
    _chase(following, CHASE_STEPS)
    return {"random access": (process_time() - begin) / CHASE_STEPS * 1e9}


def rows(
    measure: Callable[[int, np.random.Generator], dict[str, float]], size: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """Yield a row per number, from several passes after one that compiles."""
    measure(1 << 15, np.random.default_rng(0))
    passes = [measure(size, np.random.default_rng(number)) for number in range(repeats)]
    for name in passes[0]:
        values = [one[name] for one in passes]
        three = (min(values), statistics.median(values), max(values))
        yield dict(zip(COLUMNS, (name, size, *(round(v, 2) for v in three)), strict=True))


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, with how many random accesses each would be."""
    access = {r["size"]: r["ns_median"] for r in found if r["what"] == "random access"}
    yield "| work | blocks or bytes | ns, min / median / max |"
    yield "|---|--:|--:|"
    for r in found:
        three = f"{r['ns_min']:,.1f} / {r['ns_median']:,.1f} / {r['ns_max']:,.1f}"
        yield f"| {r['what']} | {r['size']:,} | {three} |"
    yield ""
    nearest, farthest = min(access.values()), max(access.values())
    yield f"One random access: {nearest:.1f} to {farthest:.1f} ns. The first trial: {TRIAL_NS} ns."


def main() -> None:
    """Measure, write ``operations.csv``, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, nargs="+", default=[20_000, 200_000, 2_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    if not is_available():
        raise SystemExit("Numba is not there or switched off: nothing to measure")
    options.out.mkdir(parents=True, exist_ok=True)
    found = [r for size in CHASE_BYTES for r in rows(chase, size, options.repeats)]
    for size in options.blocks:
        found += [*rows(kinds, size, options.repeats), *rows(together, size, options.repeats)]
    with (options.out / "operations.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    sys.stdout.write("\n".join(table(found)) + "\n")


if __name__ == "__main__":
    main()

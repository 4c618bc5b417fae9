"""From a trace and what is asked of it to a curve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.curve.blocks import Batch, chain
from sim.curve.capacities import KEY, POINTS, Capacity, log_spaced
from sim.curve.hit_curve import HitCurve
from sim.curve.numbering import DirectNumbering, Numbering
from sim.curve.reading import listed_batches, request_batches
from sim.curve.result import Curve, Point
from sim.curve.sampling import SampledCurve, smallest_capacity
from sim.curve.stack_distances import DEFINITIONS
from sim.errors import ConfigError
from sim.provenance import file_digest

if TYPE_CHECKING:
    from workloads.mooncake import MooncakeParams

Ticker = Callable[[str, int], None]
"""Told what is being done, and how many requests of it are."""

DENSE = 200  # capacities of the line in the figure


def no_ticker(task: str, done: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a trace.

    trace : of its fields those that say which blocks and requests there are
    definition : a name of ``DEFINITIONS``
    block_size : tokens of an engine's block; None: the blocks that the trace lists
    full_blocks : leave out listed blocks that are not full; only without a block_size
    outputs : keep blocks with generated tokens; only with a block_size
    capacities : empty: ``points`` logarithmic ones, from the longest request to all blocks
    sample_ratio : estimate from this share of the blocks; None: exact
    """

    trace: MooncakeParams
    definition: str = "leaf_first"
    block_size: int | None = None
    full_blocks: bool = False
    outputs: bool = True
    capacities: Sequence[Capacity] = ()
    points: int = POINTS
    sample_ratio: float | None = None
    seed: int = 0


def chain_curve(question: Question, tick: Ticker = no_ticker) -> Curve:
    """Return the curve of one chain of blocks, in one pass over the trace."""
    found = _one_pass(question, tick)
    capacities = _blocks(question, found)
    line = log_spaced(_least(question), found.num_distinct, DENSE)
    return Curve(
        {**settings_of(question), "block_size": found.block_size, "model": None, "num_groups": 1},
        totals_of(found),
        tuple(chain_points(found, capacities, [None] * len(capacities))),
        dense_line(found, line, line),
    )


# -- one chain -------------------------------------------------------------------------------------
Found = HitCurve | SampledCurve


def _one_pass(question: Question, tick: Ticker) -> Found:
    if question.sample_ratio is None:
        return _exact(question, tick)
    size = question.block_size or question.trace.block_size
    sampled = SampledCurve(size, question.sample_ratio, question.seed)
    for batch in _batches(question, tick):
        sampled.add(batch)
    return sampled


def _exact(question: Question, tick: Ticker) -> HitCurve:
    size = question.block_size or question.trace.block_size
    numbering = Numbering() if question.block_size is None else DirectNumbering()
    return exact_curve(_batches(question, tick), numbering, question.definition, size)


def exact_curve(
    batches: Iterable[Batch],
    numbering: Numbering | DirectNumbering,
    definition: str,
    block_size: int,
) -> HitCurve:
    """Return the curve of some batches, whose ids get numbers first."""
    curve = HitCurve(DEFINITIONS[definition], block_size)
    for batch in batches:
        curve.add(batch._replace(ids=numbering.of(batch.ids)))
    return curve


def _batches(question: Question, tick: Ticker) -> Iterable[Batch]:
    def told(done: int) -> None:
        tick("one chain", done)

    trace, size = question.trace, question.block_size
    if size is None:
        return listed_batches(trace, full_blocks=question.full_blocks, tick=told)
    requests = request_batches(trace, size, tick=told)
    return (chain(batch, size, size, outputs=question.outputs) for batch in requests)


def _blocks(question: Question, found: Found) -> list[int]:
    if any(capacity.num_blocks is None for capacity in question.capacities):
        raise ConfigError.one(KEY, "bytes", "blocks: without --model a block has no size")
    least, given = _least(question), sorted({c.num_blocks or 0 for c in question.capacities})
    if given and given[0] < least:
        allowed = f"at least {least:,} blocks with a sample of {question.sample_ratio:.4g}"
        raise ConfigError.one(KEY, given[0], allowed)
    first = max(least, found.totals.longest_request)
    return given or log_spaced(first, found.num_distinct, question.points)


def _least(question: Question) -> int:
    ratio = question.sample_ratio
    return 1 if ratio is None else smallest_capacity(ratio)


def chain_points(
    found: Found, capacities: Sequence[int], sizes: Sequence[int | None]
) -> list[Point]:
    """Return the points of one chain; sizes : the bytes of each capacity, None where unknown."""
    hits, tokens = found.hits(capacities), found.hit_tokens(capacities)
    columns = [np.asarray(c) for c in (*_with_error(hits), *_with_error(tokens))]
    total = found.totals.num_prompt_tokens
    points = []
    for place, (size, capacity) in enumerate(zip(sizes, capacities, strict=True)):
        blocks, blocks_error, own, own_error = (column[place] for column in columns)
        is_exact = isinstance(found, HitCurve)
        points.append(
            Point("chain", size, capacity, round(float(blocks)), round(float(own)),
                  share(float(own), total), None if is_exact else float(blocks_error),
                  None if is_exact else float(own_error))
        )  # fmt: skip
    return points


def _with_error(found: Any) -> tuple[np.ndarray, np.ndarray]:
    return found if isinstance(found, tuple) else (found, np.zeros(len(found)))


def dense_line(
    found: Found, capacities: Sequence[int], places: Sequence[int]
) -> tuple[tuple[float, float], ...]:
    """Return the shares found at many capacities, beside the places where they are drawn."""
    tokens, _ = _with_error(found.hit_tokens(capacities))
    shares = tokens / max(1, found.totals.num_prompt_tokens)
    return tuple(zip(map(float, places), shares.tolist(), strict=True))


# -- what goes into the document -------------------------------------------------------------------
def settings_of(question: Question) -> dict[str, Any]:
    """Return what was asked, as plain values."""
    return {
        "trace": Path(question.trace.path).name,
        "trace_sha256": file_digest(Path(question.trace.path)),
        "trace_block_size": question.trace.block_size,
        "max_requests": question.trace.max_requests,
        "definition": question.definition,
        "engine_block_size": question.block_size,
        "full_blocks": question.full_blocks,
        "outputs": question.outputs,
        "sample_ratio": question.sample_ratio,
        "seed": question.seed,
    }


def totals_of(found: Found) -> dict[str, Any]:
    """Return what the requests add up to, as plain values."""
    totals = found.totals
    return {
        "num_requests": totals.num_requests,
        "num_lookups": totals.num_lookups,
        "num_lookup_tokens": totals.num_lookup_tokens,
        "num_prompt_tokens": totals.num_prompt_tokens,
        "longest_request": totals.longest_request,
        "num_distinct": found.num_distinct,
    }


def share(tokens: float, total: int) -> float:
    """Return the part of the prompt tokens; 0 of none."""
    return tokens / total if total else 0.0

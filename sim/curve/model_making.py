"""From a trace and a model to a curve of the model's groups, beside one chain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.curve.blocks import chain
from sim.curve.capacities import log_spaced
from sim.curve.groups import ModelGroups
from sim.curve.hit_curve import HitCurve
from sim.curve.making import (
    DENSE,
    Question,
    Ticker,
    chain_points,
    dense_line,
    exact_curve,
    no_ticker,
    settings_of,
    share,
    totals_of,
)
from sim.curve.numbering import DirectNumbering
from sim.curve.reading import request_batches
from sim.curve.result import Curve, Point
from sim.curve.serial import NOT_SERVED


def model_curve(question: Question, groups: ModelGroups, tick: Ticker = no_ticker) -> Curve:
    """Return the curve of a model's groups, beside one chain in the same memory.

    The trace is read twice: for the chain in one pass, and for the groups, which serve each
    request at all capacities before the next one is read.
    """
    found = _chain(question, groups, tick)
    sizes = _bytes(question, groups, found)
    served = _serve(question, groups, sizes, tick)
    total = found.totals.num_prompt_tokens
    points = [
        Point("groups", size, groups.num_blocks(size), None, tokens, share(tokens, total),
              num_not_served=num_not_served)
        for size, (tokens, num_not_served) in zip(sizes, served, strict=True)
    ]  # fmt: skip
    dense = log_spaced(min(sizes), max(sizes), DENSE)
    return Curve(
        {
            **settings_of(question),
            "block_size": groups.block_size,
            "model": groups.name,
            "num_groups": groups.num_groups,
            "bytes_per_block": groups.layout.bytes_per_block,
            "pool_blocks_per_chain_block": groups.pool_blocks_per_chain_block,
            "max_num_batched_tokens": groups.limits.max_num_batched_tokens,
            "max_model_len": groups.limits.max_model_len,
            "engine_settings": dict(groups.settings),
        },
        totals_of(found),
        (*points, *chain_points(found, [groups.chain_capacity(s) for s in sizes], sizes)),
        dense_line(found, [groups.chain_capacity(size) for size in dense], dense),
    )


def _chain(question: Question, groups: ModelGroups, tick: Ticker) -> HitCurve:
    """Return the curve of one chain of the blocks at which a hit of the groups may end."""
    hashed, size = groups.layout.hash_block_size, groups.block_size
    requests = request_batches(question.trace, hashed, tick=lambda done: tick("one chain", done))
    batches = (chain(batch, hashed, size, outputs=question.outputs) for batch in requests)
    return exact_curve(batches, DirectNumbering(), question.definition, size)


def _bytes(question: Question, groups: ModelGroups, found: HitCurve) -> list[int]:
    per_block = groups.layout.bytes_per_block
    if question.capacities:
        return sorted(
            {
                size if size is not None else (blocks or 0) * per_block
                for size, blocks in question.capacities
            }
        )
    first, last = map(groups.bytes_of_chain, (found.totals.longest_request, found.num_distinct))
    return sorted(
        {size // per_block * per_block for size in log_spaced(first, last, question.points)}
    )


def _serve(
    question: Question, groups: ModelGroups, sizes: Sequence[int], tick: Ticker
) -> list[tuple[int, int]]:
    """Return the hit tokens and the requests not served, at each capacity."""
    servers = [groups.server(size) for size in sizes]
    sums = np.zeros((len(sizes), 2), np.int64)
    done = 0
    for batch in request_batches(question.trace, groups.layout.hash_block_size):
        for server, row in zip(servers, sums, strict=True):
            hits = server.serve(batch)
            row += (int(hits[hits != NOT_SERVED].sum()), int((hits == NOT_SERVED).sum()))
            done += len(hits)
            tick(f"{groups.num_groups} groups, {len(sizes)} capacities", done // len(sizes))
    return [(int(tokens), int(num_not_served)) for tokens, num_not_served in sums]

"""Pipeline parallelism: which stage holds which layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from sim.errors import ConfigError
from sim.models.model_config import ModelConfig

_KEY = "pipeline_parallel_layers"
_BLOCK = re.compile(r"[LD](\d+)(\.|$)")


def split_pipeline(
    model: ModelConfig, sizes: Sequence[int] | None = None, *, split_at: Sequence[int] | None = None
) -> list[tuple[str, ...]]:
    """Return the names of the cache-owning layers of each stage, in order of registration.

    Parameters
    ----------
    sizes : transformer blocks of each stage, those without a cache counted; they sum to the
        model's ``num_hidden_layers``
    split_at : instead of sizes, the first block of each stage but the first

    Speculative layers go to the last stage. A stage may own no cache.

    Raises
    ------
    ConfigError
        Sizes that do not add up, or a layer on another stage than the layer whose cache it reads.

    Source: spec/layout.md 0 and 6.8.
    """
    num_blocks = model.dims.num_hidden_layers
    bounds = [0, *accumulate(_sizes(num_blocks, sizes, split_at))]
    if bounds[-1] != num_blocks:
        raise ConfigError.one(_KEY, list(sizes or ()), f"sizes that sum to {num_blocks} layers")
    ends = [*bounds[1:-1], None]  # the last stage is open
    stages = list(zip(bounds[:-1], ends, strict=True))
    _check_sharing(model, stages)
    return [
        tuple(la.name for la in model.layers if _is_on(_block(la.name, num_blocks), stage))
        for stage in stages
    ]


def _sizes(
    num_blocks: int, sizes: Sequence[int] | None, split_at: Sequence[int] | None
) -> list[int]:
    if (sizes is None) == (split_at is None):
        raise ValueError("either sizes or split_at")
    if sizes is not None:
        return _integers(sizes, num_blocks)
    bounds = [0, *_integers(split_at, num_blocks), num_blocks]
    if sorted(bounds) != bounds:
        allowed = f"ascending layer numbers from 0 to {num_blocks}"
        raise ConfigError.one("pipeline_parallel_split_at", list(split_at), allowed)
    return [end - start for start, end in pairwise(bounds)]


def _integers(values: Sequence[int], most: int) -> list[int]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ConfigError.one(_KEY, list(values), f"integers from 0 to {most}")
    return list(values)


def _block(name: str, num_blocks: int) -> int:
    """Transformer block of a layer; drafts stand behind the last one."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else num_blocks


def _is_on(block: int, stage: tuple[int, int | None]) -> bool:
    start, end = stage
    return start <= block and (end is None or block < end)


def _check_sharing(model: ModelConfig, stages: Sequence[tuple[int, int | None]]) -> None:
    """A cache cannot be read from another stage."""
    for reader, target in model.kv_shared_target.items():
        blocks = [_block(name, 0) for name in (reader, target)]
        if not any(all(_is_on(block, stage) for block in blocks) for stage in stages):
            allowed = f"{reader} on the stage of {target}, whose cache it reads"
            raise ConfigError.one(_KEY, f"stages {list(stages)}", allowed)

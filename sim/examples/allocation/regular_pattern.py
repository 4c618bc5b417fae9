"""Case 2: 10 full and 20 sliding layers in three groups, and the 11 blocks of 112 tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sim.examples.allocation.block_tables import draw_block_tables
from sim.examples.allocation.toy_pool import (
    BLOCK_SIZE,
    LIMITS,
    NUM_TOKENS,
    TEXT,
    WINDOW,
    ToyRequest,
    renumbered,
    toy_pool,
    toy_specs,
)
from sim.examples.example import Check, Example
from sim.layout.kv_cache_config import KVCacheConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANAGER = "spec/manager.md 3.3, 112-token example"


def regular_pattern() -> Example:
    """Return the example: the text's 11 blocks, and what the engine holds on the way to them."""
    config = toy_pool(toy_specs(10, 20))
    one_step, after, next_step, tables = _in_one_step(config)
    by_chunks = _in_chunks(config)
    newer = toy_pool(toy_specs(10, 20), "vllm")
    lines = (
        f"block size {BLOCK_SIZE}, window {WINDOW}, a request of {NUM_TOKENS} tokens",
        *(f"group {idx}: {_span(names)}" for idx, names in enumerate(_layers(config))),
        f"blocks kept: {after}; while the prompt is computed in one step: {one_step}; with the next"
        f" token: {next_step}",
        f"computed {BLOCK_SIZE} tokens at a time: {', '.join(map(str, by_chunks))}, kept {after}",
        f"most that the admission check counts: {_admission(config)}",
        "vLLM 0.25.1 strides: " + "; ".join(_span(names) for names in _layers(newer)),
    )
    rows = renumbered(tables)
    none: list[int | None] = [None] * 5
    stated_tables = [[0, 1, 2, 3, 4, 5, 6], [*none, 7, 8], [*none, 9, 10]]
    checks = (
        Check("groups", _text_groups(), _layers(config), f"{TEXT}, case 2"),
        Check("block tables", stated_tables, rows, f"{TEXT}, case 2 and its figure"),
        Check("blocks kept", 11, after, f"{TEXT}, case 2"),
        Check("blocks in one step", 21, one_step, MANAGER),
        Check("blocks with the next token", 14, next_step, MANAGER),
        Check("blocks by chunk", [3, 6, 9, 10, 11, 12, 13], by_chunks, MANAGER),
        Check("admission figure", 15, _admission(config), MANAGER),
        Check("groups of 0.25.1", _strided_groups(), _layers(newer), "spec/layout.md 6.5, A"),
    )
    data = {"groups": _layers(config), "tables": rows, "groups_0_25_1": _layers(newer)}

    def draw(figure: Figure) -> None:
        title = f"Block ids of a request of {NUM_TOKENS} tokens, by group"
        labels = [f"{idx}: {_span(names)}" for idx, names in enumerate(_layers(config))]
        draw_block_tables(figure.subplots(), title, labels, rows, -3.3)

    title = "Case 2: 10 full + 20 sliding, one request of 112 tokens"
    return Example("case_2_regular_pattern", title, lines, data, checks, draw, (9.0, 3.0))


def _in_one_step(config: KVCacheConfig) -> tuple[int, int, int, tuple[tuple[int, ...], ...]]:
    request = ToyRequest(config)
    most = request.compute(NUM_TOKENS)
    request.drop_what_no_token_reads()
    kept, tables = request.num_held, request.tables
    return most, kept, request.generate(), tables


def _in_chunks(config: KVCacheConfig) -> list[int]:
    request = ToyRequest(config)
    return [request.compute(BLOCK_SIZE) for _ in range(NUM_TOKENS // BLOCK_SIZE)]


def _admission(config: KVCacheConfig) -> int:
    """Blocks of the whole request where a step takes 16 tokens: windows count what is in flight."""
    limits = replace(LIMITS, max_model_len=NUM_TOKENS, max_num_batched_tokens=BLOCK_SIZE)
    return sum(group.kv_cache_spec.max_blocks(limits) for group in config.kv_cache_groups)


def _layers(config: KVCacheConfig) -> list[list[str]]:
    return [list(group.layer_names) for group in config.kv_cache_groups]


def _text_groups() -> list[list[str]]:
    return [
        [f"full.{idx}" for idx in range(10)],
        [f"sw.{idx}" for idx in range(10)],
        [f"sw.{idx}" for idx in range(10, 20)],
    ]


def _strided_groups() -> list[list[str]]:
    return [
        [f"full.{idx}" for idx in range(10)],
        [f"sw.{idx}" for idx in range(0, 20, 2)],
        [f"sw.{idx}" for idx in range(1, 20, 2)],
    ]


def _span(names: list[str]) -> str:
    """The first layers and the last: enough to see whether they are neighbours."""
    return f"{names[0]}, {names[1]}, ..., {names[-1]}"

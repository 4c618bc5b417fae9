"""Case 1: one full and three sliding layers, a block for one layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.examples.allocation.block_tables import draw_block_tables
from sim.examples.allocation.toy_pool import (
    BLOCK_SIZE,
    NUM_TOKENS,
    TEXT,
    WINDOW,
    ToyRequest,
    renumbered,
    toy_pool,
    toy_specs,
)
from sim.examples.example import Check, Example

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def toy_model() -> Example:
    """Return the example: four layers of one size, each with as many blocks as it needs."""
    config = toy_pool(toy_specs(1, 3))
    request = ToyRequest(config)
    request.compute(NUM_TOKENS)
    request.drop_what_no_token_reads()
    tables = request.tables
    held = [sum(1 for block_id in table if block_id) for table in tables]
    layers = [group.layer_names for group in config.kv_cache_groups]
    page = config.kv_cache_groups[0].kv_cache_spec.page_size_bytes
    hidden = 2 * 64 * 2  # keys and values, one head of 64, two bytes
    lines = (
        f"block size {BLOCK_SIZE}, window {WINDOW}, a request of {NUM_TOKENS} tokens",
        f"page = kv_hidden_size x block_size = {hidden} x {BLOCK_SIZE} = {page} bytes",
        *(f"{names[0]}: {count} blocks" for names, count in zip(layers, held, strict=True)),
    )
    checks = (
        Check("one layer in each group", [1, 1, 1, 1], [len(n) for n in layers], f"{TEXT}, case 1"),
        Check("page in bytes", hidden * BLOCK_SIZE, page, f"{TEXT}, case 1"),
        # 112 tokens fill 7 blocks of 16; the window of 32 before token 112 reads tokens 81 to 111
        Check("blocks of each layer", [7, 2, 2, 2], held, f"{TEXT}, case 1, hand calculation"),
    )
    rows = renumbered(tables)

    def draw(figure: Figure) -> None:
        title = "Each layer has as many blocks of its own as it needs"
        draw_block_tables(figure.subplots(), title, [n[0] for n in layers], rows, -1.2)

    data = {"layers": [list(names) for names in layers], "tables": rows, "page_size_bytes": page}
    return Example(
        "case_1_toy_model", "Case 1: toy model, 1 full + 3 sliding", lines, data, checks, draw,
        (8.0, 3.2),
    )  # fmt: skip

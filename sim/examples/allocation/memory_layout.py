"""The memory layout of case 2: ten buffers, each shared by one layer of every group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.examples.allocation.toy_pool import (
    NUM_BLOCKS,
    NUM_TOKENS,
    TEXT,
    ToyRequest,
    renumbered,
    toy_pool,
    toy_specs,
)
from sim.examples.blocks_drawing import GROUP_COLOURS, Cell, draw_rows, frame, note
from sim.examples.example import Check, Example

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SECTION = f"{TEXT}, Memory Layout"


def memory_layout() -> Example:
    """Return the example: which piece of which buffer holds the request's blocks."""
    config = toy_pool(toy_specs(10, 20))
    request = ToyRequest(config)
    request.compute(NUM_TOKENS)
    request.drop_what_no_token_reads()
    owners = _owners(renumbered(request.tables))
    tensors = config.kv_cache_tensors
    page = config.kv_cache_groups[0].kv_cache_spec.page_size_bytes
    shared_by = [list(tensor.shared_by) for tensor in tensors]
    lines = (
        f"{len(tensors)} buffers of {NUM_BLOCKS} pieces, {page} bytes each; block b is piece b of "
        "every buffer",
        *(f"KVCacheTensor {idx}: {', '.join(names)}" for idx, names in enumerate(shared_by)),
        *(f"blocks of group {group}: {_ids(owners, group)}" for group in range(3)),
    )
    stated = [[f"full.{idx}", f"sw.{idx}", f"sw.{idx + 10}"] for idx in range(10)]
    checks = (
        Check("buffers", 10, len(tensors), SECTION),
        Check("layers of each buffer", stated, shared_by, SECTION),
        Check("bytes of each buffer", [NUM_BLOCKS * page] * 10, [t.size for t in tensors], SECTION),
        Check("group of each block", [0] * 7 + [1] * 2 + [2] * 2, owners, SECTION),
    )

    def draw(figure: Figure) -> None:
        _draw(figure.subplots(), shared_by, owners)

    data = {"shared_by": shared_by, "group_of_block": owners}
    title = "Memory layout of 10 full + 20 sliding layers"
    return Example("memory_layout", title, lines, data, checks, draw, (10.0, 6.4))


def _owners(rows: list[list[int | None]]) -> list[int]:
    """The group of each block, by block id."""
    group_of = {
        number: group for group, row in enumerate(rows) for number in row if number is not None
    }
    return [group_of[number] for number in sorted(group_of)]


def _ids(owners: list[int], group: int) -> str:
    return ", ".join(str(idx) for idx, owner in enumerate(owners) if owner == group)


def _draw(axes: Axes, shared_by: list[list[str]], owners: list[int]) -> None:
    rows = [
        (f"KVCacheTensor {idx}", [*_pieces(names, owners), Cell("...", None)])
        for idx, names in enumerate(shared_by)
    ]
    for block in range(len(owners)):
        axes.text(block + 0.5, -0.05, str(block), ha="center", va="bottom", fontsize=10)
    axes.text(-0.25, -0.05, "block id", ha="right", va="bottom", fontsize=10)
    bottom = draw_rows(axes, rows, font_size=8.5, label_size=10.5)
    text = (
        "each piece: block size x kv_hidden_size bytes, and the layer that keeps its tokens there"
    )
    note(axes, 0, bottom + 0.15, text)
    text = "ids as the text counts them; in the engine block 0 is the null block"
    note(axes, 0, bottom + 0.6, text)
    title = "One block is one piece of each of the ten buffers"
    frame(axes, title, left=-2.6, right=len(owners) + 1.1, bottom=bottom + 1.2)
    axes.set_ylim(bottom + 1.2, -0.7)


def _pieces(names: list[str], owners: list[int]) -> list[Cell]:
    return [Cell(names[group], GROUP_COLOURS[group]) for group in owners]

"""Case 3: Gemma-3-27b, 52 sliding and 10 full layers in seven groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.examples.allocation.toy_pool import TEXT
from sim.examples.blocks_drawing import BLUE, ORANGE, Cell, draw_rows, frame, note
from sim.examples.example import Check, Example
from sim.layout.kv_cache_spec import SlidingWindowSpec
from sim.layout.plan import Layout, LayoutSettings, plan_layout
from sim.models import load_model
from sim.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPEC = "spec/layout.md 6.5"
Groups = list[tuple[str, list[int]]]


def irregular_pattern() -> Example:
    """Return the example by the text's rule, and by that of 0.25.1."""
    text, newer = (_groups(_layout(rule)) for rule in ("min_layers", "vllm"))
    warning = [line for line in _layout("vllm").log_lines if line.startswith("Add ")]
    sliding = [layer for kind, layers in text[1:] for layer in layers]
    lines = (
        "the text: full first, runs of min(52, 10) = 10 layers",
        *_listed(text),
        "vLLM 0.25.1: order of first appearance, every sixth sliding layer, balanced",
        *_listed(newer),
        *warning,
    )
    checks = (
        Check("group sizes by the text", [10, 10, 10, 10, 10, 10, 2], _sizes(text), f"{TEXT}, 3"),
        Check("padding layers by the text", 8, 7 * 10 - sum(_sizes(text)), f"{TEXT}, case 3"),
        Check("full layers", list(range(5, 60, 6)), text[0][1], "models/README.md, Gemma-3"),
        Check("sliding layers in order", sorted(sliding), sliding, f"{TEXT}, case 3"),
        Check("group sizes of 0.25.1", [9, 9, 9, 9, 8, 8, 10], _sizes(newer), SPEC),
        Check("first group of 0.25.1", [0, 7, 14, 21], newer[0][1][:4], SPEC),
        Check(
            "start-up warning",
            ["Add 8 padding layers, may waste at most 15.38% KV cache memory"],
            warning,
            SPEC,
        ),
    )

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        _draw(left, "Original text (min_layers)", text)
        _draw(right, "vLLM 0.25.1", newer)

    data = {"min_layers": [g for _, g in text], "vllm": [g for _, g in newer]}
    title = "Case 3: Gemma-3-27b, 52 sliding + 10 full"
    return Example("case_3_irregular_pattern", title, lines, data, checks, draw, (14.0, 4.2))


def _layout(grouping: str) -> Layout:
    settings = LayoutSettings(
        kv_cache_memory_bytes=20 * GIB, max_num_batched_tokens=8192, grouping=grouping
    )
    return plan_layout(load_model("google/gemma-3-27b-it"), settings)


def _groups(layout: Layout) -> Groups:
    """Kind and layer numbers of each group."""
    return [
        (
            "sliding" if isinstance(group.kv_cache_spec, SlidingWindowSpec) else "full",
            [int(name.removeprefix("L")) for name in group.layer_names],
        )
        for group in layout.kv_cache_config.kv_cache_groups
    ]


def _sizes(groups: Groups) -> list[int]:
    return [len(layers) for _, layers in groups]


def _listed(groups: Groups) -> list[str]:
    return [
        f"  group {idx}: {len(layers):>2} {kind:<7} {', '.join(map(str, layers))}"
        for idx, (kind, layers) in enumerate(groups)
    ]


def _draw(axes: Axes, title: str, groups: Groups) -> None:
    longest = max(_sizes(groups))
    rows = [
        (f"group {idx}", [*_cells(kind, layers), *_padding(longest - len(layers))])
        for idx, (kind, layers) in enumerate(groups)
    ]
    bottom = draw_rows(axes, rows, font_size=10)
    note(axes, 0, bottom + 0.15, "layer numbers; blue full, orange sliding, dashed padding")
    frame(axes, title, left=-2.4, right=longest + 0.1, bottom=bottom + 0.8)


def _cells(kind: str, layers: Sequence[int]) -> list[Cell]:
    return [Cell(str(layer), BLUE if kind == "full" else ORANGE) for layer in layers]


def _padding(count: int) -> list[Cell]:
    return [Cell("", None)] * count

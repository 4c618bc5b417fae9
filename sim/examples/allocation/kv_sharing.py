"""Case 5: gemma-3n, whose last layers read the caches of earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.examples.allocation.toy_pool import TEXT
from sim.examples.blocks_drawing import BLUE, ORANGE, Cell, draw_rows, frame, note
from sim.examples.example import Check, Example
from sim.layout.kv_cache_config import KVCacheGroupSpec
from sim.layout.kv_cache_spec import SlidingWindowSpec
from sim.layout.plan import LayoutSettings, plan_layout
from sim.models import ModelConfig, load_model
from sim.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODEL, NUM_LAYERS = "google/gemma-3n-E4B-it", 35
SPEC = "spec/layout.md 6.7, 13"


def kv_sharing() -> Example:
    """Return the example: 20 layers own a cache, 15 read that of layer 18 or 19."""
    model = load_model(MODEL)
    settings = LayoutSettings(
        kv_cache_memory_bytes=8 * GIB, max_num_batched_tokens=8192, max_model_len=32768
    )
    layout = plan_layout(model, settings)
    groups = layout.kv_cache_config.kv_cache_groups
    targets = {_number(name): _number(to) for name, to in model.kv_shared_target.items()}
    read = sorted(set(targets.values()))
    lines = (
        f"{len(model.layers)} of {NUM_LAYERS} layers own a cache; layers {min(targets)} to "
        f"{max(targets)} read that of layer {read[0]} (sliding) or {read[1]} (full)",
        *(f"group {idx}: {_text(group)}" for idx, group in enumerate(groups)),
        *layout.log_lines,
    )
    checks = (
        Check("layers that own a cache", list(range(20)), _own(model), SPEC),
        Check("layers that share", list(range(20, 35)), sorted(targets), SPEC),
        Check("layers that are read", [18, 19], read, SPEC),
        Check("full layers that share read layer 19", [24, 29, 34], _readers(targets, 19), SPEC),
        Check("group sizes", [4, 4, 4, 4, 4], [len(g.layer_names) for g in groups], SPEC),
        Check("blocks", 65536, layout.kv_cache_config.num_blocks, SPEC),
        Check("tokens", 507919, layout.capacity.tokens, SPEC),
        Check("sharing layers in a group", [], _shared_in(groups, model), f"{TEXT}, case 5"),
    )

    def draw(figure: Figure) -> None:
        _draw(figure.subplots(), targets, groups)

    data = {"targets": targets, "groups": [list(group.layer_names) for group in groups]}
    title = "Case 5: KV sharing in gemma-3n-E4B"
    return Example("case_5_kv_sharing", title, lines, data, checks, draw, (14.0, 4.2))


def _number(name: str) -> int:
    return int(name.removeprefix("L"))


def _own(model: ModelConfig) -> list[int]:
    return [_number(layer.name) for layer in model.layers]


def _readers(targets: dict[int, int], target: int) -> list[int]:
    return sorted(layer for layer, to in targets.items() if to == target)


def _shared_in(groups: tuple[KVCacheGroupSpec, ...], model: ModelConfig) -> list[str]:
    return [name for g in groups for name in g.layer_names if name in model.kv_shared_target]


def _is_sliding(group: KVCacheGroupSpec) -> bool:
    return isinstance(group.kv_cache_spec, SlidingWindowSpec)


def _text(group: KVCacheGroupSpec) -> str:
    kind = "sliding" if _is_sliding(group) else "full"
    return f"{len(group.layer_names)} {kind}: {', '.join(group.layer_names)}"


def _draw(axes: Axes, targets: dict[int, int], groups: tuple[KVCacheGroupSpec, ...]) -> None:
    colours = {
        _number(name): ORANGE if _is_sliding(g) else BLUE for g in groups for name in g.layer_names
    }
    own = [Cell(str(idx), colours[idx]) for idx in sorted(colours)]
    shared = [Cell(str(idx), None) for idx in sorted(targets)]
    draw_rows(axes, [("layers", [*own, *shared])], font_size=9.5)
    for layer, target in targets.items():
        _arrow(axes, layer, target, colours[target])
    top = 3.6
    rows = [
        (
            f"group {idx}",
            [Cell(str(_number(name)), colours[_number(name)]) for name in g.layer_names],
        )
        for idx, g in enumerate(groups)
    ]
    bottom = draw_rows(axes, rows, font_size=9.5, top=top)
    text = (
        "blue full, orange sliding; dashed: no cache of its own, the arrow leads to the layer "
        "whose cache it reads"
    )
    note(axes, 6, top + 0.3, text)
    note(axes, 6, top + 1.3, "groups hold the layers that own a cache, and no other")
    frame(axes, f"{MODEL}: {NUM_LAYERS} layers", left=-2.6, right=35.1, bottom=bottom + 0.1)


def _arrow(axes: Axes, layer: int, target: int, colour: str) -> None:
    axes.annotate(
        "",
        xy=(target + 0.5, 1.0),
        xytext=(layer + 0.5, 1.0),
        arrowprops={
            "arrowstyle": "->",
            "color": colour,
            "linewidth": 1.0,
            "connectionstyle": f"arc3,rad={-0.28 if colour == BLUE else -0.22}",
        },
    )

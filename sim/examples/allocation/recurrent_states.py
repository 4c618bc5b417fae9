"""Case 4: attention blocks that grow until their page covers a recurrent state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.examples.allocation.toy_pool import TEXT
from sim.examples.blocks_drawing import BLUE, GREEN, PADDING, SKY
from sim.examples.example import Check, Example
from sim.layout.kv_cache_spec import MambaSpec
from sim.layout.plan import LayoutSettings, plan_layout
from sim.models import load_model
from sim.units import GIB, KIB, cdiv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KERNEL = 16  # attention blocks are multiples of it
SPEC = "spec/layout.md 3.2"


@dataclass(frozen=True, slots=True)
class StatePages:
    """One model: tokens per attention block, and the bytes of states and pages on one rank.

    multi_layer_block: tokens per block if one page held all attention layers of a group, which
    the text calls work in progress.
    """

    name: str
    block_size: int
    state_bytes: int
    page_bytes: int
    token_bytes: int
    group_size: int
    multi_layer_block: int
    log_lines: tuple[str, ...]

    @property
    def padding_percent(self) -> str:
        """Padding of the state's page against the state, as the engine logs it."""
        return f"{100 * (self.page_bytes - self.state_bytes) / self.state_bytes:.2f}"


MODELS = (
    ("ibm-ai-platform/Bamba-9B-v1", 1, 4096),
    ("MiniMaxAI/MiniMax-Text-01", 8, 1048576),
    ("ai21labs/Jamba-v0.1", 1, 262144),
)


def recurrent_states() -> Example:
    """Return the example for Bamba, MiniMax-Text-01 on 8 GPUs, and Jamba."""
    pages = [state_pages(*model) for model in MODELS]
    bamba, minimax, jamba = pages
    lines = tuple(line for page in pages for line in _lines(page))
    checks = (
        Check("Bamba: block size", 528, bamba.block_size, f"{SPEC}, table"),
        Check("Bamba: state", 2147840, bamba.state_bytes, f"{SPEC}, table"),
        Check("Bamba: padding", "0.69", bamba.padding_percent, f"{SPEC}, table"),
        Check("MiniMax-Text-01: block size", 512, minimax.block_size, f"{SPEC}, table"),
        Check("MiniMax-Text-01: padding", "0.00", minimax.padding_percent, f"{SPEC}, table"),
        Check("Jamba: block size", 80, jamba.block_size, f"{SPEC}, table"),
        Check("Jamba: state", 311296, jamba.state_bytes, f"{SPEC}, table"),
        Check("Jamba: padding", "5.26", jamba.padding_percent, f"{SPEC}, table"),
        # 16 x ceil(M, 16 a k): 2147840 / (16 x 4096 x 3) = 10.9, 262144 / (16 x 512 x 10) = 3.2,
        # 311296 / (16 x 4096 x 4) = 1.2
        Check(
            "block sizes with all attention layers of a group in one page",
            [176, 64, 32],
            [page.multi_layer_block for page in pages],
            f"{TEXT}, case 4, note; hand calculation",
        ),
    )

    def draw(figure: Figure) -> None:
        for axes, page in zip(figure.subplots(1, 3), pages, strict=True):
            _draw(axes, page)

    data = {page.name: {"block_size": page.block_size, "page": page.page_bytes} for page in pages}
    title = "Case 4: recurrent states beside attention"
    return Example("case_4_recurrent_states", title, lines, data, checks, draw, (13.0, 4.6))


def state_pages(name: str, tensor_parallel_size: int, max_model_len: int) -> StatePages:
    """Return what block-size resolution makes of a model with recurrent layers."""
    settings = LayoutSettings(
        kv_cache_memory_bytes=20 * GIB,
        max_num_batched_tokens=8192,
        max_model_len=max_model_len,
        tensor_parallel_size=tensor_parallel_size,
    )
    layout = plan_layout(load_model(name), settings)
    groups = layout.kv_cache_config.kv_cache_groups
    state = next(g.kv_cache_spec for g in groups if isinstance(g.kv_cache_spec, MambaSpec))
    attention, names = next(
        (g.kv_cache_spec, g.layer_names)
        for g in groups
        if not isinstance(g.kv_cache_spec, MambaSpec)
    )
    token_bytes = attention.page_size_bytes // attention.block_size
    return StatePages(
        name=name.partition("/")[2] + (f", TP {tensor_parallel_size}" * (tensor_parallel_size > 1)),
        block_size=attention.block_size,
        state_bytes=state.real_page_size_bytes,
        page_bytes=attention.page_size_bytes,
        token_bytes=token_bytes,
        group_size=len(names),
        multi_layer_block=KERNEL
        * cdiv(state.real_page_size_bytes, KERNEL * token_bytes * len(names)),
        log_lines=tuple(line for line in layout.log_lines if "page size" in line),
    )


def _lines(page: StatePages) -> list[str]:
    return [
        f"{page.name}: state {page.state_bytes:,} bytes, attention {page.token_bytes:,} bytes a "
        f"token and layer",
        *(f"  {line}" for line in page.log_lines),
        f"  work in progress: {page.group_size} attention layers in one page would need blocks of "
        f"{page.multi_layer_block} tokens",
    ]


def _draw(axes: Axes, page: StatePages) -> None:
    labels = [
        f"{KERNEL} tokens\nof attention",
        "state of\none layer",
        f"{page.block_size} tokens\nof attention",
    ]
    small, state, whole = KERNEL * page.token_bytes, page.state_bytes, page.page_bytes
    axes.bar(labels, [small / KIB, state / KIB, whole / KIB], color=[SKY, GREEN, BLUE])
    axes.bar(
        [labels[1]],
        [(whole - state) / KIB],
        bottom=[state / KIB],
        color=PADDING,
        edgecolor="#777777",
        hatch="//",
    )
    axes.set_ylim(0, 1.08 * whole / KIB)
    axes.set_ylabel("bytes of one layer [KiB]")
    axes.set_title(f"{page.name}\n{_said(page)}", loc="left")
    axes.grid(axis="x", visible=False)


def _said(page: StatePages) -> str:
    exact = page.page_bytes == page.state_bytes
    return "no padding" if exact else f"state padded by {page.padding_percent} %"

"""Groups and tensors drawn with characters: which group uses which tensor of a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from sim.units import format_bytes

if TYPE_CHECKING:
    from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
    from sim.layout.plan import Layout

USED, IDLE = "■", "·"
PER_LINE = 64  # tensors side by side
TENSOR_LINES = 6


@dataclass(frozen=True, slots=True)
class _Row:
    """Groups of one kind that use the same tensors."""

    marks: str
    text: str
    first: int
    last: int

    @property
    def label(self) -> str:
        """The group's number, or the first and the last."""
        numbers = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"group {numbers}"


def layout_drawing(layout: Layout) -> str:
    """Return lines of text: for each worker a row for each group, a column for each tensor.

    A block of a group takes its page in each column; where the group has no layer there, the page
    is idle. Groups that look alike share a row. More than 64 tensors continue below.
    """
    parts = [pool_drawing(layout.kv_cache_config)]
    if len(layout.workers) > 1:
        parts = [
            f"worker {idx}\n{pool_drawing(worker.kv_cache_config)}"
            for idx, worker in enumerate(layout.workers)
        ]
    if layout.kv_shared_target:
        parts.append("\n".join(_sharing_lines(layout.kv_shared_target)))
    return "\n\n".join(parts)


def _sharing_lines(targets: Mapping[str, str]) -> list[str]:
    """Layers without a cache, by the layer whose cache they read."""
    readers: dict[str, list[str]] = {}
    for reader, target in targets.items():
        readers.setdefault(target, []).append(reader)
    return [f"cache of {target} also read by: {', '.join(n)}" for target, n in readers.items()]


def pool_drawing(config: KVCacheConfig) -> str:
    """Return the drawing of one worker's pool."""
    if not config.kv_cache_tensors:
        return "no tensors: no layer keeps a cache"
    rows = list(_rows(config))
    width = max(len(row.label) for row in rows)
    lines = [f"one column is one tensor, one row a group ({USED} a layer's page, {IDLE} idle)"]
    for start in range(0, len(config.kv_cache_tensors), PER_LINE):
        part = slice(start, start + PER_LINE)
        lines += ["", *_ruler(config.kv_cache_tensors[part], start, width)]
        lines += [
            f"{row.label:<{width}}  {row.marks[part]}" + (f"  {row.text}" if not start else "")
            for row in rows
        ]
    return "\n".join([*lines, "", *_tensor_lines(config.kv_cache_tensors)])


def _rows(config: KVCacheConfig) -> Iterator[_Row]:
    looks = [
        (_marks(group, config.kv_cache_tensors), _text(group)) for group in config.kv_cache_groups
    ]
    first = 0
    for (marks, text), same in groupby(looks):
        count = len(list(same))
        yield _Row(marks, text, first, first + count - 1)
        first += count


def _marks(group: KVCacheGroupSpec, tensors: Sequence[KVCacheTensor]) -> str:
    own = set(group.layer_names)
    return "".join(USED if own.intersection(tensor.shared_by) else IDLE for tensor in tensors)


def _text(group: KVCacheGroupSpec) -> str:
    spec = group.kv_cache_spec
    window = getattr(spec, "sliding_window", None)
    kind = spec.kind if window is None else f"{spec.kind} {window:,}"
    return f"{len(group.layer_names)} x {kind}, {spec.block_size:,} tokens a block"


def _ruler(tensors: Sequence[KVCacheTensor], start: int, width: int) -> list[str]:
    """Every tenth tensor has its number above its column."""
    text = ""
    for idx in range(len(tensors)):
        if (start + idx) % 10 == 0 and idx >= len(text):
            text = text.ljust(idx) + str(start + idx)
    return [f"{'tensor':<{width}}  {text}"]


def _tensor_lines(tensors: Sequence[KVCacheTensor]) -> list[str]:
    """The first tensors by their layers; the rest in a word."""
    shown = tensors if len(tensors) <= TENSOR_LINES else tensors[: TENSOR_LINES - 1]
    lines = [f"tensor {idx}: {_tensor(tensor)}" for idx, tensor in enumerate(shown)]
    if len(shown) < len(tensors):
        lines.append(f"... and {len(tensors) - len(shown)} more tensors")
    return lines


def _tensor(tensor: KVCacheTensor) -> str:
    names = list(tensor.shared_by)
    layers = ", ".join(names if len(names) <= 8 else [*names[:7], "...", names[-1]])
    place = f" at byte {tensor.offset:,} of each {tensor.block_stride:,}"
    return f"{format_bytes(tensor.size)}{place if tensor.block_stride else ''}: {layers}"

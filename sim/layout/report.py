"""A layout for programs (JSON) and for people (rich renderables)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sim.layout.kv_cache_config import is_bundle
from sim.layout.waste import BlockBytes, block_bytes
from sim.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sim.layout.kv_cache_config import KVCacheGroupSpec, KVCacheTensor
    from sim.layout.plan import Layout
    from sim.layout.pool import WorkerPool

SCHEMA = 2


def layout_json(layout: Layout) -> dict[str, Any]:
    """Return the layout as plain data: lists, dicts, numbers, strings, None. Sizes in bytes.

    ``groups`` are the whole model's; ``tensors`` the first worker's; ``workers`` says for each
    worker its memory and which layers of each group it holds. ``schema`` rises when a name
    changes.
    """
    config = layout.kv_cache_config
    return {
        "schema": SCHEMA,
        "model": layout.model.name,
        "settings": _plain(asdict(layout.settings)),
        "groups": _groups(layout),
        "kv_shared_target": dict(layout.kv_shared_target),
        "tensors": [_tensor(tensor) for tensor in config.kv_cache_tensors],
        "workers": [_worker(worker) for worker in layout.workers],
        "num_blocks": config.num_blocks,
        "bytes_per_block": layout.bytes_per_block,
        "block_sizes": {"scheduler": layout.scheduler_block_size, "hash": layout.hash_block_size},
        "capacity": asdict(layout.capacity),
        "scheduler_capacity": dict(
            zip(("tokens", "concurrency"), layout.scheduler_capacity, strict=True)
        ),
        "waste": dict(layout.waste),
        "log_lines": list(layout.log_lines),
    }


def _plain(value: Any) -> Any:
    """Tuples as lists, so that the data is the same after a round trip."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _tensor(tensor: KVCacheTensor) -> dict[str, Any]:
    return asdict(tensor) | {"shared_by": list(tensor.shared_by)}


def _worker(worker: WorkerPool) -> dict[str, Any]:
    config = worker.kv_cache_config
    return {
        "kv_cache_memory_bytes": worker.memory_bytes,
        "bytes_per_block": worker.bytes_per_block,
        "layers": [list(group.layer_names) for group in config.kv_cache_groups],
        "num_tensors": len(config.kv_cache_tensors),
        "capacity": asdict(worker.capacity),
    }


def _groups(layout: Layout) -> list[dict[str, Any]]:
    parts = block_bytes(layout)
    return [_group(layout, group, part) for group, part in zip(layout.groups, parts, strict=True)]


def _group(layout: Layout, group: KVCacheGroupSpec, part: BlockBytes) -> dict[str, Any]:
    spec, num_layers = group.kv_cache_spec, len(group.layer_names)
    return {
        "kind": spec.kind,
        "is_bundle": is_bundle(group),
        "layers": list(group.layer_names),
        "num_layers": num_layers,
        "padding_layers": layout.num_layers_longest_group - num_layers,
        "block_size": spec.block_size,
        "page_size_bytes": spec.page_size_bytes,
        "real_page_size_bytes": spec.real_page_size_bytes,
        "sliding_window": getattr(spec, "sliding_window", None),
        "attention_chunk_size": getattr(spec, "attention_chunk_size", None),
        "is_eagle_group": group.is_eagle_group,
        "max_blocks_per_request": spec.max_blocks(layout.limits),
        "block_bytes": {
            "layer_padding": part.layer_padding,
            "page_padding": part.page_padding,
            "content": part.content,
        },
    }


def layout_renderables(layout: Layout) -> list[RenderableType]:
    """Return a table of the groups, one of the pool, and the engine's log lines."""
    from rich.text import Text

    return [_group_table(layout), _pool_table(layout), Text("\n".join(layout.log_lines))]


def _group_table(layout: Layout) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"KV cache groups of {escape(layout.model.name)}")
    table.add_column("group", justify="right")
    table.add_column("kind")
    for header in ("layers", "padding layers", "block size", "page", "page padding"):
        table.add_column(header, justify="right")
    table.add_column("blocks per request", justify="right")
    table.add_column("first layers")
    for idx, group in enumerate(_groups(layout)):
        table.add_row(str(idx), *_group_row(group))
    return table


def _group_row(group: dict[str, Any]) -> list[str]:
    page, real = group["page_size_bytes"], group["real_page_size_bytes"]
    names = group["layers"]
    return [
        _kind_text(group),
        str(group["num_layers"]),
        str(group["padding_layers"]),
        f"{group['block_size']:,}",
        format_bytes(page),
        format_bytes(page - real),
        f"{group['max_blocks_per_request']:,}",
        ", ".join(names[:4]) + (", ..." if len(names) > 4 else ""),
    ]


def _kind_text(group: dict[str, Any]) -> str:
    limit = group["sliding_window"] or group["attention_chunk_size"]
    kind = group["kind"] if limit is None else f"{group['kind']} {limit:,}"
    return f"{kind}, bundle" if group["is_bundle"] else kind


def _pool_table(layout: Layout) -> RenderableType:
    from rich.table import Table

    table = Table(title="KV cache pool", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for name, value in _pool_rows(layout):
        table.add_row(name, value)
    return table


def _pool_rows(layout: Layout) -> list[tuple[str, str]]:
    capacity, waste = layout.capacity, layout.waste
    idle, held = waste["request_layer_padding_bytes"], waste["request_bytes"]
    length = layout.limits.max_model_len
    return [
        (_memory_label(layout), format_bytes(waste["kv_memory_bytes"])),
        ("blocks", f"{layout.kv_cache_config.num_blocks:,}"),
        ("bytes per block", format_bytes(layout.bytes_per_block)),
        ("block size (attention)", f"{layout.settings.block_size:,}"),
        ("block size (scheduler, hash)", _pair(layout)),
        ("prefix caching", _caching(layout)),
        ("tokens", f"{capacity.tokens:,}"),
        (f"concurrency at {length:,} tokens", f"{capacity.concurrency:.2f}x"),
        ("blocks per request of that length", f"{capacity.blocks_per_request:,}"),
        ("its share of idle pages", f"{idle / held:.2%}" if held else "-"),
        ("longest model length that fits", f"{capacity.estimated_max_model_len:,}"),
        ("bytes that fill no block", f"{waste['remainder_bytes']:,}"),
    ]


def _memory_label(layout: Layout) -> str:
    count = len(layout.workers)
    return "KV cache memory" if count == 1 else f"KV cache memory of {count} workers"


def _pair(layout: Layout) -> str:
    return f"{layout.scheduler_block_size:,}, {layout.hash_block_size:,}"


def _caching(layout: Layout) -> str:
    state = "on" if layout.enable_prefix_caching else "off"
    if not layout.model.has_recurrent:
        return state
    if layout.enable_prefix_caching:
        return f"{state}, Mamba cache mode {layout.mamba_cache_mode}"
    return f"{state}; --enable-prefix-caching --mamba-cache-mode align turns it on"

"""One page size for all layers: larger blocks where that fits, padding where the backend can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.errors import ConfigError
from sim.layout.kv_cache_spec import AttentionSpec, KVCacheSpec

_CANNOT_PAD = (
    "Layer {name}: page size is not divisible by the maximum page size and cannot be padded. "
    "Padding is only supported for attention layers whose backend indexes KV pages by the block "
    "stride (indexes_kv_by_block_stride is True)."
)
_CANNOT_GROW = (
    "Layer {name}: a page of {page} bytes cannot grow to the largest page of {largest} bytes: "
    "it does not depend on the block size"
)


def equalise_page_sizes(specs: Mapping[str, KVCacheSpec]) -> dict[str, KVCacheSpec]:
    """Return specs whose pages all have the largest page's size.

    A page that divides the largest grows by its block size; any other is padded if its backend
    addresses pages by the block stride. Mutates nothing.

    Raises
    ------
    ConfigError
        A layer whose page can be neither scaled nor padded, in the engine's words.

    Source: spec/layout.md 6.4.
    """
    largest = max(spec.page_size_bytes for spec in specs.values())
    return {name: _with_page(name, spec, largest) for name, spec in specs.items()}


def _with_page(name: str, spec: KVCacheSpec, largest: int) -> KVCacheSpec:
    page = spec.page_size_bytes
    if page == largest:
        return spec
    if largest % page == 0:
        grown = replace(spec, block_size=spec.block_size * (largest // page))
    elif isinstance(spec, AttentionSpec) and spec.indexes_kv_by_block_stride:
        grown = replace(spec, page_size_padded=largest)
    else:
        raise ConfigError.one("model", name, _CANNOT_PAD.format(name=name))
    if grown.page_size_bytes != largest:  # a state, or a page that was padded before
        text = _CANNOT_GROW.format(name=name, page=page, largest=largest)
        raise ConfigError.one("model", name, text)
    return grown

"""From our description of a pool to vLLM's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from sim.errors import ConfigError
from sim.layout.kv_cache_config import KVCacheConfig
from sim.layout.kv_cache_spec import KVCacheSpec
from sim.vllm.names import manager_names

# Flavours that vLLM runs with another one's kernels. It compares them only to tell specs apart.
_FLAVOURS = {"gdn": "GDN_ATTN", "kda": "GDN_ATTN", "lightning": "LINEAR"}
_DTYPES = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "float64"}


def kv_cache_config(ours: KVCacheConfig) -> Any:
    """Return vLLM's ``KVCacheConfig`` of the same pool, with its groups and EAGLE flags.

    Tensors are left out: neither manager nor scheduler looks at them.
    """
    specs = manager_names().specs
    groups = [
        specs.KVCacheGroupSpec(
            list(g.layer_names), kv_cache_spec(g.kv_cache_spec), g.is_eagle_group
        )
        for g in ours.kv_cache_groups
    ]
    return specs.KVCacheConfig(
        num_blocks=ours.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups
    )


def kv_cache_spec(ours: KVCacheSpec) -> Any:
    """Return vLLM's spec of the same kind and the same fields.

    Element sizes become a dtype of that size. Raises ConfigError for a kind that vLLM lacks.
    """
    specs = manager_names().specs
    name = type(ours).__name__
    theirs = getattr(specs, name, None)
    if theirs is None:
        raise ConfigError.one("attention kind", name, "a kind that vLLM has, to compare with it")
    told = {field.name: getattr(ours, field.name) for field in fields(ours)}
    return theirs(**dict(_translated(name, value) for name, value in told.items()))


def _translated(name: str, value: Any) -> tuple[str, Any]:
    translate = _FIELDS.get(name)
    return translate(value) if translate else (name, value)


def _dtype(size: int) -> Any:
    return getattr(manager_names().torch, _DTYPES[size])


def _element_sizes(size: int | tuple[int, ...]) -> tuple[str, Any]:
    if isinstance(size, tuple):
        return "dtypes", tuple(map(_dtype, size))
    return "dtype", _dtype(size)


def _quant_mode(mode: Any) -> tuple[str, Any]:
    return "kv_quant_mode", manager_names().specs.KVQuantMode[mode.name]


def _flavour(name: str) -> tuple[str, Any]:
    known = manager_names().specs.MambaAttentionBackendEnum
    theirs = _FLAVOURS.get(name, name.upper())
    return "mamba_type", known[theirs if theirs in known.__members__ else "CUSTOM"]


def _members(pairs: tuple[tuple[str, KVCacheSpec], ...]) -> tuple[str, Any]:
    return "kv_cache_specs", {name: kv_cache_spec(spec) for name, spec in pairs}


_FIELDS: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "dtype_bytes": _element_sizes,
    "quant_mode": _quant_mode,
    "mamba_type": _flavour,
    "members": _members,
}

"""Names of stored element types and their sizes."""

from __future__ import annotations

from sim.errors import ConfigError

_KV_CACHE_BYTES = {
    "auto": None,
    "float16": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}
_KV_CACHE_LATER = (
    "fp8_ds_mla",
    "fp8_per_token_head",
    "int8_per_token_head",
    "int4_per_token_head",
    "nvfp4",
    "turboquant_k8v4",
    "turboquant_4bit",
    "turboquant_k3v4",
    "turboquant_3bit",
)
_STATE_BYTES = {"auto": None, "float16": 2, "bfloat16": 2, "float32": 4}


def kv_cache_dtype_bytes(name: str, model_dtype_bytes: int) -> int:
    """Return the element size of keys and values. Source: spec/layout.md 2.1.

    Raises
    ------
    ConfigError
        An unknown name, or one of the engine's whose layout does not exist here yet.
    """
    if name in _KV_CACHE_LATER:
        known = ", ".join(_KV_CACHE_BYTES)
        raise ConfigError.one("cache.kv_cache_dtype", name, f"not supported yet; known: {known}")
    return _bytes_of("cache.kv_cache_dtype", name, _KV_CACHE_BYTES) or model_dtype_bytes


def state_dtype_bytes(conv: str, ssm: str, model_dtype_bytes: int) -> dict[str, int]:
    """Return element sizes of a recurrent state by role.

    "auto" is the model's dtype for the convolution, and the convolution's for the state itself.
    Source: spec/layout.md 4.
    """
    conv_bytes = _bytes_of("cache.mamba_cache_dtype", conv, _STATE_BYTES) or model_dtype_bytes
    ssm_bytes = _bytes_of("cache.mamba_ssm_cache_dtype", ssm, _STATE_BYTES) or conv_bytes
    return {"conv": conv_bytes, "ssm": ssm_bytes}


def _bytes_of(key: str, name: str, table: dict[str, int | None]) -> int | None:
    if not isinstance(name, str) or name not in table:
        raise ConfigError.unknown(key, str(name), table)
    return table[name]

"""Names of stored element types: their sizes and quantisation."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import ConfigError
from sim.layout.kv_cache_spec import QuantMode
from sim.units import cdiv

_FP8 = QuantMode.FP8_PER_TENSOR
_KV_CACHE: dict[str, tuple[int | None, QuantMode]] = {
    "auto": (None, QuantMode.NONE),
    "float16": (2, QuantMode.NONE),
    "bfloat16": (2, QuantMode.NONE),
    "fp8": (1, _FP8),
    "fp8_e4m3": (1, _FP8),
    "fp8_e5m2": (1, _FP8),
    "fp8_inc": (1, _FP8),
    "fp8_ds_mla": (1, _FP8),
    "fp8_per_token_head": (1, QuantMode.FP8_PER_TOKEN_HEAD),
    "int8_per_token_head": (1, QuantMode.INT8_PER_TOKEN_HEAD),
    "int4_per_token_head": (1, QuantMode.INT4_PER_TOKEN_HEAD),
    "nvfp4": (1, QuantMode.NVFP4),
    "turboquant_k8v4": (1, QuantMode.NONE),
    "turboquant_4bit": (1, QuantMode.NONE),
    "turboquant_k3v4": (1, QuantMode.NONE),
    "turboquant_3bit": (1, QuantMode.NONE),
}
_TURBOQUANT_BITS = {  # of keys, of values
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit": (4, 4),
    "turboquant_k3v4": (3, 4),
    "turboquant_3bit": (3, 3),
}
_STATE_BYTES = {"auto": None, "float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class KVCacheDtype:
    """What keys and values are stored as; dtype_bytes is the size of a stored element."""

    name: str
    dtype_bytes: int
    quant_mode: QuantMode = QuantMode.NONE

    @property
    def is_turboquant(self) -> bool:
        """True if full attention is stored in TurboQuant slots."""
        return self.name in _TURBOQUANT_BITS


def kv_cache_dtype(name: str, model_dtype_bytes: int) -> KVCacheDtype:
    """Return how keys and values are stored. Source: spec/layout.md 2.1.

    Raises
    ------
    ConfigError
        An unknown name.
    """
    if not isinstance(name, str) or name not in _KV_CACHE:
        raise ConfigError.unknown("cache.kv_cache_dtype", str(name), _KV_CACHE)
    dtype_bytes, mode = _KV_CACHE[name]
    return KVCacheDtype(name, dtype_bytes or model_dtype_bytes, mode)


def turboquant_slot_bytes(name: str, head_size: int) -> int:
    """Return the bytes of one token's key and value of one head, rounded up to even.

    Keys of 8 bits need no scale; others carry two bytes, values four. Source: spec/layout.md 2.2.

    >>> turboquant_slot_bytes("turboquant_k8v4", 128), turboquant_slot_bytes("turboquant_3bit", 128)
    (196, 102)
    """
    key_bits, value_bits = _TURBOQUANT_BITS[name]
    key = head_size if key_bits == 8 else cdiv(head_size * key_bits, 8) + 2
    value = cdiv(head_size * value_bits, 8) + 4
    return cdiv(key + value, 2) * 2


def state_dtype_bytes(
    conv: str, ssm: str, model_dtype_bytes: int, model_ssm: str | None = None
) -> dict[str, int]:
    """Return element sizes of a recurrent state by role.

    "auto" is the model's dtype for the convolution; for the state itself it is what the model
    asks for (``model_ssm``), else the convolution's. Source: spec/layout.md 3.0, 4.
    """
    conv_bytes = _bytes_of("cache.mamba_cache_dtype", conv) or model_dtype_bytes
    ssm_bytes = _bytes_of("cache.mamba_ssm_cache_dtype", ssm)
    if ssm_bytes is None and model_ssm is not None:
        ssm_bytes = _bytes_of("mamba_ssm_cache_dtype", model_ssm)
    return {"conv": conv_bytes, "ssm": ssm_bytes or conv_bytes}


def _bytes_of(key: str, name: str) -> int | None:
    if not isinstance(name, str) or name not in _STATE_BYTES:
        raise ConfigError.unknown(key, str(name), _STATE_BYTES)
    return _STATE_BYTES[name]

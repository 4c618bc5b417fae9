"""Specs and layouts for the tests: keyword-only, smallest legal defaults."""

from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    MambaSpec,
    MemoryLimits,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
)
from sim.layout.plan import LayoutSettings, plan_layout, plan_pool
from sim.models import load_model

GIB = 2**30

HEADS = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
LATENT = {"block_size": 64, "num_kv_heads": 1, "head_size": 576, "dtype_bytes": 2}


def full(**changes):
    return FullAttentionSpec(**(HEADS | changes))


def sliding(**changes):
    return SlidingWindowSpec(**({"sliding_window": 1024} | HEADS | changes))


def chunked(**changes):
    return ChunkedLocalAttentionSpec(**({"attention_chunk_size": 8192} | HEADS | changes))


def cross(**changes):
    return CrossAttentionSpec(**(HEADS | changes))


def turboquant(**changes):
    fields = {"tq_slot_size": 196, "indexes_kv_by_block_stride": False}
    return TQFullAttentionSpec(**(HEADS | {"dtype_bytes": 1} | fields | changes))


def rswa(**changes):
    return RSWASpec(**({"rswa_window": 1024} | HEADS | changes))


def sink(**changes):
    return SinkFullAttentionSpec(**({"sink_len": 16} | HEADS | changes))


def mla(**changes):
    return MLAAttentionSpec(**({"cache_dtype_str": "auto"} | LATENT | changes))


def hidden(**changes):
    fields = {"block_size": 16, "num_kv_heads": 4, "head_size": 2048, "dtype_bytes": 2}
    return HiddenStateCacheSpec(**(fields | changes))


def sliding_mla(**changes):
    fields = {"block_size": 4, "num_kv_heads": 1, "head_size": 512, "dtype_bytes": 2}
    return SlidingWindowMLASpec(**({"sliding_window": 8} | fields | changes))


def mamba(**changes):
    fields = {"block_size": 16, "shapes": ((3, 8192), (8192, 16)), "dtype_bytes": (2, 2)}
    return MambaSpec(**(fields | changes))


def limits(max_model_len=32768, max_num_batched_tokens=8192, **changes):
    return MemoryLimits(max_model_len, max_num_batched_tokens, **changes)


def stack(prefix, spec, count):
    return {f"{prefix}{idx}": spec for idx in range(count)}


def settings(**changes):
    fields = {"kv_cache_memory_bytes": 20 * GIB, "max_num_batched_tokens": 8192}
    return LayoutSettings(**(fields | changes))


def plan(model, **changes):
    return plan_layout(load_model(model), settings(**changes))


def pool(specs, bound=None, **changes):
    """The pools of specs; the estimated length is bounded by the length itself."""
    bound = bound or limits()
    return plan_pool(specs, settings(**changes), bound, bound.max_model_len)


def shape(groups):
    """(kind, layers, block size) of each group."""
    return [(g.kv_cache_spec.kind, len(g.layer_names), g.kv_cache_spec.block_size) for g in groups]

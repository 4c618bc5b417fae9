"""Specs and layouts for the tests: keyword-only, smallest legal defaults."""

from sim.layout.kv_cache_spec import FullAttentionSpec, MambaSpec, MemoryLimits, SlidingWindowSpec
from sim.layout.plan import LayoutSettings, plan_layout
from sim.models import load_model

GIB = 2**30


def full(**changes):
    fields = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
    return FullAttentionSpec(**(fields | changes))


def sliding(**changes):
    fields = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
    return SlidingWindowSpec(**({"sliding_window": 1024} | fields | changes))


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

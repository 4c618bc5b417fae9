"""Buckets and specs for the grouping tests: one page size, smallest legal defaults."""

from fractions import Fraction

from sim.layout.grouping import Bucket
from sim.layout.kv_cache_spec import FullAttentionSpec, MambaSpec, MemoryLimits, SlidingWindowSpec

PAGE = 65536  # 16 tokens x 8 heads x (128 + 128) x 2 bytes


def full(**changes):
    fields = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
    return FullAttentionSpec(**(fields | changes))


def sliding(**changes):
    fields = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
    return SlidingWindowSpec(**({"sliding_window": 1024} | fields | changes))


def mamba(**changes):
    fields = {"block_size": 16, "shapes": ((3, 8192), (8192, 16)), "dtype_bytes": (2, 2)}
    return MambaSpec(**(fields | changes))


def limits(max_model_len=131072, max_num_batched_tokens=8192, **changes):
    return MemoryLimits(max_model_len, max_num_batched_tokens, **changes)


def stack(prefix, spec, count):
    return {f"{prefix}{idx}": spec for idx in range(count)}


def named(idx, spec, count, blocks=1):
    names = tuple(f"bucket{idx}.{n}" for n in range(count))
    return Bucket(spec, names, Fraction(blocks))


def buckets_of(*sizes, blocks=None):
    """Return buckets of these sizes and equal pages, each of another spec, none of them full."""
    weights = blocks or [1] * len(sizes)
    return [
        named(idx, sliding(sliding_window=1024 + idx), size, weight)
        for idx, (size, weight) in enumerate(zip(sizes, weights, strict=True))
    ]


def lengths_of(plan):
    return [len(group) for group in plan.groups]


def padding_slots(plan):
    """Missing layers against the longest real group."""
    sizes = lengths_of(plan)
    return len(sizes) * max(sizes) - sum(sizes)

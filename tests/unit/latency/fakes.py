"""A small model, device and layout with round numbers, so that times can be worked out by hand."""

from types import SimpleNamespace

from sim.hardware import Hardware
from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import FullAttentionSpec, MambaSpec, SlidingWindowSpec

HEADS = {"block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype_bytes": 2}
FULL = FullAttentionSpec(**HEADS)
SLIDING = SlidingWindowSpec(**HEADS, sliding_window=4)
STATE = MambaSpec(block_size=64, shapes=((10,), (20,)), dtype_bytes=(2, 4))


def make_model(*, total=1000, active=1000, heads=2, embedding=0, head=0, stored=None):
    dims = SimpleNamespace(
        num_parameters_total=total,
        num_parameters_active=active,
        num_attention_heads=heads,
        embedding_parameters=embedding,
        head_parameters=head,
        weight_bytes_per_parameter=stored,
    )
    return SimpleNamespace(dims=dims, dtype_bytes=2)


def make_hardware(*, flops=1e9, bandwidth=1e9, efficiency=1.0):
    return Hardware(
        name="toy",
        description="round numbers",
        flops_per_s={"bf16": flops, "fp8": 2 * flops},
        bytes_per_s=bandwidth,
        memory_bytes=2**30,
        compute_efficiency=efficiency,
        memory_efficiency=efficiency,
        sources=["none"],
        assumptions=["none"],
    )


def make_layout(*groups):
    """Groups given as (spec, number of layers)."""
    made = [
        KVCacheGroupSpec(tuple(f"{g}.{n}" for n in range(num)), spec)
        for g, (spec, num) in enumerate(groups)
    ]
    config = KVCacheConfig(10, (), tuple(made))
    return SimpleNamespace(
        kv_cache_config=config, workers=[SimpleNamespace(kv_cache_config=config)]
    )

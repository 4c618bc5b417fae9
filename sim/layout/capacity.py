"""How much fits: admission check, longest model length, tokens, concurrency, log lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.errors import ConfigError
from sim.layout.kv_cache_config import KVCacheGroupSpec, bytes_per_block
from sim.layout.kv_cache_spec import MemoryLimits
from sim.profiles import Profile
from sim.units import cdiv, gib_text

MEMORY_KEY = "cache.kv_cache_memory_bytes"
_MORE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
NO_MEMORY = (
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
    "initializing the engine (this flag also controls CPU memory reservation on the CPU backend, "
    f"despite its name). {_MORE}"
)

Groups = Sequence[KVCacheGroupSpec]


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a pool serves if every request has the maximum length.

    tokens and concurrency as the engine logs them since 0.21; tokens_before_0_21 by the older
    formula. blocks_per_request and admission_bytes: what one request of the maximum length may
    hold. estimated_max_model_len: the longest length up to the model's own that passes the
    admission check. Source: spec/layout.md 8, 9, 15.4.
    """

    tokens: int
    tokens_before_0_21: int
    concurrency: float
    blocks_per_request: int
    admission_bytes: int
    estimated_max_model_len: int


def admission_bytes(groups: Groups, limits: MemoryLimits) -> int:
    """Return the bytes that one request of the maximum length needs, each group rounded up."""
    blocks = sum(group.kv_cache_spec.max_blocks(limits) for group in groups)
    return blocks * bytes_per_block(groups)


def blocks_per_request(groups: Groups, limits: MemoryLimits) -> int:
    """Return the blocks of one request of the maximum length, rounded up over all groups."""
    total = sum(group.kv_cache_spec.max_memory_usage_bytes(limits) for group in groups)
    return cdiv(total, groups[0].kv_cache_spec.page_size_bytes)


def longest_model_len(groups: Groups, limits: MemoryLimits, memory_bytes: int, upper: int) -> int:
    """Return the longest length of [1, upper] that passes admission, 0 if not even 1 does.

    Bisection: the need does not fall as the length grows. Source: spec/layout.md 8.3.
    """
    low, high = 0, upper  # low passes (0 trivially), everything above high fails
    while low < high:
        middle = (low + high + 1) // 2
        need = admission_bytes(groups, replace(limits, max_model_len=middle))
        low, high = (middle, high) if need <= memory_bytes else (low, middle - 1)
    return low


def check_admission(groups: Groups, limits: MemoryLimits, memory_bytes: int) -> None:
    """Raise a ConfigError in the engine's words if one request of the maximum length cannot fit.

    A need equal to the memory passes, although one block is the null block.
    Source: spec/layout.md 8.4.
    """
    if memory_bytes <= 0:
        raise ConfigError.one(MEMORY_KEY, memory_bytes, NO_MEMORY)
    need = admission_bytes(groups, limits)
    if need > memory_bytes:
        length = longest_model_len(groups, limits, memory_bytes, limits.max_model_len)
        text = _refusal(limits.max_model_len, need, memory_bytes, length)
        raise ConfigError.one(MEMORY_KEY, memory_bytes, text)


def _refusal(max_model_len: int, need: int, memory_bytes: int, estimate: int) -> str:
    """The engine's text; its unbalanced parenthesis is real."""
    estimated = (
        f"Based on the available memory, the estimated maximum model length is {estimate}. "
        if estimate
        else ""
    )
    return (
        f"To serve at least one request with the model's max seq len ({max_model_len}), "
        f"({gib_text(need)} GiB KV cache is needed, which is larger than the available KV cache "
        f"memory ({gib_text(memory_bytes)} GiB). {estimated}"
        "Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU "
        "backend) or decreasing `max_model_len` when initializing the engine. "
        f"{_MORE}"
    )


def capacity_of(
    groups: Groups,
    num_blocks: int,
    memory_bytes: int,
    limits: MemoryLimits,
    longest: int,
    profile: Profile,
) -> Capacity:
    """Return the capacity of a pool; ``longest`` bounds the estimated length."""
    per_request = blocks_per_request(groups, limits)
    concurrency, tokens = profile.token_capacity(num_blocks, per_request, limits.max_model_len)
    smallest_block = min(group.kv_cache_spec.block_size for group in groups)
    return Capacity(
        tokens=tokens,
        tokens_before_0_21=num_blocks // len(groups) * smallest_block,
        concurrency=concurrency,
        blocks_per_request=per_request,
        admission_bytes=admission_bytes(groups, limits),
        estimated_max_model_len=longest_model_len(groups, limits, memory_bytes, longest),
    )


def capacity_lines(capacity: Capacity, max_model_len: int) -> list[str]:
    """Return the two start-up lines. Source: spec/layout.md 9."""
    return [
        f"GPU KV cache size: {capacity.tokens:,} tokens",
        f"Maximum concurrency for {max_model_len:,} tokens per request: "
        f"{capacity.concurrency:.2f}x",
    ]

"""How much fits: admission check, longest model length, tokens, concurrency, log lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.errors import ConfigError
from sim.layout.kv_cache_config import Groups, bytes_per_block, is_single_bundle
from sim.layout.kv_cache_spec import MemoryLimits, UniformTypeKVCacheSpecs
from sim.profiles import Profile
from sim.units import cdiv, gib_text

MEMORY_KEY = "cache.kv_cache_memory_bytes"
_MORE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
NO_MEMORY = (
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
    "initializing the engine (this flag also controls CPU memory reservation on the CPU backend, "
    f"despite its name). {_MORE}"
)
CANNOT_AUTO_FIT = (
    "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. "
    "Try increasing `gpu_memory_utilization`."
)


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
    """Return the bytes that one request of the maximum length needs. Source: spec/layout.md 8.2.

    One bundle: the sum of its layers' own maxima. Several bundles: the blocks of all groups, each
    charged the widest group's tuples of the first group's page sizes. Otherwise the blocks of all
    groups, each rounded up, of full width.
    """
    if not groups:
        return 0
    bundles = [s for g in groups if isinstance(s := g.kv_cache_spec, UniformTypeKVCacheSpecs)]
    if is_single_bundle(groups):
        return bundles[0].need_bytes(limits)
    blocks = sum(group.kv_cache_spec.max_blocks(limits) for group in groups)
    if len(bundles) < len(groups):
        return blocks * bytes_per_block(groups)
    pages = {spec.page_size_bytes for spec in bundles[0].count_by_spec}
    return max(bundle.num_tuples for bundle in bundles) * blocks * sum(pages)


def blocks_per_request(groups: Groups, limits: MemoryLimits) -> int:
    """Return the blocks of one request of the maximum length, rounded up over all groups.

    With several bundles this mixes pages of different sizes, as the engine's log line does.
    Source: spec/layout.md 9.
    """
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

    A need equal to the memory passes, although one block is the null block. Without groups there
    is nothing to check. Source: spec/layout.md 8.4, 15.18.
    """
    if not groups:
        return
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


def auto_fit(
    groups_by_worker: Sequence[Groups], memory_by_worker: Sequence[int], limits: MemoryLimits
) -> tuple[int, str]:
    """Return the longest length up to ``limits.max_model_len`` that all workers can serve.

    And the log line about it; of several workers the first with the least counts.

    Raises
    ------
    ConfigError
        Not even one token fits, in the engine's words.

    Source: spec/layout.md 8.3.
    """
    longest = limits.max_model_len
    if not any(groups_by_worker):
        text = "Auto-fit max_model_len: attention-free model, using derived max_model_len="
        return longest, f"{text}{longest}"
    pairs = list(zip(groups_by_worker, memory_by_worker, strict=True))
    fits = [longest_model_len(groups, limits, memory, longest) for groups, memory in pairs]
    length = min(fits)
    if length <= 0:
        raise ConfigError.one("scheduler.max_model_len", -1, CANNOT_AUTO_FIT)
    if length == longest:
        text = f"full model context length {longest} fits in available GPU memory"
    else:
        memory = gib_text(memory_by_worker[fits.index(length)])
        text = (
            f"reduced from {longest} to {length} to fit in available GPU memory "
            f"({memory} GiB available for KV cache)"
        )
    return length, f"Auto-fit max_model_len: {text}"


def capacity_of(
    groups: Groups,
    num_blocks: int,
    memory_bytes: int,
    limits: MemoryLimits,
    longest: int,
    profile: Profile,
) -> Capacity:
    """Return the capacity of a pool; ``longest`` bounds the estimated length.

    Without groups nothing limits the number of requests, and all numbers but the length are 0.
    """
    if not groups:
        return Capacity(0, 0, 0.0, 0, 0, longest)
    concurrency, tokens, per_request = pool_capacity(groups, num_blocks, limits, profile)
    smallest_block = min(group.kv_cache_spec.block_size for group in groups)
    return Capacity(
        tokens=tokens,
        tokens_before_0_21=num_blocks // len(groups) * smallest_block,
        concurrency=concurrency,
        blocks_per_request=per_request,
        admission_bytes=admission_bytes(groups, limits),
        estimated_max_model_len=longest_model_len(groups, limits, memory_bytes, longest),
    )


def pool_capacity(
    groups: Groups, num_blocks: int, limits: MemoryLimits, profile: Profile
) -> tuple[float, int, int]:
    """Return concurrency, tokens and the blocks of one request, by the engine's formula."""
    per_request = max(blocks_per_request(groups, limits), 1)
    return (*profile.token_capacity(num_blocks, per_request, limits.max_model_len), per_request)


def capacity_lines(capacity: Capacity, max_model_len: int) -> list[str]:
    """Return the two start-up lines. Source: spec/layout.md 9."""
    return [
        f"GPU KV cache size: {capacity.tokens:,} tokens",
        f"Maximum concurrency for {max_model_len:,} tokens per request: "
        f"{capacity.concurrency:.2f}x",
    ]

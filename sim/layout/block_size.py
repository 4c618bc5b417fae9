"""Block sizes: of attention, of recurrent states, of the scheduler and of prefix hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm

from sim.errors import ConfigError, Problem
from sim.layout.backends import AttentionBackend
from sim.layout.kv_cache_config import KVCacheGroupSpec
from sim.layout.kv_cache_spec import MambaSpec
from sim.units import cdiv

_RAISED = (
    "Setting attention block size to {block_size} tokens to ensure that attention page size is >= "
    "mamba page size."
)
_PADDED = (
    "Padding mamba page size by {percent:.2f}% to ensure that mamba page size and attention page "
    "size are exactly equal."
)

_COVERED = (
    "Setting attention block size to {block_size} tokens so the quantized primary KV page covers "
    "the higher-precision padded-spec page."
)
_NO_CONTEXT_PARALLEL = (
    "Hybrid KV cache groups with multiple block sizes do not support context parallelism "
    "(dcp_world_size/pcp_world_size > 1)."
)


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Tokens per block before pages are made equal, and padded sizes of pages.

    mamba_page_size_padded in bytes, None where the state fills its page or nothing is padded.
    window_page_size_padded in bytes, None unless some layers keep the model's dtype.
    """

    block_size: int
    mamba_block_size: int
    mamba_page_size_padded: int | None = None
    window_page_size_padded: int | None = None
    log_lines: tuple[str, ...] = ()


def preferred_block_size(
    user: int | None, default: int, backend: AttentionBackend | None
) -> tuple[int, tuple[str, ...]]:
    """Return the cache block size before alignment, and what the log says about it.

    The user's, else what the backend of the first attention layer prefers; without attention the
    default. Source: spec/layout.md 3.1.
    """
    if user is not None or backend is None:
        return default if user is None else user, ()
    size = backend.preferred(default)
    line = f"Setting kv cache block size to {size} for {backend.name} backend."
    return size, () if size == default else (line,)


def recurrent_block_size(
    user: int | None, block_size: int, max_model_len: int, *, enable_prefix_caching: bool
) -> int:
    """Return the tokens per recurrent block before alignment. Source: spec/layout.md 3.0.

    Without prefix caching one block holds a whole request, and the user may not say otherwise.
    """
    if enable_prefix_caching:
        return block_size if user is None else user
    if user not in (None, max_model_len):
        text = "--mamba-block-size can only be set with --enable-prefix-caching"
        raise ConfigError.one("cache.mamba_block_size", user, text)
    return max_model_len


def align_pages(
    sizes: BlockSizes,
    token_bytes: int,
    state_bytes: int,
    kernel: int,
    mode: str,
    state_tokens: int = 1,
) -> BlockSizes:
    """Return sizes with which an attention page covers a recurrent state.

    The attention block grows to the next multiple of max(kernel, block size) whose page holds the
    state, and the state's page is padded to that page.

    Parameters
    ----------
    token_bytes : one token's page in one attention layer
    state_bytes : state of one recurrent layer, unpadded; 0 changes nothing
    mode : with ``align`` both kinds get the same block size; with ``all`` a block is a multiple of
        ``state_tokens`` too
    state_tokens : the user's mamba_block_size, or the model's chunk size; for ``all`` only

    Source: spec/layout.md 3.2.
    """
    if state_bytes == 0:
        return sizes
    step = max(kernel, sizes.block_size)
    if mode == "all":
        step = lcm(state_tokens, step)
    needed = step * cdiv(cdiv(state_bytes, token_bytes), step)
    lines = list(sizes.log_lines)
    if sizes.block_size < needed:
        lines.append(_RAISED.format(block_size=needed))
    block_size = max(sizes.block_size, needed)
    recurrent = {"align": block_size, "all": needed}.get(mode, sizes.mamba_block_size)
    page = block_size * token_bytes
    if page != state_bytes:
        lines.append(_PADDED.format(percent=100 * (page - state_bytes) / state_bytes))
    return replace(
        sizes,
        block_size=block_size,
        mamba_block_size=recurrent,
        mamba_page_size_padded=page if page != state_bytes else None,
        log_lines=tuple(lines),
    )


def cover_wide_pages(
    sizes: BlockSizes, token_bytes: int, wide_token_bytes: int, kernel: int
) -> BlockSizes:
    """Return sizes with which a quantised page covers a page of layers that are not quantised.

    Windowed layers are then padded to that page. The recurrent block size stays as it was.

    Parameters
    ----------
    token_bytes, wide_token_bytes : one token's page at the cache's dtype and at the model's

    Source: spec/layout.md 3.3.
    """
    if wide_token_bytes < token_bytes:
        allowed = f"at least the {token_bytes} bytes of the cache's dtype"
        raise ConfigError.one("kv_cache_dtype_skip_layers", f"{wide_token_bytes} bytes", allowed)
    if wide_token_bytes == token_bytes:
        return sizes
    needed = max(wide_token_bytes * kernel, sizes.mamba_page_size_padded or 0)
    step = max(kernel, sizes.block_size)
    block_size = max(sizes.block_size, step * cdiv(needed, step * token_bytes))
    lines = list(sizes.log_lines)
    if block_size != sizes.block_size:
        lines.append(_COVERED.format(block_size=block_size))
    shared = block_size * token_bytes
    return replace(
        sizes,
        block_size=block_size,
        mamba_page_size_padded=shared if sizes.mamba_page_size_padded else None,
        window_page_size_padded=shared,
        log_lines=tuple(lines),
    )


def scheduler_and_hash_block_size(
    groups: Sequence[KVCacheGroupSpec],
    hash_block_size: int | None = None,
    *,
    enable_prefix_caching: bool,
    context_parallel_size: int = 1,
    default: int = 1,
) -> tuple[int, int]:
    """Return the tokens that the scheduler's hits are multiples of, and those of one prefix hash.

    One group: its block size on all ranks that share a sequence, and a hash block size is ignored;
    without groups ``default`` takes its place. Several: the least common multiple, and the
    greatest common divisor where prefixes are cached and every recurrent block has the smallest
    block's size.

    Raises
    ------
    ConfigError
        A hash block size that does not divide every group's, or several groups where ranks share
        a sequence; in the engine's words.

    Source: spec/layout.md 10, 15.14.
    """
    sizes = [group.kv_cache_spec.block_size for group in groups]
    if len(sizes) <= 1:
        size = (sizes[0] if sizes else default) * context_parallel_size
        return size, size
    if context_parallel_size != 1:
        key = "decode_context_parallel_size"
        raise ConfigError.one(key, context_parallel_size, _NO_CONTEXT_PARALLEL)
    scheduler = lcm(*sizes)
    specs = [group.kv_cache_spec for group in groups]
    uneven = any(isinstance(s, MambaSpec) and s.block_size != min(sizes) for s in specs)
    if not enable_prefix_caching or uneven:
        return scheduler, scheduler
    chosen = gcd(*sizes) if hash_block_size is None else hash_block_size
    if any(size % chosen for size in sizes):
        text = (
            f"Invalid hash_block_size={chosen}; all KV cache group block sizes must be divisible "
            f"by hash_block_size. Got group block sizes={sizes}."
        )
        raise ConfigError.one("cache.hash_block_size", chosen, text)
    return scheduler, chosen


def check_align(
    block_size: int,
    max_num_batched_tokens: int,
    long_prefill_token_threshold: int = 0,
    *,
    enable_chunked_prefill: bool = True,
) -> None:
    """Raise a ConfigError unless steps can end at block boundaries, as mode ``align`` needs.

    ``block_size`` is the smallest group's. A threshold of 0 sets no limit.
    Source: spec/layout.md 10.3, 3.0.
    """
    problems = []
    at_least = f"at least the block size of {block_size} with --mamba-cache-mode align"
    if block_size > max_num_batched_tokens:
        key = "scheduler.max_num_batched_tokens"
        problems.append(Problem(key, max_num_batched_tokens, at_least))
    if 0 < long_prefill_token_threshold < block_size:
        key = "scheduler.long_prefill_token_threshold"
        problems.append(Problem(key, long_prefill_token_threshold, f"0, or {at_least}"))
    if not enable_chunked_prefill:
        allowed = "true with --mamba-cache-mode align"
        problems.append(Problem("scheduler.enable_chunked_prefill", False, allowed))
    if problems:
        raise ConfigError(problems)

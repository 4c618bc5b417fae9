"""The compiled half of the split of prefill chunks in Mamba mode ``align``."""

from __future__ import annotations

from sim.jit import compiled


@compiled
def block_aligned_split(request, block_size, num_computed, num_new, num_uncached_common):
    """Shorten a prefill chunk so that it ends on a block boundary; may return 0."""
    if num_computed >= max(request.num_prompt_tokens, request.num_tokens - 1):
        return num_new
    last = request.num_tokens // block_size * block_size
    end = num_computed + num_new
    if end < last:
        num_new = num_new // block_size * block_size
    elif num_computed < last < end:
        num_new = last - num_computed
    if num_uncached_common >= block_size and num_new > num_uncached_common:
        num_new = num_uncached_common // block_size * block_size
    return num_new

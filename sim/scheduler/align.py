"""Where prefill chunks end in Mamba mode ``align``."""

from __future__ import annotations

from sim.request import Request


def block_aligned_split(
    request: Request,
    block_size: int,
    num_computed: int,
    num_new: int,
    num_uncached_common: int = 0,
    use_eagle: bool = False,
) -> int:
    """Shorten a prefill chunk so that it ends on a block boundary, where a state is kept.

    num_uncached_common : tokens beyond the hit that other groups know to be shared; the state
    at their end is worth a checkpoint. May return 0: nothing this step.
    Source: spec/manager.md 6.8.
    """
    if num_computed >= max(request.num_prompt_tokens, request.num_tokens - 1):
        return num_new
    last = request.num_tokens // block_size * block_size
    if use_eagle:
        last = max(last - block_size, 0)
    end = num_computed + num_new
    if end < last:
        num_new = num_new // block_size * block_size
    elif num_computed < last < end:
        num_new = last - num_computed
    if num_uncached_common >= block_size and num_new > num_uncached_common:
        num_new = num_uncached_common // block_size * block_size
    return num_new

"""The compiled half of the coordinator of one group."""

from __future__ import annotations

from sim.core.attention import (
    chunked_local_compiled,
    full_compiled,
    mamba_compiled,
    sliding_window_compiled,
)
from sim.core.kv_cache_state_compiled import CHUNKED_LOCAL, FULL, SLIDING_WINDOW
from sim.jit import compiled

_find_chunked_local = chunked_local_compiled.find_longest_cache_hit
_find_full = full_compiled.find_longest_cache_hit
_find_mamba = mamba_compiled.find_longest_cache_hit
_find_sliding_window = sliding_window_compiled.find_longest_cache_hit


@compiled
def find_longest_cache_hit(m, entry, request, max_length):
    """Ask the kind of an entry for its hit below a bound; return it in tokens."""
    group, alignment = m.groups[m.members[entry, 0]], m.config[0].alignment_tokens
    if group.kind == FULL:
        blocks = _find_full(m, entry, request, max_length, alignment)
    elif group.kind == SLIDING_WINDOW:
        blocks = _find_sliding_window(m, entry, request, max_length, alignment)
    elif group.kind == CHUNKED_LOCAL:
        blocks = _find_chunked_local(m, entry, request, max_length, alignment)
    else:
        blocks = _find_mamba(m, entry, request, max_length, alignment)
    return blocks * group.block_size

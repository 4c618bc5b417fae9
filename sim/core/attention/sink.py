"""Attention sinks: full attention behind blocks that every request reads."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from sim.core.attention.full import FullAttentionManager
from sim.errors import ConfigError

_Q2 = (
    "vLLM 0.25.1 cannot start it: its manager of attention sinks cannot be built (Q2); "
    "mended with compat `fixed` or `Q2`"
)


class SinkFullAttentionManager(FullAttentionManager):
    """Takes the blocks of the sinks from the head of the queue when it is built, for ever.

    Source: spec/manager.md 3.8, Q2: refused unless that is mended.
    Deviation: the sink blocks have a holder, this manager, so that a recount of the pool holds.
    """

    def __init__(self, kv_cache_spec: Any, *args: Any, **kwargs: Any):
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.permanent_blocks = self._take(kv_cache_spec.sink_len)

    @classmethod
    def check_spec(cls, kv_cache_spec: Any, fixes: Set[str]) -> None:
        """Refuse as the reference does, unless that is mended."""
        if "Q2" not in fixes:
            raise ConfigError.one("attention kind", type(kv_cache_spec).__name__, _Q2)

    def _take(self, sink_len: int) -> tuple[int, ...]:
        pool, size = self.block_pool, self.block_size
        if sink_len < 1 or sink_len % size:
            raise ConfigError.one("sink_len", sink_len, f"a positive multiple of {size}")
        count = sink_len // size
        if count > pool.get_num_free_blocks():
            allowed = f"at most {pool.get_num_free_blocks() * size}, the pool's tokens"
            raise ConfigError.one("sink_len", sink_len, allowed)
        pool.num_permanent_blocks += count
        return tuple(pool.get_new_blocks(count, self.kv_cache_group_id))

"""The compiled server of one request at a time."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.admission import Admission
from sim.core.block_pool_compiled import new_pool
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.kv_cache_state_compiled import (
    KINDS,
    Manager,
    new_manager,
    with_entries,
    with_identities,
)
from sim.curve.blocks import Requests
from sim.curve.serial_compiled import Chunks, Lengths, serve_batch
from sim.jit import cache_dir
from sim.request import Request
from sim.scheduler.limits import SchedulerLimits


def has_compiled_half(manager: KVCacheManager) -> bool:
    """Return whether every kind of group of a manager has a compiled half."""
    return all(type(single) in KINDS for single in manager.coordinator.single_type_managers)


def is_cached() -> bool:
    """Return whether the loops of this server lie compiled on disk."""
    return any(cache_dir().rglob(f"*{serve_batch.__name__}*.nbi"))


@dataclass(frozen=True, slots=True)
class _Pool:
    """A pool of which only the size is asked."""

    num_gpu_blocks: int


class CompiledServer:
    """Serves with the compiled manager; see ``ManagerServer``, which answers the same.

    Parameters
    ----------
    rules : a manager that has served nothing, on a pool of any size; it serves nothing
    num_blocks : of the pool, the null block included
    """

    def __init__(
        self,
        rules: KVCacheManager,
        num_blocks: int,
        limits: SchedulerLimits,
        align_block_size: int | None = None,
    ):
        self._singles = rules.coordinator.single_type_managers
        self._manager = _on_a_pool_of(num_blocks, new_manager(rules, num_requests=1, num_rows=1))
        self._chunks = Chunks(
            limits.max_num_batched_tokens,
            limits.long_prefill_token_threshold,
            limits.enable_chunked_prefill,
            limits.scheduler_reserve_full_isl,
            align_block_size or 0,
        )
        door: Any = SimpleNamespace(
            block_pool=_Pool(num_blocks),
            coordinator=rules.coordinator,
            empty_kv_cache_blocks=rules.empty_kv_cache_blocks,
        )
        self._admission = Admission(limits, door)

    def serve(self, requests: Requests) -> np.ndarray:
        """Return the hit tokens of each request, or ``NOT_SERVED``; int64 (requests,)."""
        self._make_room(requests)
        lengths = Lengths(*requests[1:], self._refused(requests))
        hits = np.zeros(len(requests.num_prompt_tokens), np.int64)
        serve_batch(self._manager, self._chunks, lengths, hits)
        return hits

    def _make_room(self, requests: Requests) -> None:
        longest = int((requests.num_prompt_tokens + requests.num_output_tokens).max(initial=0)) + 2
        num_entries = max(
            -(-longest // s.block_size) + s.num_speculative_blocks + 1 for s in self._singles
        )
        manager = with_entries(self._manager, num_entries)
        manager = with_identities(manager, int(requests.prefix_ids.max(initial=-1)) + 1)
        self._manager = manager._replace(prefix_ids=requests.prefix_ids.astype(np.uint32))

    def _refused(self, requests: Requests) -> np.ndarray:
        """Ask the admission gate about every request; one without length is refused as well."""
        lengths = zip(requests.num_prompt_tokens, requests.num_output_tokens, strict=True)
        refusal = self._admission.refusal
        return np.array([refusal(Request("", int(p), int(o))) is not None for p, o in lengths])


def _on_a_pool_of(num_blocks: int, manager: Manager) -> Manager:
    manager.config.num_gpu_blocks = num_blocks
    num_prefix_ids, num_groups = manager.pool.index.shape
    return manager._replace(pool=new_pool(num_blocks, num_groups, num_prefix_ids))

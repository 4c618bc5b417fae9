"""Samples of the waste partition from the compiled engine's state."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.core.single_type_kv_cache_manager_compiled import get_num_skipped_tokens
from sim.jit import compiled_door
from sim.metrics.waste_compiled import waste_parts
from sim.tables import PARTS


class WasteSampler:
    """Calls the compiled ``WastePartition.sample``, with arrays that are made once."""

    def __init__(self, partition: Any):
        self._group_bytes = np.array(
            [
                (g.layer_padding, g.page_padding, g.content, g.block_size, g.is_state)
                for g in partition.groups
            ],
            np.int64,
        ).reshape(-1, 5)
        self._scalars = np.array(
            [partition.num_blocks, partition.bytes_per_block, partition.kv_memory_bytes], np.int64
        )
        self._scratch = np.zeros(partition.num_blocks, np.int32)
        self._sums = np.zeros(4, np.int64)
        self._lengths = np.zeros((2, 0, 0), np.int64)
        self._out = np.zeros(len(PARTS), np.int64)

    def sample(self, engine: Any, state: Any) -> list[int]:
        """Return the bytes of each part, in the order of ``PARTS``.

        state : of the engine, and ``engine`` the same, held
        """
        notes = state.scheduler.manager.tables.notes
        if self._lengths.shape[1:] != notes.shape:
            self._lengths = np.zeros((2, *notes.shape), np.int64)
        _sample(
            engine,
            self._group_bytes,
            self._scalars,
            self._scratch,
            self._sums,
            self._lengths[0],
            self._lengths[1],
            self._out,
        )
        return self._out.tolist()


@compiled_door
def _sample(e, group_bytes, scalars, scratch, sums, lengths, touched, out):
    """Fill ``out`` with the parts; lengths, touched : room, of which only running rows are used."""
    s = e.scheduler
    m, num_running = s.manager, s.counters[0].num_running
    num_groups = len(m.groups)
    row_of, computed = np.zeros(num_running, np.int64), np.zeros(num_running, np.int64)
    skipped = np.zeros((num_running, num_groups), np.int64)
    for i in range(num_running):
        request = m.requests[s.running[i]]
        row_of[i], computed[i] = request.row, request.num_computed_tokens
        for g in range(num_groups):
            lengths[request.row, g] = m.tables.notes[request.row, g].length
            touched[request.row, g] = m.tables.notes[request.row, g].num_touched
            skipped[i, g] = get_num_skipped_tokens(m.groups[g], request.num_computed_tokens)
    waste_parts(
        group_bytes,
        scalars,
        m.tables.blocks,
        lengths,
        touched,
        row_of,
        computed,
        skipped,
        m.pool.blocks.other_holders,
        m.pool.cached_free_by_group,
        m.pool.counters[0].num_free_blocks,
        scratch,
        sums,
        out,
    )

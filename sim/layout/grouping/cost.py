"""What a group costs the engine: a model, for comparing layouts.

Each group has a block table of its own, whose rows and slot mapping the host builds in every step,
and attention metadata built from it. Two public figures bound what that takes. vllm-project/vllm
PR 21761: four groups instead of one, about 2 ms more (mid-2025). PR 51742: 10 groups instead of 46
double the throughput of one request, so a group takes about 4 % of the rest of a step of a few
milliseconds. 0.1 ms is our round number between them: an assumption, good for telling a few groups
from many and for nothing finer.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.units import cdiv

HOST_US_PER_GROUP = 100
_BYTES_PER_ENTRY = 4  # block ids are 32-bit integers on the device


def host_us_per_step(num_groups: int) -> int:
    """Return the modelled host time of all groups in one step, in microseconds."""
    return HOST_US_PER_GROUP * num_groups


def block_table_bytes(block_sizes: Sequence[int], max_model_len: int) -> int:
    """Return the block-table entries of one request over all groups, in bytes.

    A row is as wide as a request of the maximum length. Source: spec/layout.md 11.
    """
    return sum(_BYTES_PER_ENTRY * cdiv(max_model_len, size) for size in block_sizes)

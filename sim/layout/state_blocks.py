"""Recurrent states bound the number of running requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.errors import ConfigError
from sim.layout.kv_cache_spec import MambaSpec

if TYPE_CHECKING:
    from sim.layout.plan import Layout


def check_state_blocks(layout: Layout, max_num_seqs: int) -> None:
    """Raise a ConfigError if the pool has fewer blocks than requests may run at once.

    Each running request holds a block of every recurrent group, and the engine refuses to start
    with more requests than blocks; its count forgets the null block and the other groups.
    Source: spec/real_cases.md B21 (vLLM issue 49064). Models without such layers always pass.
    """
    groups = layout.kv_cache_config.kv_cache_groups
    num_blocks = layout.kv_cache_config.num_blocks
    recurrent = any(isinstance(group.kv_cache_spec, MambaSpec) for group in groups)
    if recurrent and max_num_seqs > num_blocks:
        allowed = (
            f"at most the {num_blocks} blocks of the pool: a running request holds one for the "
            "state of each recurrent group"
        )
        raise ConfigError.one("scheduler.max_num_seqs", max_num_seqs, allowed)

"""What the metrics of a run are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class RunTables:
    """The tables of one run (columns: ``sim.tables``) and what they do not hold.

    num_blocks counts the null block; kv_memory_bytes is all KV memory. prefix_cache_queries and
    prefix_cache_hits are vLLM's counters [tokens]: every lookup of a request that was not
    preempted, also repeated ones (spec/manager.md 5.5). spec_decode_num_drafts counts verified
    requests, the other two their drafts and the accepted ones. lookups and reasons are there if the
    run recorded them.
    """

    requests: pd.DataFrame
    steps: pd.DataFrame
    waste: pd.DataFrame
    num_blocks: int
    kv_memory_bytes: int
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    spec_decode_num_drafts: int = 0
    spec_decode_num_draft_tokens: int = 0
    spec_decode_num_accepted_tokens: int = 0
    lookups: pd.DataFrame | None = None
    reasons: pd.DataFrame | None = None

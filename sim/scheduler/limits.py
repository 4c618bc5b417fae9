"""What a scheduler is held to, and what it counts of speculation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SpecDecodeStats:
    """Verified requests, their drafts, and how many of these were accepted.

    Source: vLLM's counters ``vllm:spec_decode_num_*``.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Limits of a step and of a request, in tokens and requests. Source: spec/manager.md 6.1."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True

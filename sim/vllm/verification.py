"""What a run needs so that vLLM's own scheduler is asked along with ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sim.contents import Contents
from sim.core.kv_events import KVEventLog
from sim.errors import ConfigError
from sim.layout.kv_cache_config import scheduler_view
from sim.request import RequestSpec
from sim.scheduler.scheduler import Scheduler
from sim.vllm.mirror import MirrorScheduler
from sim.vllm.raw_scheduler import (
    DRAFT_MODEL,
    EAGLE,
    NGRAM,
    SchedulerSettings,
    build_scheduler,
)

if TYPE_CHECKING:
    from sim.layout.plan import Layout


class Verification:
    """One mirrored run: the contents of its requests, its events, and the two schedulers.

    every : the whole state is compared at every so many steps
    """

    def __init__(
        self,
        layout: Layout,
        watermark: float = 0.0,
        retention_interval: int | None = None,
        every: int = 1,
    ):
        self.layout = layout
        self.watermark = watermark
        self.retention_interval = retention_interval
        self.every = every
        self.contents = Contents()
        self.scheduler: MirrorScheduler | None = None
        self.log = KVEventLog(
            scheduler_view(layout.kv_cache_config),
            layout.hash_block_size,
            self.contents.request_content,
            context_parallel_size=layout.limits.context_parallel_size,
        )

    def noting(
        self, name_prefixes: Callable[[RequestSpec], Sequence[int]]
    ) -> Callable[[RequestSpec], Sequence[int]]:
        """Return the function that names prefixes and notes the content of requests."""
        return self.contents.noting(name_prefixes)

    def mirrored(self, ours: Scheduler) -> MirrorScheduler:
        """Return our scheduler with vLLM's behind it."""
        settings = scheduler_settings(ours, self.layout, self.watermark, self.retention_interval)
        raw = build_scheduler(self.layout.kv_cache_config, settings)
        size, log = (
            self.layout.hash_block_size,
            self.log if settings.enable_prefix_caching else None,
        )
        self.scheduler = MirrorScheduler(ours, raw, self.contents, size, log, self.every)
        return self.scheduler

    def at(self, now_ns: int) -> None:
        """A step is about to be scheduled."""
        if self.scheduler is not None:
            self.scheduler.at(now_ns)

    def finish(self) -> None:
        """Compare everything for the last time."""
        if self.scheduler is not None:
            self.scheduler.finish()

    @property
    def counts(self) -> dict[str, int]:
        """How much was compared: requests, steps, calls, states, blocks, events."""
        return dict(self.scheduler.comparison.counts) if self.scheduler is not None else {}


def scheduler_settings(
    ours: Scheduler,
    layout: Layout,
    watermark: float = 0.0,
    retention_interval: int | None = None,
) -> SchedulerSettings:
    """Return the settings with which vLLM's scheduler does what ours was built to do."""
    limits = ours.limits
    if ours.fixes:
        allowed = "vllm-0.25.1: vLLM's own scheduler mends nothing"
        raise ConfigError.one("compat", ", ".join(sorted(ours.fixes)), allowed)
    return SchedulerSettings(
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        max_model_len=limits.max_model_len,
        block_size=layout.scheduler_block_size,
        hash_block_size=layout.hash_block_size,
        cache_block_size=layout.block_size,
        enable_prefix_caching=layout.enable_prefix_caching,
        mamba_cache_mode=layout.mamba_cache_mode,
        policy=ours.policy.name,
        async_scheduling=ours.async_scheduling,
        enable_chunked_prefill=limits.enable_chunked_prefill,
        long_prefill_token_threshold=limits.long_prefill_token_threshold,
        scheduler_reserve_full_isl=limits.scheduler_reserve_full_isl,
        watermark=watermark,
        retention_interval=retention_interval,
        spec_method=_spec_method(ours),
        num_spec_tokens=ours.num_spec_tokens,
        max_loras=ours.max_loras,
        decode_context_parallel_size=layout.limits.decode_context_parallel_size,
    )


def _spec_method(ours: Scheduler) -> str | None:
    if not ours.num_spec_tokens:
        return None
    if ours.use_eagle:
        return EAGLE
    return DRAFT_MODEL if ours.num_lookahead_tokens else NGRAM

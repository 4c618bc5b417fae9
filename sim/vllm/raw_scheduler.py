"""vLLM's own Scheduler, from a configuration that holds what it reads and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from sim.layout.kv_cache_config import KVCacheConfig, scheduler_view
from sim.vllm.names import scheduler_names
from sim.vllm.raw_manager import retention
from sim.vllm.specs import kv_cache_config as vllm_kv_cache_config

EAGLE, DRAFT_MODEL, NGRAM = "eagle", "draft_model", "ngram"


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    """What a scheduler is built with; names as in vLLM's command line.

    block_size : the scheduler's block size; cache_block_size : ``cache_config.block_size``, on
        which Mamba's ``align`` mode cuts (None: the same)
    spec_method : eagle, draft_model or ngram, with ``num_spec_tokens`` drafts per step
    max_loras : most adapters of one step, 0 for none
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    block_size: int
    hash_block_size: int | None = None
    cache_block_size: int | None = None
    enable_prefix_caching: bool = True
    mamba_cache_mode: str = "none"
    policy: str = "fcfs"
    async_scheduling: bool = False
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    retention_interval: int | None = None
    spec_method: str | None = None
    num_spec_tokens: int = 0
    max_loras: int = 0
    decode_context_parallel_size: int = 1
    enable_kv_cache_events: bool = True
    is_encoder_decoder: bool = False
    log_stats: bool = True


@dataclass
class EventCollector:
    """Takes the place of vLLM's publisher: keeps the events of each step."""

    events: list[Any] = field(default_factory=list)

    def publish(self, batch: Any) -> None:
        """Take the events of one step."""
        self.events += batch.events

    def shutdown(self) -> None:
        """Do nothing: nothing is open."""


def build_scheduler(kv_cache_config: KVCacheConfig, settings: SchedulerSettings) -> Any:
    """Return a raw ``Scheduler``, or ``AsyncScheduler``, of vLLM.

    Its ``kv_event_publisher`` is an ``EventCollector``. The model runner is the first one, which
    is told of resumed requests as such.
    """
    names = scheduler_names()
    kind = names.AsyncScheduler if settings.async_scheduling else names.Scheduler
    theirs = vllm_kv_cache_config(scheduler_view(kv_cache_config))
    with retention(settings.retention_interval):
        scheduler = kind(
            vllm_config=_vllm_config(settings, theirs.num_blocks),
            kv_cache_config=theirs,
            structured_output_manager=SimpleNamespace(should_advance=lambda request: False),
            block_size=settings.block_size,
            hash_block_size=settings.hash_block_size,
            log_stats=settings.log_stats,
        )
    scheduler.kv_event_publisher = EventCollector()
    return scheduler


def _vllm_config(settings: SchedulerSettings, num_blocks: int) -> SimpleNamespace:
    names = scheduler_names()
    parallel = names.ParallelConfig()
    parallel.decode_context_parallel_size = settings.decode_context_parallel_size
    events = names.KVEventsConfig(
        enable_kv_cache_events=settings.enable_kv_cache_events, publisher="null"
    )
    return SimpleNamespace(
        scheduler_config=_scheduler_config(settings),
        cache_config=_cache_config(settings, num_blocks),
        model_config=_model_config(settings),
        parallel_config=parallel,
        observability_config=names.ObservabilityConfig(),
        kv_events_config=events,
        lora_config=SimpleNamespace(max_loras=settings.max_loras) if settings.max_loras else None,
        speculative_config=_speculative_config(settings),
        num_speculative_tokens=settings.num_spec_tokens,
        kv_transfer_config=None,
        ec_transfer_config=None,
        use_v2_model_runner=False,
    )


def _scheduler_config(settings: SchedulerSettings) -> Any:
    return scheduler_names().SchedulerConfig(
        max_model_len=settings.max_model_len,
        is_encoder_decoder=settings.is_encoder_decoder,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        enable_chunked_prefill=settings.enable_chunked_prefill,
        policy=settings.policy,
        scheduler_reserve_full_isl=settings.scheduler_reserve_full_isl,
        watermark=settings.watermark,
        async_scheduling=settings.async_scheduling,
    )


def _cache_config(settings: SchedulerSettings, num_blocks: int) -> Any:
    cache = scheduler_names().CacheConfig(
        block_size=settings.cache_block_size or settings.block_size,
        enable_prefix_caching=settings.enable_prefix_caching,
        mamba_cache_mode=settings.mamba_cache_mode,
    )
    cache.num_gpu_blocks = num_blocks
    return cache


def _model_config(settings: SchedulerSettings) -> SimpleNamespace:
    return SimpleNamespace(
        max_model_len=settings.max_model_len,
        is_encoder_decoder=settings.is_encoder_decoder,
        is_multimodal_model=False,
        is_diffusion=False,
        enable_return_routed_experts=False,
    )


def _speculative_config(settings: SchedulerSettings) -> SimpleNamespace | None:
    if settings.spec_method is None:
        return None
    return SimpleNamespace(
        num_speculative_tokens=settings.num_spec_tokens,
        num_speculative_tokens_per_batch_size=None,
        use_eagle=lambda: settings.spec_method == EAGLE,
        uses_draft_model=lambda: settings.spec_method == DRAFT_MODEL,
        use_dflash=lambda: False,
        use_dspark=lambda: False,
    )

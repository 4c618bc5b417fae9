"""A small world whose steps both schedulers take, without an engine around them."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from sim.contents import Contents
from sim.core.kv_cache_manager import KVCacheManager
from sim.core.kv_events import KVEventLog
from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import (
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from sim.prefix_ids import PrefixIds
from sim.request import Request, RequestSpec, RequestStatus, Span
from sim.scheduler.scheduler import Scheduler, SchedulerLimits
from sim.vllm.mirror import MirrorScheduler
from sim.vllm.raw_scheduler import SchedulerSettings, build_scheduler

BLOCK = 16
ATTENTION: dict[str, Any] = {"num_kv_heads": 1, "head_size": 8, "dtype_bytes": 2}
FULL = FullAttentionSpec(block_size=BLOCK, **ATTENTION)
SLIDING = SlidingWindowSpec(block_size=BLOCK, sliding_window=64, **ATTENTION)
MAMBA = MambaSpec(block_size=BLOCK, shapes=((8,),), dtype_bytes=(2,), mamba_cache_mode="align")


def pool(num_blocks: int, *specs: KVCacheSpec) -> KVCacheConfig:
    groups = (KVCacheGroupSpec((f"layer.{i}",), spec) for i, spec in enumerate(specs))
    return KVCacheConfig(num_blocks, (), tuple(groups))


@dataclass(frozen=True, kw_only=True)
class World:
    config: KVCacheConfig
    num_requests: int = 24
    budget: int = 64
    max_num_seqs: int = 6
    max_model_len: int = 512
    policy: str = "fcfs"
    async_scheduling: bool = False
    spec_method: str | None = None
    num_spec_tokens: int = 0
    max_loras: int = 0
    mamba_cache_mode: str = "none"
    reserve_full_isl: bool = True
    aborts: bool = False
    resets: bool = False
    seed: int = 0


def mirror_of(world: World) -> tuple[MirrorScheduler, Contents]:
    contents = Contents()
    use_eagle = world.spec_method == "eagle"
    log = KVEventLog(world.config, BLOCK, contents.request_content)
    manager = KVCacheManager(
        world.config, world.max_model_len, BLOCK, BLOCK, world.budget,
        use_eagle=use_eagle, observer=log,
    )  # fmt: skip
    rng = random.Random(world.seed)
    ours = Scheduler(
        manager,
        SchedulerLimits(
            world.budget, world.max_num_seqs, world.max_model_len,
            scheduler_reserve_full_isl=world.reserve_full_isl,
        ),
        BLOCK if world.mamba_cache_mode == "align" else None,
        use_eagle,
        policy=world.policy,
        async_scheduling=world.async_scheduling,
        num_spec_tokens=world.num_spec_tokens,
        num_lookahead_tokens=0 if world.spec_method == "ngram" else world.num_spec_tokens,
        max_loras=world.max_loras,
        num_sampled=lambda request, num_drafts: rng.randint(1, num_drafts + 1),
    )  # fmt: skip
    settings = SchedulerSettings(
        max_num_batched_tokens=world.budget,
        max_num_seqs=world.max_num_seqs,
        max_model_len=world.max_model_len,
        block_size=BLOCK,
        hash_block_size=BLOCK,
        mamba_cache_mode=world.mamba_cache_mode,
        policy=world.policy,
        async_scheduling=world.async_scheduling,
        scheduler_reserve_full_isl=world.reserve_full_isl,
        spec_method=world.spec_method,
        num_spec_tokens=world.num_spec_tokens,
        max_loras=world.max_loras,
    )
    raw = build_scheduler(world.config, settings)
    return MirrorScheduler(ours, raw, contents, BLOCK, log), contents


def specs_of(world: World) -> list[RequestSpec]:
    """Requests that share beginnings of three sources; some end before max_tokens."""
    rng, made = random.Random(world.seed), []
    for number in range(world.num_requests):
        shared, own, output = rng.randint(0, 120), rng.randint(1, 90), rng.randint(1, 40)
        prompt = [Span(f"source.{rng.randrange(3)}", 0, shared)] if shared else []
        spec = RequestSpec(
            request_id=f"r{number}",
            prompt=(*prompt, Span(f"own.{number}", 0, own)),
            output=Span(f"out.{number}", 0, output),
            priority=rng.randrange(3),
            cache_salt="salt" if rng.random() < 0.1 else None,
        )
        if world.max_loras and rng.random() < 0.7:
            spec = replace(spec, lora_name=f"adapter.{rng.randrange(4)}")
        if rng.random() < 0.3:
            spec = replace(spec, max_tokens=output + rng.randint(1, 10))
        made.append(spec)
    return made


def request_of(spec: RequestSpec, arrival_ns: int, prefix_ids: Any) -> Request:
    return Request(
        request_id=spec.request_id,
        num_prompt_tokens=spec.num_prompt_tokens,
        max_tokens=spec.max_tokens or spec.num_output_tokens,
        stop_after=None if spec.max_tokens is None else spec.num_output_tokens,
        prefix_ids=prefix_ids,
        arrival_ns=arrival_ns,
        priority=spec.priority,
        lora_name=spec.lora_name,
    )


def play(world: World, most_steps: int = 2000) -> MirrorScheduler:
    """Let requests arrive, two steps in flight where scheduling is asynchronous."""
    mirror, contents = mirror_of(world)
    rng, names = random.Random(world.seed + 1), PrefixIds(BLOCK)
    specs, in_flight = deque(specs_of(world)), deque()
    for step in range(most_steps):
        while specs and rng.random() < 0.4:
            spec = specs.popleft()
            ids = names.of(spec).tolist()
            mirror.add_request(request_of(spec, step, ids))
            contents.note(spec, ids)
        if not (specs or mirror.requests or in_flight):
            break
        in_flight.append(mirror.schedule(throttle_prefills=rng.random() < 0.1))
        if len(in_flight) > world.async_scheduling:
            _apply(mirror, in_flight.popleft(), world)
        if world.aborts and mirror.requests and rng.random() < 0.05:
            gone = rng.choice(sorted(mirror.requests))
            mirror.finish_requests([gone], RequestStatus.FINISHED_ABORTED)
        if world.resets and rng.random() < 0.03:
            mirror.reset_prefix_cache(reset_running_requests=rng.random() < 0.5)
    mirror.finish()
    return mirror


def _apply(mirror: MirrorScheduler, output: Any, world: World) -> None:
    if not output.scheduled:
        return
    mirror.update_from_output(output)
    if world.num_spec_tokens and not world.async_scheduling:
        ids = [r.request_id for r, _, _ in output.scheduled if r.request_id in mirror.requests]
        mirror.update_draft_token_ids(dict.fromkeys(ids, world.num_spec_tokens))

"""What was reached how often: counts by feature, from worlds and the records of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.differential.compare import FORESEEN, is_nonsense
from tests.differential.manager_play import Record
from tests.differential.scheduler_side import (
    NEGATIVE_TOKENS,
    SCHEDULER_SNAPSHOT,
    TOO_MANY_ADAPTERS,
    Step,
)
from tests.differential.specs import FULL_KINDS
from tests.differential.world import World

PLACE = {name: place for place, name in enumerate(SCHEDULER_SNAPSHOT)}

# feature -> why it cannot be reached; everything else that stays at zero is a gap
UNREACHABLE = {
    "kind: sink": "the reference cannot build its manager (Q2)",
    "scheduler: per-group lookup": "needs a connector; driven at the manager",
    "scheduler: external tokens": "needs a connector; driven at the manager",
    "scheduler: reserved blocks": "needs a connector; driven at the manager",
    "scheduler: encoder tokens": "needs multimodal inputs; driven at the manager",
}

FEATURES = [
    *(
        f"kind: {kind}"
        for kind in [
            "full",
            "tq_full",
            "mla",
            "hidden_state",
            "rswa",
            "sliding",
            "sliding_mla",
            "chunked",
            "cross",
            "mamba",
            "sink",
        ]
    ),
    *(f"mamba mode: {mode}" for mode in ("none", "align", "all")),
    "mamba with speculative blocks",
    *(f"coordinator: {name}" for name in ("no prefix cache", "unitary", "hybrid")),
    "groups: 3 or more",
    "groups with equal specs",
    "block sizes differ",
    "hash blocks smaller than every block",
    "two full-attention specs",
    "eagle: all groups",
    "eagle: flagged groups",
    "retention: 0",
    "retention: an interval",
    "decode context parallel",
    "prefill context parallel",
    "hash blocks smaller than need be",
    "block metrics",
    "pool of 1 to 4 blocks",
    "watermark",
    *(f"policy: {name}" for name in ("fcfs", "priority")),
    "asynchronous",
    *(
        f"speculation: {name}"
        for name in ["eagle", "eagle3", "mtp", "ngram", "draft_model", "dflash", "dspark"]
    ),
    "whole prompts only (no chunked prefill)",
    "long prefill threshold",
    # manager calls
    *(
        f"call: {verb}"
        for verb in [
            "admit",
            "go on",
            "loaded",
            "free",
            "free waiting",
            "preempt",
            "park",
            "give back",
            "new step",
            "reset",
            "evict",
            "partial",
            "look up",
            "look up directly",
            "look up per group",
            "common prefix",
            "slide",
            "cache",
            "ids for computed",
            "take new ids",
            "take statistics",
        ]
    ),
    "hit",
    "hit with null entries",
    "refused: no blocks",
    "refused: admission gate",
    "refused: watermark",
    "refused: reserved blocks",
    "refused: state made in this step",
    "external tokens",
    "external tokens, delayed registration",
    "encoder tokens",
    "lookahead tokens",
    "drafts rejected",
    "skips reading the cache",
    "cache salt",
    "content evicted on allocation",
    "duplicate content",
    "null entries in tables",
    "align hint (uncached common prefix) above 0",
    "common prefix above 0",
    "reset succeeds",
    "reset refused",
    "partial entry replaced or promoted",
    "partial entry as an alias",
    "event: BlockStored",
    "event: BlockStored without hashes (Q6)",
    "event: BlockStored with fewer hashes than blocks (Q6)",
    "event: BlockRemoved",
    "event: AllBlocksCleared",
    "event with a LoRA adapter",
    "block metrics: end of a block",
    "block metrics: gaps between hits",
    "statistics of preempted lookups",
    # scheduler
    "scheduler: step",
    "scheduler: empty step",
    "scheduler: chunked prefill",
    "scheduler: decode",
    "scheduler: head of the queue refused",
    "scheduler: preemption",
    "scheduler: two or more preempted in one step",
    "scheduler: request preempts itself",
    "scheduler: resumed",
    "scheduler: priority victim is not the last",
    "scheduler: undone in the same step",
    "scheduler: skipped for its LoRA adapter",
    "scheduler: skipped for its grammar",
    "scheduler: throttled",
    "scheduler: throttle held a prefill back",
    "scheduler: drafts scheduled",
    "scheduler: drafts rejected",
    "scheduler: drafts accepted",
    "scheduler: padded with placeholder drafts",
    "scheduler: ended by EOS",
    "scheduler: ended by length",
    "scheduler: aborted while waiting",
    "scheduler: aborted while running",
    "scheduler: aborted while preempted",
    "scheduler: aborted while blocked",
    "scheduler: aborted with a step in flight",
    "scheduler: reset",
    "scheduler: reset with running requests",
    "scheduler: reset with a step in flight",
    "scheduler: stale output dropped",
    "scheduler: two steps in flight",
    "scheduler: output for a preempted request",
    "scheduler: ended while preempted",
    "scheduler: align split shortens a chunk",
    "scheduler: align hint splits a chunk",
    "scheduler: per-group lookup",
    "scheduler: external tokens",
    "scheduler: reserved blocks",
    "scheduler: encoder tokens",
    *(f"quirk {q} changes a decision" for q in ("Q1", "Q3", "Q4", "Q7", "Q8", "Q13")),
    f"given up: the reference {NEGATIVE_TOKENS}",
    f"given up: the reference {TOO_MANY_ADAPTERS}",
    "an error on both sides",
    *(f"error: {theirs} in {call}" for call, theirs in FORESEEN),
]


def count(world: World, records: list[Record], into: Counter[str]) -> None:
    """Add what one world reached; what closer looks find is added by ``closer``."""
    if records and records[0].asked == ("build",):
        into["an error on both sides"] += 1
        into[f"error: {records[0].answer[1]} in build"] += 1
        return
    into.update(_of_world(world))
    before: Record | None = None
    for record in records:
        if is_nonsense(record):
            into[f"given up: the reference {record.answer[1]}"] += 1
            continue
        if record.seen is None:
            into["an error on both sides"] += 1
            into[f"error: {record.answer[1]} in {record.asked[0]}"] += 1
            continue
        into.update(_of_record(world, before, record))
        before = record


def _of_world(world: World) -> Iterator[str]:
    for group in world.groups:
        yield f"kind: {group['kind']}"
        if group["kind"] == "mamba":
            yield f"mamba mode: {group['mode']}"
            if group.get("speculative"):
                yield "mamba with speculative blocks"
    yield f"coordinator: {_coordinator(world)}"
    specs = [{k: v for k, v in g.items() if k != "eagle"} for g in world.groups]
    distinct = [s for i, s in enumerate(specs) if s not in specs[:i]]
    conditions = {
        "groups: 3 or more": len(specs) > 2,
        "groups with equal specs": len(distinct) < len(specs),
        "block sizes differ": len(set(world.block_sizes)) > 1,
        "hash blocks smaller than every block": world.hash_size < min(world.block_sizes),
        "two full-attention specs": sum(s["kind"] in FULL_KINDS for s in distinct) > 1,
        "eagle: all groups": world.use_eagle and not any(g.get("eagle") for g in world.groups),
        "eagle: flagged groups": any(g.get("eagle") for g in world.groups),
        "retention: 0": world.retention == 0,
        "retention: an interval": bool(world.retention),
        "decode context parallel": world.dcp > 1,
        "prefill context parallel": world.pcp > 1,
        "hash blocks smaller than need be": world.hash_block_size is not None,
        "block metrics": world.metrics,
        "pool of 1 to 4 blocks": world.num_blocks < 5,
        "watermark": world.watermark > 0,
        "skips reading the cache": any(r.get("skip") for r in world.requests),
        "cache salt": any(r.get("salt") for r in world.requests),
    }
    if world.level == "scheduler":
        conditions |= {
            f"policy: {world.policy}": True,
            "asynchronous": world.asynchronous,
            f"speculation: {world.spec_method}": world.spec_method is not None,
            "whole prompts only (no chunked prefill)": not world.chunked,
            "long prefill threshold": world.threshold > 0,
        }
    yield from (name for name, holds in conditions.items() if holds)


def _coordinator(world: World) -> str:
    if not world.enable_caching:
        return "no prefix cache"
    return "unitary" if len(world.groups) == 1 else "hybrid"


def _of_record(world: World, before: Record | None, record: Record) -> Iterator[str]:
    seen = record.seen
    assert seen is not None
    yield from _of_events(world, seen[PLACE["events"]])
    for _, _, gaps in seen[PLACE["block metrics"]]:
        yield "block metrics: end of a block"
        yield from ["block metrics: gaps between hits"] * bool(gaps)
    if any(len(ids) > 1 for ids in seen[PLACE["index"]].values()):
        yield "duplicate content"
    if any(0 in t for tables in seen[PLACE["tables"]] for t in tables.values()):
        yield "null entries in tables"
    if record.asked[0] in ("admit", "go on", "schedule") and any(
        e[0] == "BlockRemoved" for e in seen[PLACE["events"]]
    ):
        yield "content evicted on allocation"
    if seen[PLACE["hint"]]:
        yield "align hint (uncached common prefix) above 0"
    if seen[PLACE["statistics"]][3]:
        yield "statistics of preempted lookups"
    if world.level == "scheduler":
        yield from _of_scheduler_call(world, before, record)
    else:
        yield from _of_manager_call(world, before, record)


def _of_events(world: World, events: list[tuple[Any, ...]]) -> Iterator[str]:
    for event in events:
        yield f"event: {event[0]}"
        if event[0] != "BlockStored":
            continue
        hashes, tokens, size, lora = event[3], event[5], event[6], event[7]
        if not hashes:
            yield "event: BlockStored without hashes (Q6)"
        elif len(hashes) * size < len(tokens):
            yield "event: BlockStored with fewer hashes than blocks (Q6)"
        if lora:
            yield "event with a LoRA adapter"


# -- manager calls -----------------------------------------------------------------------------
def _of_manager_call(world: World, before: Record | None, record: Record) -> Iterator[str]:
    verb, answer = record.asked[0], record.answer
    if verb == "look up" and len(record.asked) > 2:
        yield "call: look up " + ("per group" if record.asked[3] == "per group" else "directly")
    else:
        yield f"call: {verb}"
    if verb == "admit":
        yield from _of_admission(record)
    elif verb == "look up" and len(record.asked) == 2:
        yield from _of_hit(*answer)
    elif verb == "go on":
        settings = record.asked[4]
        if answer is not None and settings.get("num_lookahead_tokens"):
            yield "lookahead tokens"
        if answer is not None and record.asked[5]:
            yield "drafts rejected"
    elif verb == "common prefix" and any(answer):
        yield "common prefix above 0"
    elif verb == "reset":
        yield "reset succeeds" if answer else "reset refused"
    elif verb == "partial" and answer is not None:
        removed = any(e[0] == "BlockRemoved" for e in record.seen[PLACE["events"]])
        yield from ["partial entry replaced or promoted"] * removed
        ids = [b for blocks in record.seen[PLACE["index"]].values() for b in blocks]
        yield from ["partial entry as an alias"] * (len(ids) > len(set(ids)))


def _of_admission(record: Record) -> Iterator[str]:
    rows, hit, new = record.answer
    settings = record.asked[3]
    yield from _of_hit(rows, hit)
    if new is None:
        return
    if settings.get("num_external_computed_tokens"):
        yield "external tokens"
        if settings.get("delay_cache_blocks"):
            yield "external tokens, delayed registration"
    if settings.get("num_encoder_tokens"):
        yield "encoder tokens"
    if settings.get("num_lookahead_tokens"):
        yield "lookahead tokens"


def _of_hit(rows: Any, hit: int) -> Iterator[str]:
    if hit:
        yield "hit"
        if any(0 in row for row in rows):
            yield "hit with null entries"


# -- scheduler calls ---------------------------------------------------------------------------
def _of_scheduler_call(world: World, before: Record | None, record: Record) -> Iterator[str]:
    verb = record.asked[0]
    if verb == "schedule":
        yield from _of_step(world, before, record)
    elif verb == "update":
        yield from _of_update(before, record)
    elif verb == "reset":
        yield "scheduler: reset"
        if record.asked[1]:
            yield "scheduler: reset with running requests"
            fields = record.seen[PLACE["requests"]].values()
            if any(f[5] for f in fields):
                yield "scheduler: reset with a step in flight"
    elif verb == "abort" and before is not None:
        yield from _of_abort(before, record)


def _of_step(world: World, before: Record | None, record: Record) -> Iterator[str]:
    step: Step = record.answer
    seen = record.seen
    yield "scheduler: step"
    if not step.scheduled:
        yield "scheduler: empty step"
    requests = seen[PLACE["requests"]]
    if any(requests[i][6] for i, _, _ in step.scheduled):
        yield "scheduler: chunked prefill"
    if any(requests[i][2] - n >= 1 and n == 1 for i, _, n in step.scheduled):
        yield "scheduler: decode"
    if record.asked[2]:
        yield "scheduler: two steps in flight"
    if any(step.common):
        yield "common prefix above 0"
    if step.resumed:
        yield "scheduler: resumed"
    if step.drafts:
        yield "scheduler: drafts scheduled"
    if record.asked[1]:
        yield "scheduler: throttled"
    yield from _of_queues(world, step, seen)
    yield from _of_preemptions(world, before, step, seen)


def _of_queues(world: World, step: Step, seen: tuple[Any, ...]) -> Iterator[str]:
    requests = seen[PLACE["requests"]]
    skipped = seen[PLACE["skipped"]]
    blocked = [i for i in skipped if i in requests and requests[i][0].startswith("WAITING_FOR")]
    if blocked:
        yield "scheduler: skipped for its grammar"
    if len(blocked) < len(skipped):
        yield "scheduler: skipped for its LoRA adapter"
    budget = world.max_num_batched_tokens - sum(n for _, _, n in step.scheduled)
    room = len(seen[PLACE["running"]]) < world.max_num_seqs
    if seen[PLACE["waiting"]] and budget and room and not step.preempted:
        yield "scheduler: head of the queue refused"


def _of_preemptions(
    world: World, before: Record | None, step: Step, seen: tuple[Any, ...]
) -> Iterator[str]:
    if before is None:
        return
    ran = before.seen[PLACE["running"]]
    victims = [i for i in step.preempted if i in ran]
    if victims:
        yield "scheduler: preemption"
    if len(victims) > 1:
        yield "scheduler: two or more preempted in one step"
    if world.policy == "priority" and any(
        i in seen[PLACE["running"]] for i in _after(ran, victims)
    ):
        yield "scheduler: priority victim is not the last"


def _after(ran: list[str], victims: list[str]) -> list[str]:
    return ran[min(map(ran.index, victims)) :] if victims else []


def _of_update(before: Record | None, record: Record) -> Iterator[str]:
    outputs, (stats,) = record.answer
    if stats[3]:
        yield "statistics of preempted lookups"
    for _, count_, reason in outputs:
        if count_ > 1:
            yield "scheduler: drafts accepted"
        if reason in ("stop", "length"):
            yield "scheduler: ended by " + ("EOS" if reason == "stop" else "length")
    if before is None:
        return
    old, new = before.seen[PLACE["requests"]], record.seen[PLACE["requests"]]
    for name, fields in new.items():
        if name in old and fields[5] < old[name][5]:
            yield "scheduler: stale output dropped"
        if name in old and fields[2] < old[name][2]:
            yield "scheduler: drafts rejected"
    for name, _, reason in outputs:
        if name in old and old[name][0] == "PREEMPTED":
            yield "scheduler: output for a preempted request"
            if reason:
                yield "scheduler: ended while preempted"


def _of_abort(before: Record, record: Record) -> Iterator[str]:
    requests = before.seen[PLACE["requests"]]
    for name in record.asked[1]:
        fields = requests.get(name)
        if fields is None:
            continue
        status = "blocked" if fields[0].startswith("WAITING_FOR") else fields[0].lower()
        yield f"scheduler: aborted while {status}"
        if before.asked[0] == "schedule" and fields[0] == "RUNNING":
            yield "scheduler: aborted with a step in flight"

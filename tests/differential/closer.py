"""What cannot be seen from outside: why something was refused, which quirk made a difference.

A world is played once more on our side alone, watched from inside, and once with each defect of
the reference mended. Both sides agree on these worlds, so what ours did is what theirs did.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

from sim.core.integrity import check_integrity
from sim.core.kv_cache_manager import KVCacheManager
from sim.observer import NULL_OBSERVER
from tests.differential.manager_play import Record
from tests.differential.play import Refused, our_play
from tests.differential.scheduler_side import Step
from tests.differential.specs import FULL_KINDS
from tests.differential.world import World

Count = Counter[str]


def look_closer(world: World, records: list[Record], into: Count) -> None:
    """Add what only a replay shows; ``records`` are those of both sides."""
    watch(world, into)
    for quirk in quirks(world):
        mend(quirk, world, records, into)


def look_for_q7(world: World, records: list[Record], into: Count) -> None:
    """Look for the rarest defect wherever it may be: a priority victim in an earlier place."""
    if world.policy == "priority" and any(_has_victims(r) for r in records):
        mend("Q7", world, records, into)


def _has_victims(record: Record) -> bool:
    return isinstance(record.answer, Step) and bool(record.answer.preempted)


def mend(quirk: str, world: World, records: list[Record], into: Count) -> None:
    """Play with one defect mended and count whether that changes a decision."""
    mended = our_play(world, frozenset([quirk])).records()
    if any(a[:2] != b[:2] for a, b in zip(records, mended, strict=False)):
        into[f"quirk {quirk} changes a decision"] += 1


def quirks(world: World) -> list[str]:
    """Return the defects that a world may show (spec/manager.md, appendix A and D)."""
    eagle = world.use_eagle or any(g.get("eagle") for g in world.groups)
    full = {(g["kind"], g["block_size"], g.get("head_size")) for g in world.groups
            if g["kind"] in FULL_KINDS}  # fmt: skip
    conditions = {
        "Q1": eagle and "mamba" in world.kinds,
        "Q3": len(full) > 1,
        "Q4": eagle and bool(world.kinds & {"sliding", "sliding_mla"}),
        "Q7": world.policy == "priority",
        "Q8": world.kinds == {"chunked"},
        "Q13": world.has_align and any(r.get("skip") for r in world.requests),
    }
    return [quirk for quirk, holds in conditions.items() if holds and world.enable_caching]


def watch(world: World, into: Count) -> None:
    """Play the world on our side and count what happens inside."""
    play = our_play(world)
    if isinstance(play, Refused):
        return
    manager = play.side.manager
    manager.allocate_slots = _watched_allocation(manager, into)
    if world.level == "scheduler":
        _watch_scheduler(play.side.scheduler, into)
    for record in play.records():
        if record.seen is not None and not play.parked:
            check_integrity(manager)


# -- why an allocation was refused --------------------------------------------------------------
def _watched_allocation(manager: KVCacheManager, into: Count) -> Callable[..., Any]:
    original = manager.allocate_slots

    def allocate_slots(*args: Any, **settings: Any) -> Any:
        new = original(*args, **settings)
        if new is None:
            into[f"refused: {_reason(manager, args, settings)}"] += 1
        return new

    return allocate_slots


def _reason(manager: KVCacheManager, args: tuple[Any, ...], settings: dict[str, Any]) -> str:
    for reason, relax in RELAXED.items():
        memo = {id(manager.block_pool.observer): NULL_OBSERVER}
        twin, its_args, its_settings = copy.deepcopy((manager, args, settings), memo)
        relax(twin, its_settings)
        if KVCacheManager.allocate_slots(twin, *its_args, **its_settings) is not None:
            return reason
    return "no blocks"


def _without_watermark(manager: KVCacheManager, settings: dict[str, Any]) -> None:
    manager.watermark_blocks = 0


def _without(name: str) -> Callable[[KVCacheManager, dict[str, Any]], None]:
    return lambda manager, settings: settings.pop(name, None)


def _as_in_the_next_step(manager: KVCacheManager, settings: dict[str, Any]) -> None:
    manager.new_step_starts()


RELAXED = {
    "watermark": _without_watermark,
    "admission gate": _without("full_sequence_must_fit"),
    "reserved blocks": _without("reserved_blocks"),
    "state made in this step": _as_in_the_next_step,
}


# -- what a step did on its way -----------------------------------------------------------------
def _watch_scheduler(scheduler: Any, into: Count) -> None:
    def after(name: str, see: Callable[..., str | None]) -> None:
        original = getattr(scheduler, name)

        def watched(*args: Any, **settings: Any) -> Any:
            answer = original(*args, **settings)
            feature = see(answer, *args)
            if feature:
                into[f"scheduler: {feature}"] += 1
            return answer

        setattr(scheduler, name, watched)

    after("_undo", lambda done, *_: "undone in the same step" if done else None)
    after("_allocate_or_preempt", lambda new, *_: None if new else _themselves(new))
    after("_start", lambda _, request, hit, step: _padded(step))
    after("mamba_block_aligned_split", _split(scheduler))
    after("_may_defer_prefills", lambda yes, *_: "throttle held a prefill back" if yes else None)


def _themselves(new: Any) -> str | None:
    return "request preempts itself" if new is None else None


def _padded(step: Any) -> str | None:
    return "padded with placeholder drafts" if step.padding else None


def _split(scheduler: Any) -> Callable[..., str | None]:
    plain = type(scheduler).mamba_block_aligned_split

    def see(cut: int, request: Any, computed: int, asked: int, hint: int = 0) -> str | None:
        if cut < plain(scheduler, request, computed, asked):
            return "align hint splits a chunk"
        return "align split shortens a chunk" if cut < asked else None

    return see

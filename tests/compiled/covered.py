"""Which worlds the compiled engine covers, as ``sim.engine_choice`` does it for scenarios.

Random worlds are drawn for the Python engine. Much of what only that one has can be left out of a
world, and the rest of it still makes sense; a kind of layers cannot.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from sim.core.attention import manager_class
from sim.core.kv_cache_state_compiled import KINDS
from tests.differential.specs import spec_of
from tests.differential.world import World

# verb -> how many of its numbers have a meaning for the compiled engine
MANAGER_VERBS = {
    "come": 0,
    "admit": 5,
    "go_on": 7,
    "free": 1,
    "free_waiting": 1,
    "preempt": 1,
    "new_step": 0,
    "look_up": 1,
    "look_up_direct": 2,
    "slide": 2,
    "cache": 2,
    "take_stats": 0,
}
SCHEDULER_VERBS = {"add": 1, "abort": 9, "schedule": 0, "update": 0}
# (verb, place of a number) that must be 0: slots for drafts and their number, reserved blocks
ZEROES = {("admit", 3), ("go_on", 3), ("go_on", 4), ("go_on", 5), ("go_on", 7)}


def why_not_covered(world: World) -> str | None:
    """Return why the compiled engine does not run a world, None if it does."""
    return next(_reasons(world), None)


def _reasons(world: World) -> Iterator[str]:
    for group in world.groups:
        if manager_class(spec_of(group)) not in KINDS:
            yield f"kind {group['kind']}"
    for reason, is_there in (
        ("KV events", world.events),
        ("block metrics", world.metrics),
        ("speculation", bool(world.num_spec_tokens)),
        ("EAGLE", world.use_eagle or any(g.get("eagle") for g in world.groups)),
        ("adapters", bool(world.max_loras)),
        ("grammars", any(r.get("grammar") for r in world.requests)),
        ("requests that do not read the cache", any(r.get("skip") for r in world.requests)),
        ("arrivals out of order", _arrivals(world) != sorted(_arrivals(world))),
        ("operations of the Python engine", any(op != _kept(world, op) for op in world.ops)),
    ):
        if is_there:
            yield reason


def without_what_only_python_has(world: World) -> World:
    """Return the world with all left out that can be left out."""
    kept = copy.deepcopy(world)
    kept.events = kept.metrics = kept.use_eagle = False
    kept.spec_method, kept.num_spec_tokens, kept.max_loras = None, 0, 0
    for group in kept.groups:
        group.pop("eagle", None)
    for request in kept.requests:
        for key in ("skip", "grammar", "accepted", "proposed", "encoder"):
            request.pop(key, None)
    kept.ops = [op for op in (_kept(world, op) for op in world.ops) if op]
    _order_arrivals(kept)
    return kept


def _kept(world: World, op: list) -> list:
    """Return an operation as the compiled engine knows it; empty if it does not."""
    verb, *numbers = op
    known = SCHEDULER_VERBS if world.level == "scheduler" else MANAGER_VERBS
    if verb not in known:
        return []
    numbers = numbers[: known[verb]]
    return [verb, *(0 if (verb, i) in ZEROES else n for i, n in enumerate(numbers, start=1))]


def _arrivals(world: World) -> list[int]:
    return [r.get("arrival", number) for number, r in enumerate(world.requests)]


def _order_arrivals(world: World) -> None:
    """Let nobody arrive before an earlier one: time does not run backwards in an engine."""
    latest = 0
    for request, arrival in zip(world.requests, _arrivals(world), strict=True):
        request["arrival"] = latest = max(latest, arrival)

"""Random manager worlds: small pools, small blocks, prompts that begin alike."""

from __future__ import annotations

from math import gcd
from typing import Any

from tests.differential.draw import Draw
from tests.differential.specs import FULL_KINDS
from tests.differential.world import World

HYBRIDS = [
    ["full", "sliding"],
    ["sliding", "full"],
    ["full", "mamba"],
    ["mamba", "full"],
    ["full", "sliding", "sliding"],
    ["full", "sliding", "mamba"],
    ["full", "full", "sliding"],
    ["sliding", "sliding"],
    ["sliding", "mamba"],
    ["full", "full", "mamba"],
    ["full", "chunked"],
    ["chunked", "full", "sliding"],
    ["full", "mamba", "chunked"],
    ["mamba", "sliding", "full", "sliding"],
]
SINGLES = ["full", "sliding", "mamba", "chunked"]
FULL = ["full", "full", "full", "mla", "rswa", "tq_full", "hidden_state"]
SLIDING = ["sliding", "sliding", "sliding", "sliding_mla"]


def manager_world(draw: Draw) -> World:
    """Return one world; the simplest one has a single full-attention group."""
    caching = not draw.chance(12)
    groups = draw_groups(draw, caching)
    world = World("manager", groups, 0, enable_caching=caching)
    common_settings(draw, world)
    if len(groups) == 1 and caching and groups[0]["kind"] in ("full", "mla") and draw.chance(15):
        world.dcp, world.pcp = draw.of([(2, 1), (4, 1), (1, 2), (2, 2)])
    low, high = draw.of([(8, 30), (3, 12), (20, 60)])
    world.num_blocks = 2 + draw.between(low, high) * min(len(groups), 3)
    if draw.chance(4):
        world.num_blocks = draw.between(1, 4)
    draw_hash_blocks(draw, world)
    world.events = not draw.chance(20)
    world.metrics = draw.chance(20)
    world.requests = draw_requests(draw, world, draw.between(3, 9))
    draw_encoders(draw, world)
    if draw.chance(3):
        spoil(draw, world)
    world.ops = [draw_op(draw, world) for _ in range(draw.of([40, 25, 90]))]
    return world


def draw_hash_blocks(draw: Draw, world: World) -> None:
    """Hash blocks may be smaller than they need be, if there are several groups."""
    size = gcd(*world.block_sizes)
    if len(world.groups) > 1 and world.enable_caching and draw.chance(30):
        world.hash_block_size = draw.of([d for d in range(1, size + 1) if size % d == 0])


def spoil(draw: Draw, world: World) -> None:
    """Make a world that cannot be built."""
    draw.of(SPOILERS)(world)


def _odd_retention(world: World) -> None:
    world.retention = world.scheduler_block_size + 1


def _negative_retention(world: World) -> None:
    world.retention = -world.scheduler_block_size


def _wrong_hash_block(world: World) -> None:
    world.hash_block_size = max(world.block_sizes) + 1


def _one_spec_twice(world: World) -> None:
    world.groups = [dict(world.groups[0]), dict(world.groups[0])]


def _sinks(world: World) -> None:
    world.groups[0] = {"kind": "sink", "block_size": world.groups[0]["block_size"]}


SPOILERS = [_odd_retention, _negative_retention, _wrong_hash_block, _one_spec_twice, _sinks]


def draw_groups(draw: Draw, caching: bool) -> list[dict[str, Any]]:
    """One to five groups; sizes are small multiples of one base, windows are small."""
    base = draw.of([4, 2, 1, 4])
    sizes = draw.of([[base], [base, 2 * base], [base, 2 * base, 3 * base]])
    names = draw.of(HYBRIDS) if draw.chance(72) else [draw.of(SINGLES)]
    if "chunked" in names and caching:
        sizes = [base]  # its lookup wants blocks of the alignment
    if not caching and draw.chance(25):
        names = [*names, "cross"]
    speculative = draw.of([0, 1, 2]) if draw.chance(25) else 0
    mode = draw_mamba_mode(draw, caching)
    groups = [draw_group(draw, kind, draw.of(sizes), mode, speculative) for kind in names]
    if len(groups) > 1 and draw.chance(35):
        again = dict(draw.of(groups))  # two groups, one spec
        groups.insert(draw.below(len(groups) + 1), again)
    distinct = {tuple(sorted(g.items())) for g in groups}
    return groups if len(distinct) > 1 or not caching else groups[:1]


def draw_mamba_mode(draw: Draw, caching: bool) -> str:
    return draw.of(["align", "align", "all"] if caching else ["none", "align", "all"])


def draw_group(draw: Draw, kind: str, size: int, mode: str, speculative: int) -> dict[str, Any]:
    if kind == "full":
        kind = draw.of(FULL)
        group: dict[str, Any] = {"kind": kind, "block_size": size}
        if draw.chance(20):
            group["head_size"] = 16
    elif kind == "sliding":
        group = {"kind": draw.of(SLIDING), "block_size": size, "window": draw.between(1, 20)}
    else:
        group = {"kind": kind, "block_size": size}
    if kind == "rswa":
        group["window"] = draw.between(1, 12)
    if kind == "chunked":
        group["chunk"] = size * draw.between(1, 4) + (draw.below(size) if draw.chance(20) else 0)
    if kind == "mamba":
        group["mode"] = mode
        if speculative:
            group["speculative"] = speculative
    return group


def common_settings(draw: Draw, world: World) -> None:
    """Draw what managers and schedulers have in common."""
    world.max_model_len = draw.of([64, 30, 100, 200])
    world.max_num_batched_tokens = draw.of([64, 16, 12])
    world.watermark = draw.of([0.0, 0.1, 0.3]) if draw.chance(25) else 0.0
    if draw.chance(35):
        draw_eagle(draw, world, flagged=draw.chance(50) or "chunked" in world.kinds)
    thins_out = world.kinds & {"sliding", "sliding_mla", "mamba"}
    if thins_out and draw.chance(25):
        world.retention = draw.below(4) * world.scheduler_block_size


def draw_eagle(draw: Draw, world: World, flagged: bool) -> None:
    """EAGLE for all groups, or for some that are flagged; chunked attention knows no EAGLE."""
    if flagged:
        for group in world.groups:
            if group["kind"] != "chunked" and draw.chance(50):
                group["eagle"] = True
    world.use_eagle = any(g.get("eagle") for g in world.groups) or not flagged


def draw_encoders(draw: Draw, world: World) -> None:
    if "cross" in world.kinds:
        for request in world.requests:
            request["encoder"] = draw.between(0, 20)


# -- requests --------------------------------------------------------------------------------
SOURCES = ["A", "A", "A", "B"]


def draw_requests(draw: Draw, world: World, count: int) -> list[dict[str, Any]]:
    """Families of prompts: a prefix of a document, perhaps of another, and a tail of its own.

    Now and then one is an earlier one again, exactly or with its output and a new question.
    """
    requests: list[dict[str, Any]] = []
    longest = min(draw.of([48, 48, 48, 120]), world.max_model_len - 2)
    for number in range(count):
        if requests and draw.chance(30):
            request = draw_again(draw, requests, number, longest)
        else:
            request = {"prompt": draw_prompt(draw, number, longest)}
        total = sum(length for _, _, length in request["prompt"])
        request["max_tokens"] = 1 + draw.below(16)
        if not draw.chance(15):
            request["max_tokens"] = min(request["max_tokens"], world.max_model_len - total)
        if draw.chance(5):
            request["skip"] = True
        if draw.chance(6):
            request["salt"] = draw.of(["s", "t"])
        requests.append(request)
    return requests


def draw_prompt(draw: Draw, number: int, longest: int) -> list[list[Any]]:
    total = 1 + draw.below(longest)
    shared = min(total, draw.below(longest + 12))
    first = shared - (draw.below(shared + 1) if draw.chance(30) else 0)
    spans = [
        [draw.of(SOURCES), 0, first],
        ["C", 0, shared - first],
        [f"own{number}", 0, total - shared],
    ]
    return [span for span in spans if span[2]]


def draw_again(
    draw: Draw, requests: list[dict[str, Any]], number: int, longest: int
) -> dict[str, Any]:
    earlier = draw.below(len(requests))
    prompt = [list(span) for span in requests[earlier]["prompt"]]
    if draw.chance(50):
        prompt.append([f"out{earlier}", 0, requests[earlier]["max_tokens"]])
        prompt.append([f"own{number}", 0, 1 + draw.below(6)])
    return {"prompt": cut(prompt, longest)}


def cut(prompt: list[list[Any]], longest: int) -> list[list[Any]]:
    kept, left = [], longest
    for source, start, length in prompt:
        if left > 0:
            kept.append([source, start, min(length, left)])
            left -= length
    return kept


# -- operations --------------------------------------------------------------------------------
def admit(draw: Draw, world: World) -> list[Any]:
    op = [
        "admit",
        draw.below(4),
        draw.of([1, 1, 2, 3]),
        draw.of([0, 0, 0, 1, 3]),
        draw.below(2),
        draw.below(2),
    ]
    if draw.chance(20) and may_load(world):
        reserved = draw.below(4) if draw.chance(20) else 0
        op += [draw.below(24), int(draw.chance(40)), reserved]
    return op


def may_load(world: World) -> bool:
    """False where the reference's count of external blocks may be negative (D.4 with Q3)."""
    specs = {tuple(sorted(g.items())) for g in world.groups if g["kind"] in FULL_KINDS}
    return len(specs) < 2 and "cross" not in world.kinds


def go_on(draw: Draw, world: World) -> list[Any]:
    drafts = draw.below(4) if draw.chance(30) else 0
    return [
        "go_on",
        draw.below(6),
        draw.of([1, 1, 2]),
        drafts,
        draw.below(drafts + 1),
        draw.of([0, 0, 0, 2]),
        int(draw.chance(5)),
        draw.below(6) if draw.chance(5) else 0,
    ]


def draw_op(draw: Draw, world: World) -> list[Any]:
    return draw.of(CALLS)(draw, world)


def simple(verb: str, *bounds: int):
    """Return a maker of one operation whose numbers lie below these bounds."""
    return lambda draw, world: [verb, *(draw.below(b) for b in bounds)]


CALLS = [
    *[admit] * 12,
    *[go_on] * 16,
    *[simple("come")] * 2,
    *[simple("new_step")] * 4,
    *[simple("free", 6)] * 3,
    *[simple("loaded", 4, 6)] * 2,
    *[simple("partial", 6, 4, 3)] * 3,
    simple("preempt", 6),
    simple("evict", 60),
    simple("evict", 60, 60, 60),
    simple("look_up", 8),
    simple("look_up_direct", 8, 64),
    simple("look_up_direct", 8, 64, 2),
    simple("common", 8),
    simple("slide", 6, 4),
    simple("cache", 6, 6),
    simple("ids_for_computed", 6, 8),
    simple("park", 6),
    simple("give_back"),
    lambda draw, world: ["reset", int(draw.chance(30))],
    simple("free_waiting", 4),
    simple("take_stats"),
    simple("take_new_ids"),
]

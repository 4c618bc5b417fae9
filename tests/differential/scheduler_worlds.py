"""Random scheduler worlds: streams of requests that share prefixes, and too few blocks for them."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw
from tests.differential.manager_worlds import (
    common_settings,
    draw_groups,
    draw_hash_blocks,
    draw_requests,
)
from tests.differential.world import EAGLE_METHODS, World

METHODS = ["eagle", "ngram", "draft_model", "mtp", "dflash", "ngram", "dspark", "eagle3"]


def scheduler_world(draw: Draw) -> World:
    """Return one world; the simplest one is synchronous, first come first served."""
    caching = not draw.chance(8)
    groups = [g for g in draw_groups(draw, caching) if g["kind"] != "cross"]
    world = World("scheduler", groups, 0, enable_caching=caching)
    common_settings(draw, world)
    world.use_eagle = False
    draw_speculation(draw, world)
    draw_limits(draw, world)
    low, high = draw.of([(8, 24), (4, 14), (20, 50)])
    world.num_blocks = 2 + draw.between(low, high) * min(len(groups), 3)
    if draw.chance(3):
        world.num_blocks = draw.between(1, 4)
    draw_hash_blocks(draw, world)
    if len(groups) == 1 and caching and groups[0]["kind"] in ("full", "mla") and draw.chance(15):
        world.dcp = draw.of([2, 4])
    world.events = draw.chance(50)
    world.requests = draw_requests(draw, world, draw.between(3, draw.of([14, 14, 30])))
    draw_more_of_requests(draw, world)
    world.ops = draw_ops(draw, world)
    return world


def draw_speculation(draw: Draw, world: World) -> None:
    flags = [g for g in world.groups if g.pop("eagle", False)]
    if not draw.chance(35):
        return
    world.spec_method = draw.of(METHODS)
    world.num_spec_tokens = draw.between(1, 3)
    for group in world.groups:
        if group["kind"] == "mamba":
            group["speculative"] = world.num_spec_tokens
    world.use_eagle = world.spec_method in EAGLE_METHODS and "chunked" not in world.kinds
    if not world.use_eagle and world.spec_method in EAGLE_METHODS:
        world.spec_method = "ngram"
    if world.use_eagle and flags:
        for group in world.groups:
            if draw.chance(50):
                group["eagle"] = True


def draw_limits(draw: Draw, world: World) -> None:
    block = min(world.block_sizes) if world.has_align else 1
    world.max_num_batched_tokens = max(draw.of([16, 8, 32, 64]), block)
    world.max_num_seqs = draw.of([16, 4, 2, 8])
    threshold = draw.between(1, 12) if draw.chance(25) else 0
    world.threshold = max(threshold, block) if threshold else 0
    world.chunked = not draw.chance(12)
    world.gate = not draw.chance(60)
    world.policy = "priority" if draw.chance(35) else "fcfs"
    world.asynchronous = draw.chance(45)
    world.max_loras = draw.of([1, 2]) if draw.chance(12) else 0


def draw_more_of_requests(draw: Draw, world: World) -> None:
    grammar = draw.chance(10)
    stops = draw.chance(30)
    for request in world.requests:
        if world.policy == "priority":
            request["priority"] = draw.below(3)
            if draw.chance(30):
                request["arrival"] = draw.below(4)
        if world.max_loras and draw.chance(70):
            request["lora"] = draw.of(["x", "y", "z"])
        if grammar and draw.chance(30):
            request["grammar"] = True
        if stops and draw.chance(40):
            request["stop_after"] = draw.between(1, request["max_tokens"])
        if world.num_spec_tokens:
            request["accepted"] = [draw.below(world.num_spec_tokens + 1) for _ in range(4)]
            if draw.chance(30):
                request["proposed"] = [draw.below(world.num_spec_tokens + 1) for _ in range(3)]


def draw_ops(draw: Draw, world: World) -> list[list[Any]]:
    """Steps, with arrivals first and others in between, and now and then something rude."""
    throttled = draw.chance(15)
    ops: list[list[Any]] = [["add", draw.between(1, 4)]]
    for _ in range(draw.of([20, 12, 40, 80])):
        if draw.chance(25):
            ops.append(["add", draw.between(1, 3)])
        if draw.chance(4):
            ops.append(["abort", draw.below(8), draw.below(8)][: 2 + draw.below(2)])
        if draw.chance(3):
            ops.append(["reset", draw.below(2)])
        if draw.chance(4):
            ops.append(["evict", draw.below(60), draw.below(60)])
        ops.append(["schedule", int(throttled and draw.chance(60))])
        if draw.chance(3):
            ops.append(["abort", draw.below(8)])
        if draw.chance(3):
            ops.append(["reset", draw.below(2)])
        if draw.chance(8):
            ops.append(["grammar", draw.below(4)])
        late = 60 if world.asynchronous else 0
        if not draw.chance(late):
            ops.append(["update"])
    return ops

"""A world is plain data: what a manager or a scheduler is built from, and what is asked of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from math import gcd, lcm
from typing import Any

from sim.core.request_content import RequestContent
from sim.prefix_ids import PrefixIds
from sim.request import Span
from sim.token_ids import token_ids

EAGLE_METHODS = ("eagle", "eagle3", "mtp")


@dataclass
class World:
    """Everything is JSON: numbers, texts, lists and dicts of them.

    groups : {"kind", "block_size", ...}, see ``specs.py``; "eagle": true flags a group.
    requests : {"prompt": [[source, start, length], ...], "max_tokens", ...}; the output of request
        i is the source "out<i>", so that a later prompt can go on from it.
    ops : [verb, number, ...]; numbers that choose something are taken modulo what there is.
    """

    level: str
    groups: list[dict[str, Any]]
    num_blocks: int
    requests: list[dict[str, Any]] = field(default_factory=list)
    ops: list[list[Any]] = field(default_factory=list)
    max_model_len: int = 64
    max_num_batched_tokens: int = 64
    enable_caching: bool = True
    use_eagle: bool = False
    hash_block_size: int | None = None
    watermark: float = 0.0
    retention: int | None = None
    dcp: int = 1
    pcp: int = 1
    events: bool = True
    metrics: bool = False
    # the scheduler's
    max_num_seqs: int = 16
    threshold: int = 0
    chunked: bool = True
    gate: bool = True
    policy: str = "fcfs"
    asynchronous: bool = False
    spec_method: str | None = None
    num_spec_tokens: int = 0
    max_loras: int = 0

    @property
    def block_sizes(self) -> list[int]:
        return [g["block_size"] * self.dcp * self.pcp for g in self.groups]

    @cached_property
    def has_partial_entries(self) -> bool:
        return any(op[0] == "partial" for op in self.ops)

    @property
    def scheduler_block_size(self) -> int:
        return lcm(*self.block_sizes)

    @property
    def hash_size(self) -> int:
        return self.hash_block_size or gcd(*self.block_sizes)

    @property
    def lookahead(self) -> int:
        """Slots beyond the step's tokens that the draft model needs (spec/manager.md 6.1)."""
        if self.spec_method in (*EAGLE_METHODS, "draft_model", "dspark"):
            return self.num_spec_tokens
        return self.num_spec_tokens + 1 if self.spec_method == "dflash" else 0

    @property
    def kinds(self) -> set[str]:
        return {g["kind"] for g in self.groups}

    @property
    def has_align(self) -> bool:
        return any(g.get("mode") == "align" for g in self.groups)

    def dumps(self) -> str:
        """Return one line of JSON; what is as by default is left out."""
        plain = World(self.level, [], 0)
        told = {
            key: value
            for key, value in asdict(self).items()
            if key in ("level", "groups", "num_blocks") or value != getattr(plain, key)
        }
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> World:
        data = json.loads(text)
        unknown = set(data) - {f.name for f in fields(cls)}
        if unknown:
            raise ValueError(f"a world has no {sorted(unknown)}")
        return cls(**data)


class Content:
    """The tokens of every request, and the identity of every hash block of them."""

    def __init__(self, world: World):
        self.ids = PrefixIds(world.hash_size)
        self.spans = [self._spans(i, r) for i, r in enumerate(world.requests)]
        self.prefix_ids = [
            self.ids.of_spans(spans, identity_salt(r)).tolist()
            for spans, r in zip(self.spans, world.requests, strict=True)
        ]

        self.tokens = [token_ids(spans) for spans in self.spans]

    @staticmethod
    def _spans(number: int, request: dict[str, Any]) -> list[Span]:
        prompt = [Span(*span) for span in request["prompt"]]
        return [*prompt, Span(f"out{number}", 0, request["max_tokens"])]

    def of(self, world: World, number: int) -> RequestContent:
        """Return a request's content as our events want it."""
        told, tokens = world.requests[number], self.tokens[number]
        return RequestContent(
            lambda first, last: tokens[first:last],
            self.prefix_ids[number],
            told.get("lora"),
            told.get("salt"),
        )


def num_prompt_tokens(request: dict[str, Any]) -> int:
    return sum(length for _, _, length in request["prompt"])


def identity_salt(request: dict[str, Any]) -> str | None:
    """What separates equal tokens: the adapter and the salt, as one text."""
    parts = (request.get("lora"), request.get("salt"))
    return "\0".join(p or "" for p in parts) if any(parts) else None


def num_accepted(world: World, number: int, num_output_tokens: int, drafts: int) -> int:
    """Return how many of its drafts the model accepts of a request that has so many outputs."""
    numbers = world.requests[number].get("accepted") or [0]
    return min(numbers[num_output_tokens % len(numbers)], drafts)


def num_proposed(world: World, number: int, num_output_tokens: int) -> int:
    """Return how many drafts are proposed, at most the world's number."""
    numbers = world.requests[number].get("proposed") or [world.num_spec_tokens]
    return min(numbers[num_output_tokens % len(numbers)], world.num_spec_tokens)

"""What is asked of the engine: spans of tokens, request specs, and the scheduler's record."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np


class Span(NamedTuple):
    """``length`` tokens of the endless token stream ``source``, from position ``start``.

    Two positions hold the same token exactly when source and position are equal: content is never
    written down, it is named. Lengths are at least 1.
    """

    source: str
    start: int
    length: int


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the normal form: no empty spans, neighbours that continue each other joined.

    >>> merge_spans([Span("a", 0, 4), Span("a", 4, 2), Span("b", 0, 0)])
    (Span(source='a', start=0, length=6),)
    """
    merged: list[Span] = []
    for span in spans:
        if span.length <= 0:
            continue
        if merged and _continues(merged[-1], span):
            last = merged.pop()
            span = Span(last.source, last.start, last.length + span.length)
        merged.append(span)
    return tuple(merged)


def _continues(left: Span, right: Span) -> bool:
    return left.source == right.source and left.start + left.length == right.start


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request as a workload makes it. The output's length is fixed at arrival.

    request_id is stable text such as ``session.turn``; cache_salt separates cached content of
    different tenants, lora_name that of different adapters; tags are free text for the result
    tables. max_tokens is the engine's limit: an output that is shorter ends with EOS, which the
    engine does not foresee; None is the output's length. num_encoder_tokens is what cross attention
    reads.
    """

    request_id: str
    prompt: tuple[Span, ...]
    output: Span
    priority: int = 0
    session_id: str | None = None
    cache_salt: str | None = None
    tags: tuple[str, ...] = ()
    lora_name: str | None = None
    max_tokens: int | None = None
    num_encoder_tokens: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < self.output.length:
            raise ValueError(
                f"request {self.request_id}: max_tokens is {self.max_tokens}, "
                f"the output has {self.output.length} tokens"
            )
        for span in (*self.prompt, self.output):
            if span.length < 1 or span.start < 0:
                raise ValueError(f"request {self.request_id}: {span} is not a span of tokens")

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return sum(span.length for span in self.prompt)

    @property
    def num_output_tokens(self) -> int:
        """Tokens that will be generated."""
        return self.output.length


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended: the value of ``Submission.done``.

    status is ``finished``, ``aborted`` or ``rejected``; times are nanoseconds of simulated time
    (None where the moment never came); num_cached_tokens counts the first admission.
    """

    request_id: str
    status: str
    arrival_ns: int
    first_token_ns: int | None
    finish_ns: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    reason: str | None = None


@dataclass(slots=True)
class Submission:
    """What ``submit`` returns: two SimPy events and a way to go away.

    ``first_token`` succeeds with the time in nanoseconds, ``done`` with an ``Outcome``. A request
    that ends without a first token never triggers ``first_token``.
    """

    spec: RequestSpec
    first_token: Any
    done: Any
    abort: Callable[[], None]


class RequestStatus(IntEnum):
    """Where a request is; finished states come after PREEMPTED. Source: spec/manager.md 2.6."""

    WAITING = 0
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = 1
    WAITING_FOR_REMOTE_KVS = 2
    WAITING_FOR_STREAMING_REQ = 3
    RUNNING = 4
    PREEMPTED = 5
    FINISHED_STOPPED = 6
    FINISHED_LENGTH_CAPPED = 7
    FINISHED_ABORTED = 8
    FINISHED_IGNORED = 9
    FINISHED_ERROR = 10
    FINISHED_REPETITION = 11

    @property
    def is_finished(self) -> bool:
        """True for states that a request does not leave."""
        return self > RequestStatus.PREEMPTED

    @property
    def is_blocked(self) -> bool:
        """True while a waiting request must be passed over until something else has come."""
        return RequestStatus.WAITING < self < RequestStatus.RUNNING


@dataclass(slots=True, eq=False)
class Request:
    """The scheduler's own mutable record of one request; compared by identity.

    ``prefix_ids[i]`` names the prefix that ends at token ``(i + 1) * hash_block_size`` of prompt
    and output together; only the first ``num_tokens // hash_block_size`` are known to the engine at
    any time. ``num_tokens`` counts the prompt and what has been generated so far. Times are
    nanoseconds, -1 where the moment has not come.

    stop_after : output tokens of which the last is EOS; None: only max_tokens ends the request.
    num_draft_tokens : drafts to verify in the next step.
    num_output_placeholders : tokens that steps in flight will bring.
    async_tokens_to_discard : outputs in flight that a reset made worthless.
    has_placeholder_drafts : whether drafts in flight only fill a place, and will be rejected.
    is_prefill_chunk : whether the last step left known tokens uncomputed.
    num_cached_tokens : hit of the first admission.
    num_prefill_cached_tokens : hit of the last admission before the first output, as vLLM reports.
    next_decode_eligible_step : 0, for there is one pipeline stage.
    ends_at : number of tokens, prompt included, at which it ends; the scheduler sets it.
    quiet_until : smallest total of tokens at which a decode step must be looked at closely.

    Source: spec/manager.md 2.6.
    """

    request_id: str
    num_prompt_tokens: int
    max_tokens: int
    prefix_ids: Sequence[int] = ()
    arrival_ns: int = 0
    priority: int = 0
    skip_reading_prefix_cache: bool = False
    session_id: str | None = None
    tags: tuple[str, ...] = ()

    status: RequestStatus = RequestStatus.WAITING
    num_tokens: int = -1
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    num_cached_tokens: int = -1
    num_prefill_cached_tokens: int = -1
    first_scheduled_ns: int = -1
    first_token_ns: int = -1
    finish_ns: int = -1
    outcome: str = ""
    reason: str | None = None
    quiet_until: int = 0
    ends_at: int = 0
    stop_after: int | None = None
    lora_name: str | None = None
    num_encoder_tokens: int = 0
    num_output_placeholders: int = 0
    num_draft_tokens: int = 0
    async_tokens_to_discard: int = 0
    is_prefill_chunk: bool = False
    has_placeholder_drafts: bool = False
    next_decode_eligible_step: int = 0
    _coarse: dict[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_tokens < 0:
            self.num_tokens = self.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def sort_key(self) -> tuple[int, int, str]:
        """Order under the priority policy, smaller first. Source: spec/manager.md 2.6."""
        return self.priority, self.arrival_ns, self.request_id

    def prefix_ids_by(self, factor: int) -> Sequence[int]:
        """Identities at ``factor`` hash blocks each: no new identity, every factor-th one.

        A list, made at the first call: the compact array that waits in ``prefix_ids`` makes a new
        integer at each access. Cost: O(len / factor) at the first call of a factor, O(1) after.
        """
        coarse = self._coarse.get(factor)
        if coarse is None:
            coarse = self._coarse[factor] = list(self.prefix_ids[factor - 1 :: factor])
        return coarse


class PrefixIds:
    """Dense integers for prefixes: equal integers exactly for equal tokens up to the boundary.

    A prefix is named by the spans before it, the source and start of the span it ends in, and its
    length. Spans that begin in the same way share a node of a trie; a node hands out one integer
    for each hash block that ends inside it. So the cost is per span and per block, never per token.

    Invariants: ids are given in order from 0; an id never changes its meaning.
    Source: ours; plays the part of vLLM's chained block hashes (spec/manager.md 2.3, 2.6).
    """

    def __init__(self, hash_block_size: int):
        if hash_block_size < 1:
            raise ValueError(f"hash_block_size is {hash_block_size}, must be at least 1")
        self.hash_block_size = hash_block_size
        self._nodes: dict[tuple[int, int, str, int], int] = {}
        self._ids: list[array[int]] = []
        self._roots: dict[tuple[str | None, str | None], int] = {}
        self._next = 0

    def __len__(self) -> int:
        """Return how many identities were given so far."""
        return self._next

    def of(self, spec: RequestSpec) -> np.ndarray:
        """Return int64 ids of each full hash block of prompt and output.

        Returns
        -------
        array, shape ((num_prompt_tokens + num_output_tokens) // hash_block_size,)
        """
        return self.of_spans((*spec.prompt, spec.output), spec.cache_salt, spec.lora_name)

    def of_spans(
        self, spans: Iterable[Span], salt: str | None = None, lora: str | None = None
    ) -> np.ndarray:
        """Return int64 ids of each full hash block of a sequence of spans.

        salt, lora : equal tokens under another salt or adapter are other prefixes.
        """
        size = self.hash_block_size
        parts: array[int] = array("q")
        node = self._roots.setdefault((salt or None, lora or None), -1 - len(self._roots))
        position = 0
        for span in merge_spans(spans):
            node = self._node(node, position, span)
            end = position + span.length
            parts.extend(self._first_ids(node, end // size - position // size))
            position = end
        return np.frombuffer(parts, dtype=np.int64) if parts else np.empty(0, np.int64)

    def collisions(self) -> list[int]:
        """Return the identities that do not name exactly one prefix; none, unless damage was done.

        An identity may be given once, in one node, and all that were given are below ``len``.
        Cost: O(identities).
        """
        given = np.concatenate([np.array(ids, np.int64) for ids in self._ids] or [np.empty(0)])
        names, counts = np.unique(given, return_counts=True)
        lost = np.setdiff1d(np.arange(self._next), names)
        foreign = names[(names < 0) | (names >= self._next)]
        broken: list[int] = np.unique(
            np.concatenate([names[counts > 1], lost, foreign]).astype(np.int64)
        ).tolist()
        return broken

    def _node(self, parent: int, position: int, span: Span) -> int:
        key = (parent, position, span.source, span.start)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = len(self._ids)
            self._ids.append(array("q"))
        return node

    def _first_ids(self, node: int, count: int) -> array[int]:
        ids = self._ids[node]
        missing = count - len(ids)
        if missing > 0:
            ids.extend(range(self._next, self._next + missing))
            self._next += missing
        return ids if len(ids) == count else ids[:count]

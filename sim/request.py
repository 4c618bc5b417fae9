"""What is asked of the engine: spans of tokens, request specs, and the scheduler's record."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

Run = tuple[int, int]
"""Identities of hash blocks, from the first number to below the second."""


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


class ListedBlocks(Sequence[Span]):
    """The spans of a prompt that a trace lists as numbered blocks of one size, in little memory.

    Block ``n`` is all of the source ``trace:n`` from its start; what is behind the last whole one
    is ``rest``. It is the sequence of these spans, which are made when they are asked for.
    """

    __slots__ = ("block_size", "numbers", "rest")

    def __init__(self, numbers: Sequence[int], block_size: int, rest: tuple[Span, ...] = ()):
        self.numbers = numbers
        self.block_size = block_size
        self.rest = rest

    def __len__(self) -> int:
        return len(self.numbers) + len(self.rest)

    def __getitem__(self, place: Any) -> Any:
        return tuple(self)[place]

    def __iter__(self) -> Iterator[Span]:
        for number in self.numbers:
            yield Span(f"trace:{number}", 0, self.block_size)
        yield from self.rest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def num_tokens(self) -> int:
        """Tokens of all spans."""
        return len(self.numbers) * self.block_size + sum(span.length for span in self.rest)

    def flat(self) -> tuple[Any, ...]:
        """Return source, start and length of one span after the other; numbers are sources."""
        count = len(self.numbers)
        flat: list[Any] = [0] * (3 * count)
        flat[::3] = self.numbers
        flat[2::3] = [self.block_size] * count
        return (*flat, *chain.from_iterable(self.rest))


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
    prompt: Sequence[Span]
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
        if type(self.prompt) is ListedBlocks:
            return
        _, starts, lengths = zip(*self.prompt, self.output, strict=True)
        if min(starts) < 0 or min(lengths) < 1:
            spans = (*self.prompt, self.output)
            wrong = next(span for span in spans if span.length < 1 or span.start < 0)
            raise ValueError(f"request {self.request_id}: {wrong} is not a span of tokens")

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        if type(self.prompt) is ListedBlocks:
            return self.prompt.num_tokens
        return sum([length for _, _, length in self.prompt])

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


class OpenLoop(Generator[Any, Any, None]):
    """A SimPy process that submits requests at their instants and waits for nothing else.

    arrivals : (nanoseconds, what is submitted) in order; an engine that can be told of requests
        before they arrive takes them from here, and the process is not run
    submit : whom it submits them to
    process : the process, for all others
    """

    def __init__(
        self,
        arrivals: Iterator[tuple[int, RequestSpec]],
        submit: Callable[[RequestSpec], Submission],
        process: Generator[Any, Any, None],
    ):
        self.arrivals = arrivals
        self.submit = submit
        self._process = process

    def send(self, value: Any) -> Any:
        """Go on."""
        return self._process.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where the process waits."""
        return self._process.throw(*error)


class Submission:
    """What ``submit`` returns: two SimPy events and a way to go away.

    ``first_token`` succeeds with the time in nanoseconds, ``done`` with an ``Outcome``. A request
    that ends without a first token never triggers ``first_token``. An event is made when it is
    first asked for; if its moment lies in the past, it is one that has been processed, so that a
    process that yields it goes on at once.

    make_event : (submission, "first_token" or "done") -> the event
    abort : what ``abort()`` does with the submission
    request : the scheduler's record of it, None while there is none

    first_token_event and done_event are the events as far as somebody has asked for them.
    """

    __slots__ = ("_abort", "_make_event", "done_event", "first_token_event", "request", "spec")

    def __init__(
        self,
        spec: RequestSpec,
        make_event: Callable[[Submission, str], Any],
        abort: Callable[[Submission], None],
        request: Request | None = None,
    ):
        self.spec = spec
        self.request = request
        self.first_token_event: Any = None
        self.done_event: Any = None
        self._make_event = make_event
        self._abort = abort

    @property
    def first_token(self) -> Any:
        """The event of the first output token."""
        if self.first_token_event is None:
            self.first_token_event = self._make_event(self, "first_token")
        return self.first_token_event

    @property
    def done(self) -> Any:
        """The event of its end."""
        if self.done_event is None:
            self.done_event = self._make_event(self, "done")
        return self.done_event

    def abort(self) -> None:
        """Ask the engine to end it; too late is no error."""
        self._abort(self)


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

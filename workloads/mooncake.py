"""Requests of a trace in Mooncake's JSONL form.

One JSON object a line (plain, gzip or xz), sorted by time:

============== ===== ==========================================================================
field          alias what it is
============== ===== ==========================================================================
timestamp      ts    arrival, a number >= 0 in ``time_unit`` (ms in Mooncake's own files)
input_length   il    tokens of the prompt
output_length  ol    tokens to generate; 0 is taken as 1, for an engine always samples a token,
                     and the request gets the tag ``zero_output``
hash_ids       bh    one id per block of ``block_size`` prompt tokens: whole numbers, or strings
                     of digits; floor or ceiling of input / block of them
session_id     -     optional, a text or a whole number: goes into the result table
============== ===== ==========================================================================

Other keys are allowed and ignored. The aliases are those of rtp-llm's logs. Publishers differ in
block size and time unit: Mooncake 512 and ms, rtp-llm 1024 and ms, Qwen-Bailian 16 and s.

Content: a listed full block is a span of its id. A listed partial last block, tokens behind the
last listed block, and the output are private to the request: the trace does not say what they
share (less than one trace block of tokens). Whether ids name a block alone or the whole prefix
does not matter: the simulator names a prefix by all spans up to a token, so ids that do not chain
are chained by it, and ids that do chain lose nothing.

Source: kvcache-ai/Mooncake, FAST25-release/traces; design 4.2, 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import simpy
from pydantic import BeforeValidator, Field

from sim.request import ListedBlocks, RequestSpec, Span, Submission

from .arrivals import Arrival, Process, closed_loop, instants_ns, pause_ns, submitted
from .params import NS_PER_S, Count, Params
from .streams import Streams
from .trace_file import Row, rows

_NAMES = {
    "timestamp": ("timestamp", "ts"),
    "input_length": ("input_length", "il"),
    "output_length": ("output_length", "ol"),
    "hash_ids": ("hash_ids", "bh"),
}
_UNITS_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MAX_TOKENS = 2**31 - 1
_MAX_NS = 2**62  # 146 years; result tables hold 64-bit integers
_MISSING = object()


class TraceArrival(Arrival):
    """Adds the instants of the trace.

    kind
        ``timestamps``: open loop, the instants of the trace. ``poisson``, ``gamma``: its requests
        in its order, at instants of their own. ``closed``: the same, ``concurrency`` at a time.
    """

    DEFAULTS: ClassVar[dict[str, float | int]] = Arrival.DEFAULTS

    kind: Literal["timestamps", "poisson", "gamma", "closed"] = "timestamps"


class MooncakeParams(Params):
    """Parameters of the workload ``mooncake``.

    path : the trace; relative paths start at the working directory
    block_size : tokens per listed id
    time_unit : of ``timestamp``
    max_requests : the first so many requests only; None = all
    skip_empty : leave out lines whose prompt has no tokens; otherwise they are errors
    arrival : when requests arrive: rates count requests; ``arrival_scale`` is for timestamps too
    """

    path: Annotated[
        str,
        BeforeValidator(lambda v: os.fspath(v) if isinstance(v, os.PathLike) else v),
        Field(min_length=1),
    ]
    block_size: Count = 512
    time_unit: Literal["s", "ms", "us", "ns"] = "ms"
    max_requests: Count | None = None
    skip_empty: bool = False
    arrival: TraceArrival = TraceArrival()


class _Line(NamedTuple):
    """What one line says, checked."""

    arrival_ns: int
    num_input: int
    num_output: int
    ids: list[int | str]
    session_id: str | None


def files(params: MooncakeParams) -> tuple[Path, ...]:
    """Return the files that the requests depend on."""
    return (Path(params.path),)


def count(params: MooncakeParams) -> int:
    """Return how many requests there are. Reads the whole trace, so it checks it as well."""
    return sum(1 for _ in _lines(params))


def process(
    env: simpy.Environment,
    submit: Callable[[RequestSpec], Submission],
    streams: Streams,
    params: MooncakeParams,
) -> Process:
    """Submit the requests of the trace; a SimPy process."""
    arrival = params.arrival
    if arrival.kind == "timestamps":
        return submitted(env, requests(params), submit)
    specs = (spec for _, spec in requests(params))
    if arrival.kind == "closed":
        return _closed(env, submit, streams, arrival, specs)
    instants = instants_ns(arrival, streams.child("mooncake.arrivals"))
    return submitted(env, zip(instants, specs, strict=False), submit)


def _closed(
    env: simpy.Environment,
    submit: Callable[[RequestSpec], Submission],
    streams: Streams,
    arrival: Arrival,
    specs: Iterator[RequestSpec],
) -> Process:
    def work(job: tuple[int, RequestSpec]) -> Process:
        number, spec = job
        pause = pause_ns(arrival.think_time_s, streams.child("mooncake.think", number))
        yield submit(spec).done
        if pause:
            yield env.timeout(pause)

    return closed_loop(env, enumerate(specs), arrival.concurrency, work)


def requests(params: MooncakeParams) -> Iterator[tuple[int, RequestSpec]]:
    """Yield (arrival in nanoseconds, request) in file order, reading no further than asked.

    Requests are called ``r0``, ``r1`` and so on. Equal arrivals are fine; a later line with an
    earlier one is an error, also where ``arrival`` makes its own instants.

    Raises
    ------
    workloads.errors.TraceFormatError : with the line and the field
    """
    for number, line in enumerate(_lines(params)):
        yield line.arrival_ns, _spec(line, f"r{number}", params.block_size)


def _lines(params: MooncakeParams) -> Iterator[_Line]:
    """Yield what each line says, or refuse it. Content is made of it by ``_spec``."""
    last_ns = 0
    for row in islice(_wanted(params), params.max_requests):
        arrival_ns = _arrival_ns(row, params)
        if arrival_ns < last_ns:
            row.refuse("timestamp", _value(row, "timestamp"), "no earlier than the line before")
        last_ns = arrival_ns
        num_input = _whole(row, "input_length", 1)
        num_output = _whole(row, "output_length", 0)
        ids = _hash_ids(row, num_input, params.block_size)
        yield _Line(arrival_ns, num_input, num_output, ids, _session_id(row))


def _wanted(params: MooncakeParams) -> Iterator[Row]:
    for row in rows(Path(params.path)):
        if not params.skip_empty or _whole(row, "input_length", 0) > 0:
            yield row


def _arrival_ns(row: Row, params: MooncakeParams) -> int:
    value = _value(row, "timestamp")
    finite = type(value) is int or (type(value) is float and isfinite(value))
    if not finite or value < 0:
        row.refuse("timestamp", value, "a finite number, at least 0")
    units, per_ns = _ns_per_unit(params.time_unit, params.arrival.arrival_scale)
    numerator, denominator = value.as_integer_ratio()
    arrival_ns = _rounded(numerator * units, denominator * per_ns)
    if arrival_ns > _MAX_NS:
        row.refuse("timestamp", value, f"an arrival within {_MAX_NS} ns of the start")
    return arrival_ns


@lru_cache
def _ns_per_unit(time_unit: str, arrival_scale: float) -> tuple[int, int]:
    """Return nanoseconds of the run per unit of the trace, as a fraction in lowest terms."""
    unit_ns = NS_PER_S // _UNITS_PER_S[time_unit]
    return (unit_ns / Fraction(arrival_scale)).as_integer_ratio()


def _rounded(numerator: int, denominator: int) -> int:
    """Return the nearest whole number of a fraction, the even one of two."""
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest + whole % 2 > denominator)


def _spec(line: _Line, request_id: str, block_size: int) -> RequestSpec:
    num_full, rest = divmod(line.num_input, block_size)
    behind = (Span(f"{request_id}.prompt", 0, rest),) if rest else ()
    return RequestSpec(
        request_id=request_id,
        prompt=_prompt(line.ids[:num_full], block_size, behind),
        output=Span(f"{request_id}.output", 0, max(1, line.num_output)),
        session_id=line.session_id,
        tags=() if line.num_output else ("zero_output",),
    )


def _prompt(ids: list[int | str], block_size: int, rest: tuple[Span, ...]) -> Sequence[Span]:
    """Return the spans of the listed blocks and the rest; a text of digits names by its letters."""
    if set(map(type, ids)) <= {int}:
        return ListedBlocks(cast(list[int], ids), block_size, rest)
    numbers = [int(i) for i in ids]
    if all(str(number) == str(i) for number, i in zip(numbers, ids, strict=True)):
        return ListedBlocks(numbers, block_size, rest)
    return (*(Span(f"trace:{i}", 0, block_size) for i in ids), *rest)


def _hash_ids(row: Row, num_input: int, block_size: int) -> list[int | str]:
    ids = _value(row, "hash_ids")
    if not isinstance(ids, list):
        row.refuse("hash_ids", ids, "a list of block ids")
    full, partial = divmod(num_input, block_size)
    fitting = (full, full + 1) if partial else (full,)
    if len(ids) not in fitting:
        wanted = " or ".join(map(str, fitting))
        allowed = f"{wanted} ids for {num_input} tokens in blocks of {block_size}"
        row.refuse("hash_ids", f"{len(ids)} ids", allowed)
    if not set(map(type, ids)) <= {int}:
        _check_texts(row, ids)
    return ids


def _check_texts(row: Row, ids: list[Any]) -> None:
    for found in ids:
        digits = isinstance(found, str) and found.isascii() and found.isdigit()
        if type(found) is not int and not digits:
            row.refuse("hash_ids", found, "whole numbers or strings of digits")


def _session_id(row: Row) -> str | None:
    value = row.fields.get("session_id")
    if value is None:
        return None
    if type(value) not in (int, str) or not _encodable(str(value)):
        row.refuse("session_id", value, "a text or a whole number")
    return str(value)


def _encodable(text: str) -> bool:
    """JSON can hold halves of surrogate pairs, which no file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(row: Row, field: str, least: int) -> int:
    value = _value(row, field)
    if type(value) is not int or not least <= value <= _MAX_TOKENS:
        row.refuse(field, value, f"a whole number from {least} to {_MAX_TOKENS}")
    return value


def _value(row: Row, field: str) -> Any:
    for name in _NAMES[field]:
        value = row.fields.get(name, _MISSING)
        if value is not _MISSING:
            return value
    row.refuse(field, "missing", f"a value is needed, called {' or '.join(_NAMES[field])}")

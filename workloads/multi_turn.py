"""Sessions that grow: a later turn contains every earlier turn, outputs included.

The prompt of turn k is the session's system prompt, then (user part, output) of each earlier
turn, then the new user part. So the later turn can hit what the earlier one computed, its
output as well. Turns of a session never overlap: the next one comes a think time after the one
before is done. A turn that is rejected or aborted ends its session.

Everything about session i is drawn at its start from the stream ("multi_turn.session", i), so it
cannot depend on the engine. Session starts have a stream of their own.

``num_requests`` scales the duration and not the load: sessions go on starting at the same rate
(open loop), or as many go on at a time (closed loop), until so many turns are planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import simpy
from pydantic import Field

from sim.request import RequestSpec, Span, Submission

from .arrivals import Arrival, Process, closed_loop, instants_ns, open_loop, pause_ns
from .lengths import Lengths
from .params import Count, Params, Seconds, Tokens
from .streams import Streams

KEPT_LENGTHS = 100_000  # of system prompts; those beyond are drawn again


class SessionArrival(Arrival):
    """Arrival of sessions."""

    DEFAULTS: ClassVar[dict[str, float | int]] = {
        **Arrival.DEFAULTS,
        "rate_per_s": 0.8,
        "concurrency": 32,
    }


class MultiTurnParams(Params):
    """Parameters of the workload ``multi_turn``.

    num_requests : turns of all sessions together; the last session is cut short to fit
    mean_turns : turns
        mean of the geometric distribution of turns in a session, before ``max_session_tokens``
    num_system_prompts : distinct system prompts; each session has one, all equally likely
    system_prompt : tokens, drawn once per system prompt
    first_user : tokens of the user part of a session's first turn
    user : tokens of the user part of later turns
    output : tokens of each output
    think_time_s : seconds
        mean of the exponential pause between the end of a turn and the next turn of its session
    max_session_tokens : tokens
        a session ends before a turn whose prompt and output together would exceed it; if that is
        the first turn, its user part is cut to fit, to 1 token at least
    arrival
        when sessions start: rates count sessions; with ``closed``, ``concurrency`` sessions at a
        time, and ``arrival.think_time_s`` is the pause between two sessions of a client
    """

    num_requests: Count = 500
    mean_turns: Annotated[float, Field(ge=1, le=1000)] = 5.0
    num_system_prompts: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    system_prompt: Lengths = Lengths(mean=1500, cv=0.3, maximum=4000)
    first_user: Lengths = Lengths(mean=4000, cv=0.8, maximum=16000)
    user: Lengths = Lengths(mean=400, cv=1.0, maximum=4000)
    output: Lengths = Lengths(mean=200, cv=0.5, maximum=1000)
    think_time_s: Seconds = 15.0
    max_session_tokens: Tokens = 20_000
    arrival: SessionArrival = SessionArrival()


class Turn(NamedTuple):
    """Tokens of the user part and the output, and the pause after it in nanoseconds."""

    num_user: int
    num_output: int
    pause_ns: int


@dataclass(frozen=True, slots=True)
class Session:
    """All that is drawn for one session; ``pause_ns`` is a closed-loop client's pause after it."""

    number: int
    system: Span
    turns: tuple[Turn, ...]
    pause_ns: int


def files(params: MultiTurnParams) -> tuple[()]:
    """Return the files that the requests depend on: none."""
    return ()


def count(params: MultiTurnParams) -> int:
    """Return how many requests there are, if no turn is rejected or aborted."""
    return params.num_requests


def process(
    env: simpy.Environment,
    submit: Callable[[RequestSpec], Submission],
    streams: Streams,
    params: MultiTurnParams,
) -> Process:
    """Run the sessions; a SimPy process."""
    arrival = params.arrival

    def talk(session: Session) -> Process:
        return _talk(env, submit, session)

    if arrival.kind == "closed":
        return closed_loop(env, sessions(streams, params), arrival.concurrency, talk)
    instants = instants_ns(arrival, streams.child("multi_turn.arrivals"))
    starts = zip(instants, sessions(streams, params), strict=False)
    return open_loop(env, starts, lambda session: env.process(talk(session)))


def _talk(
    env: simpy.Environment, submit: Callable[[RequestSpec], Submission], session: Session
) -> Process:
    history: list[Span] = [session.system]
    for number, turn in enumerate(session.turns):
        spec = _spec(session.number, number, history, turn)
        outcome = yield submit(spec).done
        if outcome.status != "finished":
            break
        history = [*spec.prompt, spec.output]
        last = number == len(session.turns) - 1
        pause = session.pause_ns if last else turn.pause_ns
        if pause:
            yield env.timeout(pause)


def _spec(session: int, number: int, history: list[Span], turn: Turn) -> RequestSpec:
    request_id = f"s{session}.{number}"
    return RequestSpec(
        request_id=request_id,
        prompt=(*history, Span(f"{request_id}.user", 0, turn.num_user)),
        output=Span(f"{request_id}.output", 0, turn.num_output),
        session_id=f"s{session}",
    )


def sessions(streams: Streams, params: MultiTurnParams) -> Iterator[Session]:
    """Yield sessions in order of number until ``num_requests`` turns are planned."""
    num_system_of = lru_cache(KEPT_LENGTHS)(system_lengths(streams, params))
    remaining = params.num_requests
    number = 0
    while remaining:
        session = plan(number, streams, params, num_system_of)
        if len(session.turns) > remaining:
            session = replace(session, turns=session.turns[:remaining])
        remaining -= len(session.turns)
        number += 1
        yield session


def system_lengths(streams: Streams, params: MultiTurnParams) -> Callable[[int], int]:
    """Return the function from a system prompt's number to its length; it draws at each call."""

    def num_system_of(prompt: int) -> int:
        return params.system_prompt.draw(streams.child("multi_turn.system", prompt))

    return num_system_of


def plan(
    number: int,
    streams: Streams,
    params: MultiTurnParams,
    num_system_of: Callable[[int], int] | None = None,
) -> Session:
    """Return what session ``number`` will do, at least one turn.

    num_system_of : ``system_lengths`` of the same arguments, to draw each length once
    """
    rng = streams.child("multi_turn.session", number)
    prompt = int(rng.integers(params.num_system_prompts))
    num_system = (num_system_of or system_lengths(streams, params))(prompt)
    num_turns = int(rng.geometric(1 / params.mean_turns))
    pause = pause_ns(params.arrival.think_time_s or 0.0, rng)
    turns = tuple(_turns(num_turns, num_system, rng, params))
    return Session(number, Span(f"system{prompt}", 0, num_system), turns, pause)


def _turns(
    num_turns: int, num_tokens: int, rng: np.random.Generator, params: MultiTurnParams
) -> Iterator[Turn]:
    for number in range(num_turns):
        num_user = (params.user if number else params.first_user).draw(rng)
        num_output = params.output.draw(rng)
        pause = pause_ns(params.think_time_s, rng)
        if number == 0:
            room = params.max_session_tokens - num_tokens - num_output
            num_user = max(1, min(num_user, room))
        num_tokens += num_user + num_output
        if number and num_tokens > params.max_session_tokens:
            return
        yield Turn(num_user, num_output, pause)

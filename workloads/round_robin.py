"""Conversations that take turns, one request at a time: the smallest test of a cache's capacity.

Conversation c has a prompt of its own. The requests go c0, c1, ..., c(N-1), c0, c1, ...; each is
sent when the one before has ended and the pause is over, so an LRU cache either holds all of
them or, one conversation more, none. With a ``suffix`` the last tokens of each request are new,
as when a client sends the same context again with another question.

Nothing is drawn: the seed changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

import simpy
from pydantic import Field, ValidationInfo, field_validator

from sim.request import RequestSpec, Span, Submission

from .arrivals import Process
from .params import NS_PER_S, Count, Params, Seconds, Tokens
from .streams import Streams


class RoundRobinParams(Params):
    """Parameters of the workload ``round_robin``.

    num_conversations : conversations that take turns
    num_rounds : how often each is sent
    prompt : tokens of each prompt
    suffix : tokens at the end of the prompt that are new in each round; fewer than ``prompt``
    output : tokens of each output
    pause_s : seconds
        between the end of a request and the next request
    """

    num_conversations: Count = 8
    num_rounds: Count = 3
    prompt: Tokens = 4564
    suffix: Annotated[int, Field(ge=0)] = 0
    output: Tokens = 1
    pause_s: Seconds = 0.0

    @field_validator("suffix")
    @classmethod
    def _shorter_than_the_prompt(cls, value: int, info: ValidationInfo) -> int:
        if "prompt" in info.data and value >= info.data["prompt"]:
            raise ValueError(f"less than the prompt of {info.data['prompt']} tokens")
        return value


def files(params: RoundRobinParams) -> tuple[()]:
    """Return the files that the requests depend on: none."""
    return ()


def count(params: RoundRobinParams) -> int:
    """Return how many requests there are."""
    return params.num_conversations * params.num_rounds


def process(
    env: simpy.Environment,
    submit: Callable[[RequestSpec], Submission],
    streams: Streams,
    params: RoundRobinParams,
) -> Process:
    """Submit one request after the other; a SimPy process."""
    pause = round(params.pause_s * NS_PER_S)
    for spec in requests(params):
        yield submit(spec).done
        if pause:
            yield env.timeout(pause)


def requests(params: RoundRobinParams) -> Iterator[RequestSpec]:
    """Yield the requests in their order, round by round."""
    for turn in range(params.num_rounds):
        for conversation in range(params.num_conversations):
            yield _spec(f"c{conversation}", turn, params)


def _spec(conversation: str, turn: int, params: RoundRobinParams) -> RequestSpec:
    request_id = f"{conversation}.{turn}"
    prompt = [Span(f"{conversation}.context", 0, params.prompt - params.suffix)]
    if params.suffix:
        prompt.append(Span(f"{request_id}.suffix", 0, params.suffix))
    output = Span(f"{request_id}.output", 0, params.output)
    return RequestSpec(request_id, tuple(prompt), output, tags=(f"round{turn}",))

"""Conversations with shared system prompts, made beforehand, the same for every engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.request import RequestSpec, Span, merge_spans

_SYSTEM_PROMPTS = 4


@dataclass(slots=True)
class Turn:
    """One request; ``after`` is the next one, which arrives ``think`` steps after this one ends."""

    spec: RequestSpec
    think: int
    after: Turn | None = None


def conversations(num_sessions: int, seed: int = 1) -> list[tuple[int, Turn]]:
    """Return (arrival step, first turn) of each conversation.

    System prompts of 200 to 1,500 tokens, 1 to 5 turns of 20 to 600 tokens, outputs of 10 to 120,
    0 to 40 steps of thought; three steps between conversations on average.
    """
    rng = np.random.default_rng(seed)
    systems = [Span(f"system.{i}", 0, int(rng.integers(200, 1501))) for i in range(_SYSTEM_PROMPTS)]
    step, stream = 0, []
    for session in range(num_sessions):
        system = systems[rng.integers(_SYSTEM_PROMPTS)]
        stream.append((step, _conversation(session, system, rng)))
        step += int(rng.integers(0, 7))
    return stream


def _conversation(session: int, system: Span, rng: np.random.Generator) -> Turn:
    history, first, last = (system,), None, None
    for number in range(int(rng.integers(1, 6))):
        user = Span(f"user.{session}.{number}", 0, int(rng.integers(20, 601)))
        output = Span(f"output.{session}.{number}", 0, int(rng.integers(10, 121)))
        prompt = merge_spans((*history, user))
        spec = RequestSpec(f"{session}.{number}", prompt, output, session_id=str(session))
        turn = Turn(spec, int(rng.integers(0, 41)))
        if last is None:
            first = turn
        else:
            last.after = turn
        history, last = (*prompt, output), turn
    assert first is not None
    return first


def all_specs(stream: list[tuple[int, Turn]]) -> list[RequestSpec]:
    """Return every request of a stream, conversation by conversation."""
    specs = []
    for _, first in stream:
        turn: Turn | None = first
        while turn is not None:
            specs.append(turn.spec)
            turn = turn.after
    return specs

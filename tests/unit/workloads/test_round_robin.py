"""The round robin: order, spans, pauses."""

from __future__ import annotations

import pytest
import simpy
from pydantic import ValidationError

from sim.request import Span, Submission
from workloads.round_robin import RoundRobinParams, process, requests
from workloads.streams import Streams


def test_conversations_take_turns_and_share_all_but_the_suffix():
    params = RoundRobinParams(num_conversations=2, num_rounds=2, prompt=10, suffix=3, output=2)
    specs = list(requests(params))
    assert [spec.request_id for spec in specs] == ["c0.0", "c1.0", "c0.1", "c1.1"]
    assert specs[2].prompt == (Span("c0.context", 0, 7), Span("c0.1.suffix", 0, 3))
    assert specs[0].prompt[0] == specs[2].prompt[0]
    assert specs[0].prompt[1] != specs[2].prompt[1]
    assert specs[2].output == Span("c0.1.output", 0, 2)


def test_without_a_suffix_every_round_is_the_same():
    specs = list(requests(RoundRobinParams(num_conversations=1, num_rounds=2, prompt=10)))
    assert specs[0].prompt == specs[1].prompt == (Span("c0.context", 0, 10),)


def test_a_request_waits_for_the_one_before_and_for_the_pause():
    params = RoundRobinParams(num_conversations=2, num_rounds=2, prompt=5, pause_s=0.25)
    env, came = simpy.Environment(0), []

    def submit(spec):
        came.append(env.now)
        submission = Submission(spec, lambda *_: env.timeout(1_000_000_000), lambda _: None)
        return submission

    env.process(process(env, submit, Streams(0), params))
    env.run()
    assert came == [0, 1_250_000_000, 2_500_000_000, 3_750_000_000]


def test_the_suffix_must_leave_something():
    with pytest.raises(ValidationError, match="less than the prompt of 10 tokens"):
        RoundRobinParams(prompt=10, suffix=10)

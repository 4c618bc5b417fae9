from itertools import islice
from math import sqrt

import numpy as np
import pytest
import simpy
from pydantic import ValidationError

from sim.prefix_ids import PrefixIds
from sim.request import Outcome, RequestSpec, Span, Submission
from workloads.lengths import Lengths
from workloads.multi_turn import MultiTurnParams, plan, process, sessions
from workloads.streams import Streams

S = 1_000_000_000


def talk(params: MultiTurnParams, status=lambda spec: "finished", service_ns: int = 7):
    """Run with a fixed service time; return (arrival, spec) in order of submission."""
    env = simpy.Environment(0)
    log: list[tuple[int, RequestSpec]] = []

    def submit(spec: RequestSpec) -> Submission:
        log.append((env.now, spec))
        submission = Submission(spec, lambda *_: env.event(), lambda _: None)

        def serve():
            came = env.now
            yield env.timeout(service_ns)
            lengths = spec.num_prompt_tokens, spec.num_output_tokens
            ended = Outcome(spec.request_id, status(spec), came, None, env.now, *lengths, 0)
            submission.done.succeed(ended)

        env.process(serve())
        return submission

    env.process(process(env, submit, Streams(4), params))
    env.run()
    return log


def one_session(num_turns: int, **more) -> MultiTurnParams:
    """Return parameters of one long session with fixed lengths, cut to ``num_turns`` turns."""
    fixed = {
        "system_prompt": Lengths(mean=10),
        "first_user": Lengths(mean=6),
        "user": Lengths(mean=3),
        "output": Lengths(mean=4),
        "think_time_s": 0.0,
    }
    return MultiTurnParams(num_requests=num_turns, mean_turns=1000.0, **{**fixed, **more})


def test_a_turn_contains_all_earlier_user_parts_and_outputs():
    first, second, third = (spec for _, spec in talk(one_session(3)))
    system = first.prompt[0]
    assert system.length == 10
    assert first.prompt[1:] == (Span("s0.0.user", 0, 6),)
    assert first.output == Span("s0.0.output", 0, 4)
    assert second.prompt == (*first.prompt, first.output, Span("s0.1.user", 0, 3))
    assert third.prompt == (*second.prompt, second.output, Span("s0.2.user", 0, 3))
    assert [first.request_id, third.request_id, third.session_id] == ["s0.0", "s0.2", "s0"]


def test_a_turn_can_hit_the_output_of_the_turn_before():
    first, second = (spec for _, spec in talk(one_session(2)))
    ids = PrefixIds(4)
    before, after = ids.of(first).tolist(), ids.of(second).tolist()
    # 10 + 6 + 4 tokens: five blocks, the last of them output
    assert len(before) == 5
    assert after[:5] == before


@pytest.mark.parametrize("status", ["rejected", "aborted"])
def test_a_turn_that_does_not_finish_ends_its_session(status):
    def second_fails(spec: RequestSpec) -> str:
        return status if spec.request_id.endswith(".1") else "finished"

    log = talk(one_session(5), second_fails)
    assert [spec.request_id for _, spec in log] == ["s0.0", "s0.1"]


def test_the_next_turn_comes_a_think_time_after_the_end():
    params = one_session(4, think_time_s=3.0)
    pauses = [turn.pause_ns for turn in plan(0, Streams(4), params).turns]
    came = [at for at, _ in talk(params, service_ns=1000)]
    assert np.diff(came).tolist() == [1000 + pause for pause in pauses[:3]]


def test_a_next_turn_without_think_time_comes_at_the_very_instant():
    came = [at for at, _ in talk(one_session(3), service_ns=1000)]
    assert np.diff(came).tolist() == [1000, 1000]


def test_exactly_so_many_turns_are_planned():
    for num in (1, 2, 37):
        found = list(sessions(Streams(4), MultiTurnParams(num_requests=num)))
        assert sum(len(session.turns) for session in found) == num
        assert all(session.turns for session in found)


def test_more_requests_only_last_longer():
    few = list(sessions(Streams(4), MultiTurnParams(num_requests=40)))
    many = list(sessions(Streams(4), MultiTurnParams(num_requests=400)))
    assert many[: len(few) - 1] == few[:-1]
    # stationary: the same number of sessions a second, whatever the number of requests
    params = MultiTurnParams(num_requests=4000)
    starts = [at for at, spec in talk(params) if spec.request_id.endswith(".0")]
    rate = len(starts) / (starts[-1] / S)
    # relative standard error of a Poisson rate from n gaps: 1 / sqrt(n)
    assert abs(rate - 0.8) < 5 * 0.8 / sqrt(len(starts))


def test_a_session_stays_below_its_limit():
    params = MultiTurnParams(num_requests=400, max_session_tokens=6000)
    found = list(sessions(Streams(4), params))
    totals = [s.system.length + sum(t.num_user + t.num_output for t in s.turns) for s in found]
    assert max(totals) <= 6000
    assert max(totals) > 5500  # the limit did something


def test_a_first_turn_that_cannot_fit_has_one_user_token():
    found = plan(0, Streams(4), one_session(1, max_session_tokens=5))
    assert [turn.num_user for turn in found.turns] == [1]


def test_stated_means():
    params = MultiTurnParams(
        mean_turns=4.0,
        first_user=Lengths(mean=800, cv=0.5),
        user=Lengths(mean=100, cv=0.5),
        output=Lengths(mean=60, cv=0.5),
        think_time_s=5.0,
        max_session_tokens=2**31 - 1,
    )
    num = 1500
    found = [plan(i, Streams(8), params) for i in range(num)]
    turns = np.array([len(session.turns) for session in found])
    # geometric with mean m: variance m (m - 1)
    assert abs(turns.mean() - 4.0) < 5 * sqrt(4.0 * 3.0 / num)
    everything = [turn for session in found for turn in session.turns]
    outputs = np.array([turn.num_output for turn in everything])
    pauses = np.array([turn.pause_ns for turn in everything]) / S
    firsts = np.array([session.turns[0].num_user for session in found])
    n = len(everything)
    assert abs(outputs.mean() - 60) < 5 * 30 / sqrt(n) + 0.5
    assert abs(pauses.mean() - 5.0) < 5 * 5.0 / sqrt(n)
    assert abs(firsts.mean() - 800) < 5 * 400 / sqrt(num) + 0.5


def test_system_prompts_are_shared_and_all_are_used():
    params = MultiTurnParams(num_system_prompts=3)
    systems = {session.system for session in islice(sessions(Streams(4), params), 60)}
    assert {span.source for span in systems} == {"system0", "system1", "system2"}
    assert len(systems) == 3


def test_defaults_are_a_demo_of_several_minutes_and_prompts_up_to_20k():
    log = talk(MultiTurnParams(), service_ns=5 * S)
    prompts = [spec.num_prompt_tokens for _, spec in log]
    assert len(log) == 500
    assert min(prompts) > 300
    assert 10_000 < max(prompts) <= 20_000
    assert 120 * S < log[-1][0] < 900 * S


@pytest.mark.parametrize(
    ("place", "data"),
    [
        (("num_requests",), {"num_requests": 0}),
        (("mean_turns",), {"mean_turns": 0.5}),
        (("user", "mean"), {"user": {"mean": 0}}),
        (("think_time_s",), {"think_time_s": -1}),
        (("arrival", "kind"), {"arrival": {"kind": "timestamps"}}),
        (("num_sessions",), {"num_sessions": 5}),
    ],
)
def test_wrong_parameters_are_refused_by_name(place, data):
    with pytest.raises(ValidationError) as caught:
        MultiTurnParams(**data)
    assert [error["loc"] for error in caught.value.errors()] == [place]

"""What every workload must keep: its requests do not depend on the engine.

The engine here is a stand-in that ends each request after a service time. Every workload runs
under two very different ones; ids, spans, lengths and think times must be the same. A new
workload adds its small cases to ``CASES``.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import pytest
import simpy

from sim.request import Outcome, RequestSpec, Span, Submission
from workloads import WORKLOADS, Streams, Workload

MS = 1_000_000
S = 1000 * MS

TRACE = [
    {"timestamp": t, "input_length": n, "output_length": n % 7, "hash_ids": list(range(n // 16))}
    for t, n in zip((0, 0, 5, 5, 5, 900, 901, 4000), (16, 40, 55, 100, 8, 33, 64, 70), strict=True)
]
SMALL_SESSIONS = {
    "num_requests": 60,
    "mean_turns": 4,
    "system_prompt": {"mean": 20},
    "first_user": {"mean": 50, "cv": 1.0},
    "user": {"mean": 9, "cv": 0.5},
    "output": {"mean": 12, "cv": 0.7},
    "think_time_s": 2.0,
}
SMALL_TENANTS = {"num_requests": 60, "num_tenants": 5}
SMALL_ROUNDS = {"num_conversations": 4, "num_rounds": 3, "prompt": 40, "suffix": 5, "output": 3}
CLOSED = {"kind": "closed", "concurrency": 3, "think_time_s": 0.5}

CASES = [
    ("mooncake", {"block_size": 16}),
    ("mooncake", {"block_size": 16, "arrival": {"kind": "poisson", "rate_per_s": 5.0}}),
    ("mooncake", {"block_size": 16, "arrival": CLOSED}),
    ("shared_prefix", SMALL_TENANTS),
    ("shared_prefix", {**SMALL_TENANTS, "arrival": {"kind": "gamma", "burstiness": 0.3}}),
    ("shared_prefix", {**SMALL_TENANTS, "arrival": CLOSED}),
    ("multi_turn", SMALL_SESSIONS),
    ("multi_turn", {**SMALL_SESSIONS, "arrival": {"kind": "gamma", "burstiness": 0.3}}),
    ("multi_turn", {**SMALL_SESSIONS, "arrival": CLOSED}),
    ("multi_turn", {**SMALL_SESSIONS, "think_time_s": 0.0}),
    ("round_robin", SMALL_ROUNDS),
    ("round_robin", {**SMALL_ROUNDS, "suffix": 0, "pause_s": 0.5}),
]


@dataclass
class StandIn:
    """Ends each request after ``service(spec)`` ns; notes when each came and went."""

    env: simpy.Environment
    service: Callable[[RequestSpec], int]
    status: Callable[[RequestSpec], str] = lambda spec: "finished"
    specs: list[RequestSpec] = field(default_factory=list)
    came_ns: dict[str, int] = field(default_factory=dict)
    left_ns: dict[str, int] = field(default_factory=dict)

    def submit(self, spec: RequestSpec) -> Submission:
        assert spec.request_id not in self.came_ns
        self.specs.append(spec)
        self.came_ns[spec.request_id] = self.env.now
        submission = Submission(spec, lambda *_: self.env.event(), lambda _: None)
        self.env.process(self._serve(submission))
        return submission

    def _serve(self, submission: Submission):
        spec = submission.spec
        yield self.env.timeout(self.service(spec))
        name, now = spec.request_id, self.env.now
        self.left_ns[name] = now
        status = self.status(spec)
        lengths = spec.num_prompt_tokens, spec.num_output_tokens
        submission.done.succeed(Outcome(name, status, self.came_ns[name], now, now, *lengths, 0))


def instant(spec: RequestSpec) -> int:
    return 0


def quick(spec: RequestSpec) -> int:
    return MS


def uneven(spec: RequestSpec) -> int:
    """Seconds, and another order of ends than of starts."""
    return (spec.num_prompt_tokens * 7919 % 31) * S + spec.num_output_tokens * 30 * MS


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in TRACE))

    def run(name: str, data: dict, service=quick, seed: int = 1, status=None) -> StandIn:
        workload = WORKLOADS[name]
        params = workload.params(**({"path": path} if name == "mooncake" else {}), **data)
        env = simpy.Environment(0)
        engine = StandIn(env, service, *([status] if status else []))
        env.process(workload.process(env, engine.submit, Streams(seed), params))
        env.run()
        assert len(engine.left_ns) == len(engine.specs)
        return engine

    return run


def think_times(engine: StandIn) -> dict[str, int]:
    """Nanoseconds between the end of a turn and the next turn of its session."""
    turns: dict[str, list[str]] = {}
    for spec in engine.specs:
        if spec.session_id is not None:
            turns.setdefault(spec.session_id, []).append(spec.request_id)
    return {
        after: engine.came_ns[after] - engine.left_ns[before]
        for names in turns.values()
        for before, after in pairwise(names)
    }


def arrivals_from_outside(engine: StandIn) -> dict[str, int]:
    """Arrivals in order of submission, without turns that wait for an earlier turn."""
    later = think_times(engine)
    return {name: at for name, at in engine.came_ns.items() if name not in later}


def test_every_workload_has_a_case():
    assert {name for name, _ in CASES} == set(WORKLOADS)
    assert all(workload.name == name for name, workload in WORKLOADS.items())


@pytest.mark.parametrize(("name", "data"), CASES)
class TestEveryWorkload:
    def test_requests_do_not_depend_on_the_engine(self, run, name, data):
        engines = [run(name, data, service) for service in (instant, quick, uneven)]
        first, *others = [{spec.request_id: spec for spec in e.specs} for e in engines]
        assert len(first) >= 8
        assert others == [first, first]
        assert think_times(engines[1]) == think_times(engines[2]) == think_times(engines[0])

    def test_two_runs_are_identical(self, run, name, data):
        one, two = run(name, data, uneven), run(name, data, uneven)
        assert one.specs == two.specs
        assert one.came_ns == two.came_ns

    def test_another_seed_gives_something_else(self, run, name, data):
        one, two = run(name, data, seed=1), run(name, data, seed=2)
        if name == "round_robin" or (name == "mooncake" and "arrival" not in data):
            assert one.specs == two.specs  # nothing is drawn
            assert one.came_ns == two.came_ns
        else:
            assert (one.specs, one.came_ns) != (two.specs, two.came_ns)

    def test_the_clock_and_all_lengths_are_whole(self, run, name, data):
        engine = run(name, data, uneven)
        assert {type(at) for at in engine.came_ns.values()} == {int}
        for spec in engine.specs:
            spans = (*spec.prompt, spec.output)
            assert spec.prompt
            assert {type(n) for s in spans for n in (s.start, s.length)} == {int}
            assert min(span.length for span in spans) >= 1

    def test_count_is_the_number_of_requests(self, run, name, data, tmp_path):
        engine = run(name, data)
        workload = WORKLOADS[name]
        paths = {"path": tmp_path / "trace.jsonl"} if name == "mooncake" else {}
        params = workload.params(**paths, **data)
        assert workload.count(params) == len(engine.specs)
        assert workload.files(params) == tuple(paths.values())

    def test_outputs_and_user_parts_are_nobody_elses(self, run, name, data):
        outputs = [spec.output.source for spec in run(name, data).specs]
        assert len(set(outputs)) == len(outputs)

    def test_parameters_read_back_as_themselves(self, name, data):
        paths = {"path": "trace.jsonl"} if name == "mooncake" else {}
        workload: Workload = WORKLOADS[name]
        params = workload.params(**paths, **data)
        plain = json.loads(json.dumps(params.model_dump(mode="json")))
        assert workload.params(**plain) == params

    def test_rejected_and_aborted_requests_do_not_stop_the_others(self, run, name, data):
        def status(spec: RequestSpec) -> str:
            return ("finished", "rejected", "aborted")[spec.num_prompt_tokens % 3]

        whole, cut = run(name, data), run(name, data, status=status)
        specs = {spec.request_id: spec for spec in whole.specs}
        assert all(specs[spec.request_id] == spec for spec in cut.specs)
        firsts = {name for name in specs if name not in think_times(whole)}
        assert firsts <= {spec.request_id for spec in cut.specs}


@pytest.mark.parametrize(
    ("name", "data"),
    [(n, d) for n, d in CASES if d.get("arrival") is not CLOSED and n != "round_robin"],
)
def test_open_loop_arrivals_do_not_depend_on_the_engine(run, name, data):
    first, second = (arrivals_from_outside(run(name, data, s)) for s in (quick, uneven))
    assert len(first) >= 8
    assert list(first.items()) == list(second.items())
    assert all(a <= b for a, b in pairwise(first.values()))


@pytest.mark.parametrize("concurrency", [1, 3, 200])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("mooncake", {"block_size": 16}),
        ("shared_prefix", SMALL_TENANTS),
        ("multi_turn", {**SMALL_SESSIONS, "think_time_s": 0.0}),
    ],
)
def test_a_closed_loop_keeps_its_concurrency(run, name, data, concurrency):
    closed = {"kind": "closed", "concurrency": concurrency}
    engine = run(name, {**data, "arrival": closed}, uneven)
    # ends before starts at one instant
    changes = [(at, 1) for at in engine.came_ns.values()]
    changes += [(at, -1) for at in engine.left_ns.values()]
    going = list(accumulate(change for _, change in sorted(changes)))
    jobs = {spec.session_id or spec.request_id for spec in engine.specs}
    assert max(going) == min(concurrency, len(jobs))


@pytest.mark.parametrize("arrival", [{}, {"arrival": CLOSED}], ids=["open", "closed"])
@pytest.mark.parametrize("name", ["multi_turn", "shared_prefix"])
def test_nothing_is_drawn_before_it_starts(name, arrival):
    """A stream of two thousand million requests begins at once, one job ahead at most."""

    class Noting(Streams):
        last = -1

        def child(self, name, *index):
            if name.endswith((".session", ".request")):
                self.last = max(self.last, *index)
            return super().child(name, *index)

    workload, env, streams = WORKLOADS[name], simpy.Environment(0), Noting(3)
    engine = StandIn(env, quick)
    params = workload.params(num_requests=2**31 - 1, **arrival)
    env.process(workload.process(env, engine.submit, streams, params))
    env.run(until=100 * S)
    jobs = {spec.session_id or spec.request_id for spec in engine.specs}
    assert len(jobs) > 10
    assert streams.last + 1 <= len(jobs) + 1


def test_the_stand_in_tells_a_workload_that_leaks_the_engine():
    """A workload whose sessions share one generator must not pass the first test above."""

    def leaky(env, submit, streams):
        rng = streams.child("shared")

        def session(number):
            for turn in range(3):
                length = int(rng.integers(1, 1000))
                name = f"s{number}.{turn}"
                yield submit(RequestSpec(name, (Span(name, 0, length),), Span("o", 0, 1))).done

        for number in range(5):
            env.process(session(number))
        yield env.timeout(0)

    found = []
    for service in (quick, uneven):
        env = simpy.Environment(0)
        engine = StandIn(env, service)
        env.process(leaky(env, engine.submit, Streams(1)))
        env.run()
        found.append({spec.request_id: spec for spec in engine.specs})
    assert found[0] != found[1]

"""Whole runs of several replicas: what is conserved, in which order, and what one replica does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pandas as pd
import pytest

from sim.cluster.router import Arrival, IndexSettings
from sim.cluster.routers import ROUTERS
from sim.cluster.simulation import simulate_cluster
from sim.errors import ConfigError
from sim.metrics.request import span_s
from sim.request import RequestSpec, Span
from sim.simulation import simulate
from sim.units import NS_PER_S
from tests.cluster.scenarios import (
    GEMMA,
    JAMBA,
    LLAMA,
    TURNS,
    Asking,
    cluster,
    forget,
    plain,
    register,
    started,
    turns,
)

TABLES = ("requests.parquet", "steps.parquet", "waste.parquet")
STEADY = {"latency": {"name": "constant", "params": {"step_ms": 1.0}}}
CLOSED = {
    "name": "shared_prefix",
    "params": {"num_requests": 50, "arrival": {"kind": "closed", "concurrency": 9}},
}


@pytest.mark.parametrize("router", list(ROUTERS))
@pytest.mark.parametrize(
    "base",
    [
        LLAMA,
        pytest.param(GEMMA, marks=pytest.mark.slow),
        pytest.param(JAMBA, marks=pytest.mark.slow),
    ],
    ids=lambda b: b["model"],
)
def test_a_single_replica_is_the_plain_run_to_the_byte(router, base, tmp_path):
    simulate(plain(base)).save(tmp_path / "plain", figures=False)
    result = simulate_cluster(cluster(1, router, base=base))
    result.save(tmp_path / "cluster")
    for name in TABLES:
        alone = (tmp_path / "plain" / name).read_bytes()
        assert (tmp_path / "cluster" / "replica_0" / name).read_bytes() == alone
    assert result.summary()["totals"]["prefix_hit_rate"] > 0


@pytest.mark.parametrize("router", list(ROUTERS))
def test_every_request_is_served_once_by_one_replica(router):
    result = simulate_cluster(cluster(4, router))
    alone = simulate(plain())
    assert Counter(result.requests["request_id"]) == Counter(alone.requests["request_id"])
    assert set(result.requests["outcome"]) == {"finished"}
    by_replica = [set(replica.requests["request_id"]) for replica in result.replicas]
    for number, ids in enumerate(by_replica):
        assert ids == set(result.requests["request_id"][result.requests["replica"] == number])
    totals = result.summary()["totals"]
    for column in ("prompt_tokens", "output_tokens"):
        assert result.requests[column].sum() == alone.requests[column].sum()
    computed = totals["prefill_tokens_computed"] + totals["cached_prompt_tokens"]
    assert computed == result.requests["prompt_tokens"].sum()


def test_all_requests_stand_in_the_order_of_their_submission():
    result = simulate_cluster(cluster(3, "round_robin"))
    assert result.requests["replica"].tolist() == [n % 3 for n in range(len(result.requests))]
    assert result.requests["arrival_ns"].is_monotonic_increasing


def test_sessions_stay_where_they_are():
    result = simulate_cluster(cluster(4, "session"))
    homes = result.requests.groupby("session_id")["replica"].nunique()
    assert set(homes) == {1}
    assert result.requests["replica"].nunique() == 4


def test_sessions_that_move_lose_their_prefix():
    rates = {
        name: simulate_cluster(cluster(4, name)).summary()["totals"]["prefix_hit_rate"]
        for name in ("round_robin", "session", "prefix_aware")
    }
    assert rates["round_robin"] < rates["session"]
    assert rates["round_robin"] < rates["prefix_aware"]


def test_little_s_law_holds_for_every_replica():
    """Exact up to floating point: a request runs in each step from its first to its last."""
    result = simulate_cluster(cluster(3, "least_loaded", workload=CLOSED))
    for replica in result.replicas:
        requests, span = replica.requests, span_s(replica.tables)
        in_engine_s = (requests["finish_ns"] - requests["first_scheduled_ns"]).sum() / NS_PER_S
        assert replica.metrics["vllm:num_preemptions"] == 0
        assert replica.metrics["num_requests_running_mean"] == pytest.approx(in_engine_s / span)


# -- the clock ---------------------------------------------------------------------------------
def spec(request_id: str, num_tokens: int = 32, num_output: int = 4) -> RequestSpec:
    output = Span(f"{request_id}.out", 0, num_output)
    return RequestSpec(request_id, (Span(f"{request_id}.in", 0, num_tokens),), output)


def play(replicas: int, chosen, process, show=lambda run: None):
    """Run a process of the test on replicas that a function of the test chooses; return the run.

    show : told the run before it begins
    """
    register("asking", lambda: Asking(chosen))
    try:
        run = started(cluster(replicas, "asking", **STEADY))
    finally:
        forget("asking")
    show(run)
    run.replicas[0].engine.run(lambda env, _: process(env, run.front.submit))
    return run


def test_at_one_instant_replicas_take_their_turns_by_number():
    """Requests of equal length are sent to the last replica first; the first one ends first."""
    ended = []

    def process(env, submit):
        submissions = [submit(spec(f"r{n}")) for n in range(4)]
        for submission in submissions:
            submission.done.callbacks.append(
                lambda event: ended.append((env.now, event.value.request_id))
            )
        yield env.all_of([s.done for s in submissions])

    play(4, lambda arrival: 3 - int(arrival.spec.request_id[1:]), process)
    assert len({time for time, _ in ended}) == 1
    assert [name for _, name in ended] == ["r3", "r2", "r1", "r0"]


def test_a_router_counts_what_it_sent_until_it_ends():
    seen = []

    def choose(arrival: Arrival) -> int:
        seen.append([(load.num_requests, load.num_prompt_tokens, load.num_prefill_tokens)
                     for load in arrival.loads])  # fmt: skip
        return 0 if arrival.spec.request_id == "a" else 1

    def process(env, submit):
        first = submit(spec("a", 32))
        submit(spec("b", 48))
        yield first.first_token
        submit(spec("c", 16))  # behind its first token, a has no prefill left
        yield first.done
        submit(spec("d", 16))

    play(2, choose, process)
    assert seen == [
        [(0, 0, 0), (0, 0, 0)],
        [(1, 32, 32), (0, 0, 0)],
        [(1, 32, 0), (1, 48, 48)],
        [(0, 0, 0), (2, 64, 0)],
    ]


def test_what_never_gets_a_token_is_not_counted_for_ever():
    seen = []

    def choose(arrival: Arrival) -> int:
        seen.append([(load.num_requests, load.num_prefill_tokens) for load in arrival.loads])
        return 0

    def process(env, submit):
        rejected = submit(spec("long", 30_000))
        yield rejected.done
        aborted = submit(spec("a", 32))
        aborted.abort()
        yield aborted.done
        submit(spec("b", 32))

    play(1, choose, process)
    assert seen == [[(0, 0)]] * 3


def test_an_id_is_in_use_on_all_replicas():
    def process(env, submit):
        submit(spec("a"))
        submit(spec("a"))
        yield env.timeout(1)

    with pytest.raises(ConfigError, match="request_id: a: an id that is not in use"):
        play(2, lambda arrival: 0 if arrival.loads[0].num_requests == 0 else 1, process)


def test_an_id_may_come_again_when_its_request_has_ended():
    def process(env, submit):
        for _ in range(3):
            yield submit(spec("a")).done

    run = play(2, lambda arrival: 1, process)
    assert [routed.request_id for routed in run.front.routed] == ["a", "a", "a"]


def test_what_a_workload_gets_tells_whether_it_waits():
    def process(env, submit):
        first, second = submit(spec("a")), submit(spec("b"))
        assert not runs[0].front.is_waited_for
        assert (yield first.first_token) > 0
        assert runs[0].front.is_waited_for
        outcome = yield first.done
        assert (outcome.request_id, first.spec.request_id) == ("a", "a")
        assert not runs[0].front.is_waited_for
        assert (yield second.done).status == "finished"

    runs = []
    play(2, lambda arrival: 1, process, runs.append)


def test_an_answer_that_is_no_replica_is_an_error():
    def process(env, submit):
        submit(spec("a"))
        yield env.timeout(1)

    with pytest.raises(ConfigError, match="router Asking: 2: the number of a replica, 0 to 1"):
        play(2, lambda arrival: 2, process)


# -- the compiled engine -----------------------------------------------------------------------
OPEN = {"name": "shared_prefix", "params": {"num_requests": 60, "arrival": {"rate_per_s": 9.0}}}


@pytest.mark.compiled
@pytest.mark.parametrize("workload", [OPEN, CLOSED, TURNS], ids=["open", "closed", "turns"])
@pytest.mark.parametrize("base", [LLAMA, GEMMA], ids=lambda b: b["model"])
def test_compiled_replicas_do_what_python_ones_do(workload, base):
    results = [
        simulate_cluster(
            cluster(3, "least_loaded", base=base, workload=workload, engine={"core": core})
        )
        for core in ("python", "compiled")
    ]
    assert results[0].requests.equals(results[1].requests)
    assert results[0].run_id == results[1].run_id
    for alone, other in zip(results[0].replicas, results[1].replicas, strict=True):
        assert alone.steps.equals(other.steps)
        assert alone.waste.equals(other.waste)
        assert alone.summary() == other.summary()


@pytest.mark.compiled
def test_nobody_waits_for_the_steps_of_other_replicas_in_an_open_loop():
    scenario = cluster(3, "least_loaded", workload=OPEN, engine={"core": "compiled"})
    run = started(scenario)
    wakes = []
    for replica in run.replicas:
        core, advance = replica.engine.core, replica.engine.core.advance
        core.advance = lambda now, horizon, advance=advance: (
            wakes.append(now) or advance(now, horizon)
        )
    run.run()
    steps = sum(replica.engine.core.num_steps for replica in run.replicas)
    # For each request: its arrival wakes all three, its first token and its end wake one.
    assert len(wakes) <= (3 + 2) * 60 < steps / 3


def test_the_index_needs_the_python_engine():
    with pytest.raises(ConfigError, match=r"engine.core: compiled: .* tells no router"):
        simulate_cluster(cluster(2, "prefix_aware", engine={"core": "compiled"}))


# -- the index ---------------------------------------------------------------------------------
@pytest.mark.parametrize("base", [LLAMA, GEMMA], ids=lambda b: b["model"])
def test_prefix_aware_without_delay_finds_what_looking_into_the_engines_would(base):
    """The same choice by brute force: each manager is asked itself, all loads weigh nothing."""

    def choose(arrival):
        ids = run.front._name_prefixes(arrival.spec)
        longest = arrival.spec.num_prompt_tokens - 1
        best = []
        for number, replica in enumerate(run.replicas):
            coordinator = replica.engine.core.manager.coordinator
            _, found = coordinator.find_longest_cache_hit(ids, longest)
            load, blocks = arrival.loads[number], arrival.num_indexed_blocks[number]
            best.append((-found, load.num_requests, blocks, number))
        return min(best)[-1]

    register("asking", lambda: Asking(choose, IndexSettings()))
    try:
        run = started(cluster(3, "asking", base=base))
        run.run()
    finally:
        forget("asking")
    params = {"delay_ms": 0.0, "load_weight": 0.0}
    other = simulate_cluster(cluster(3, "prefix_aware", params, base=base))
    tables = [replica.finish() for replica in run.replicas]
    found = sum(int(table.requests["cached_tokens"].sum()) for table in tables)
    assert other.requests["cached_tokens"].sum() == found > 0
    # Every request finds at least what was there when it arrived.
    assert other.summary()["index"]["broken_promises_tokens"] == 0 or base is GEMMA


# -- the same every time -----------------------------------------------------------------------
PROGRAM = """
import sys
from tests.cluster.scenarios import cluster, GEMMA, turns
from sim.cluster.simulation import simulate_cluster
for name in ("prefix_aware",):
    scenario = cluster(2, name, base=GEMMA, workload=turns(20))
    simulate_cluster(scenario).save(f"{sys.argv[1]}/{name}")
"""


def test_two_processes_with_different_hash_seeds_write_the_same_bytes(tmp_path):
    contents = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM, str(folder)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        files = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.*")}
        contents.append({n: raw for n, raw in files.items() if n.name != "provenance.json"})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3 + 2 * 6


# -- the files ---------------------------------------------------------------------------------
def test_a_result_on_disk_says_what_its_replicas_do(tmp_path):
    result = simulate_cluster(cluster(2, "prefix_aware"))
    files = result.save(tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "cluster.json").read_text())
    assert stored == {**result.summary(), "files": files}
    assert {"requests.parquet", "scenario.yaml", "replica_1/summary.json"} <= set(files)
    requests = pd.read_parquet(tmp_path / "out" / "requests.parquet")
    assert requests["replica"].tolist() == result.requests["replica"].tolist()
    assert [row["requests_submitted"] for row in stored["replicas"]] == [
        len(replica.requests) for replica in result.replicas
    ]
    assert stored["scenario"]["cluster"]["router"]["params"]["delay_ms"] == 10.0


def test_a_result_is_not_written_over_something_else(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    result = simulate_cluster(cluster(1, "round_robin", workload=turns(5)))
    with pytest.raises(ConfigError, match="a new or empty folder"):
        result.save(tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]

"""``kvsim cluster``: one router or several, files, and what is wrong with a command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from sim.cli import main
from sim.cluster.config import RouterPlugin
from sim.cluster.router_text import read_routers, router_text
from sim.cluster.routers import ROUTERS
from sim.errors import ConfigError

SMALL = [
    *("--model", "meta-llama--Llama-3.1-8B", "--kv-cache-memory", "4GiB"),
    *("--max-model-len", "24576", "--waste-samples", "4"),
]
REQUESTS = ["--workload", "shared_prefix", *("--workload-param", "num_requests=24"),
            *("--workload-param", "output.mean=8")]  # fmt: skip
SCENARIO = """model: meta-llama--Llama-3.1-8B
cache: {kv_cache_memory_bytes: 4GiB}
scheduler: {max_model_len: 24576}
workload: {name: shared_prefix, params: {num_requests: 12}}
cluster: {replicas: 3, router: {name: prefix_aware, params: {delay_ms: 5.0}}}
"""


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def read(*texts: str, start: RouterPlugin | None = None, **common) -> list[str]:
    return [router_text(entry) for entry in read_routers(texts, common, start or RouterPlugin())]


def test_one_router_leaves_a_result_that_is_reused(capsys, tmp_path):
    assert main(["cluster", *SMALL, *REQUESTS, "--replicas", "2", "--quiet"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    summary = json.loads((folder / "cluster.json").read_text())
    assert (summary["run_id"], summary["num_replicas"]) == (folder.name, 2)
    out = capsys.readouterr().out
    assert "round_robin" in out
    assert f"result   runs/{folder.name}" in out
    assert main(["cluster", *SMALL, *REQUESTS, "--replicas", "2", "--json"]) == 0
    captured = capsys.readouterr()
    assert "is reused" in captured.err
    document = json.loads(captured.out)
    assert document["clusters"] == [summary]
    assert document["folders"] == [f"runs/{folder.name}"]


def test_several_routers_are_compared(capsys, tmp_path):
    arguments = [
        "cluster",
        *SMALL,
        *REQUESTS,
        "--replicas",
        "2",
        "--router",
        "all",
        "--out",
        "four",
    ]
    assert main([*arguments, "--quiet"]) == 0
    with (tmp_path / "four" / "routers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["router"] for row in rows] == list(ROUTERS)
    assert {row["requests_finished"] for row in rows} == {"24"}
    assert rows[0]["expected_tokens"] == ""
    assert rows[2]["expected_tokens"] != ""
    for name in ROUTERS:
        assert (tmp_path / "four" / name / "cluster.json").is_file()
    assert (tmp_path / "four" / "routers.png").stat().st_size > 10_000
    out = capsys.readouterr().out
    assert all(name in out for name in ROUTERS)
    before = (tmp_path / "four" / "routers.svg").read_bytes()
    assert main([*arguments, "--quiet"]) == 0  # all reused, drawn again
    assert (tmp_path / "four" / "routers.svg").read_bytes() == before


def test_a_file_says_how_many_and_who_and_options_override_it(capsys, tmp_path):
    Path("three.yaml").write_text(SCENARIO)
    assert main(["cluster", "three.yaml", "--out", "a", "--json", "--quiet"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    assert (found["num_replicas"], found["router"]) == (3, "prefix_aware:delay_ms=5")
    more = ["--replicas", "2", "--router-param", "load_weight=0.5", "--json", "--quiet"]
    assert main(["cluster", "three.yaml", "--out", "b", *more]) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    assert found["num_replicas"] == 2
    assert found["router"] == "prefix_aware:delay_ms=5,load_weight=0.5"
    # The resolved scenario gives the same run.
    assert main(["cluster", "b/scenario.yaml", "--out", "c", "--json", "--quiet"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["clusters"]
    assert again == found


def test_routers_are_read_with_their_parameters():
    assert read() == ["round_robin"]
    assert read("session,least_loaded") == ["session", "least_loaded"]
    assert read("all") == list(ROUTERS)
    several = ["prefix_aware:delay_ms=50,load_weight=2", "session:prefix_tokens=512"]
    assert read(",".join(several)) == read(*several) == several
    assert read("prefix_aware", "round_robin", delay_ms=3) == [
        "prefix_aware:delay_ms=3",
        "round_robin",
    ]
    start = RouterPlugin(name="session", params={"prefix_tokens": 9})
    assert read(start=start) == ["session:prefix_tokens=9"]
    assert read("session", "round_robin", start=start) == ["session:prefix_tokens=9", "round_robin"]


@pytest.mark.parametrize(
    ("texts", "common", "key"),
    [
        (["round_robn"], {}, "cluster.router.name"),
        (["=3"], {}, "--router"),
        (["session:"], {}, "--router"),
        (["session:3"], {}, "--router"),
        (["session", "round_robin"], {"delay_ms": 3}, "--router-param"),
    ],
)
def test_wrong_routers_are_errors(texts, common, key):
    with pytest.raises(ConfigError) as caught:
        read_routers(texts, common, RouterPlugin())
    assert caught.value.problems[0].key == key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replicas", "0"], "--replicas: 0: "),
        (["--replicas", "many"], "--replicas: many: "),
        (["--router", "prefix_awre"], "did you mean prefix_aware?"),
        (["--router", "prefix_aware:delay_ms=-1"], "cluster.router.params.delay_ms: -1"),
        (["--router", "session,session"], "--router: the same router twice"),
        (["--router-param", "delay_ms"], "--router-param: delay_ms: KEY=VALUE"),
        (["--workload", "mooncake", "--trace", "none"], "--trace: none: a file that exists"),
        (["--max-requests", "3"], "--max-requests: with the workload shared_prefix: only with"),
    ],
)
def test_wrong_command_lines_are_one_line_and_write_nothing(arguments, message, capsys, tmp_path):
    assert (
        main(
            [
                "cluster",
                *SMALL,
                *(arguments if "--workload" in arguments else [*REQUESTS, *arguments]),
            ]
        )
        == 2
    )
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over_something_else(capsys, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    for router in ("session", "all"):
        assert main(["cluster", *SMALL, *REQUESTS, "--router", router, "--out", "mine"]) == 2
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert "out: mine" in capsys.readouterr().err


def test_another_scenarios_result_is_kept_unless_force_is_given(capsys):
    assert main(["cluster", *SMALL, *REQUESTS, "--out", "one", "--quiet"]) == 0
    assert main(["cluster", *SMALL, *REQUESTS, "--replicas", "2", "--out", "one"]) == 2
    assert "--force to replace it" in capsys.readouterr().err
    assert (
        main(
            ["cluster", *SMALL, *REQUESTS, "--replicas", "2", "--out", "one", "--force", "--quiet"]
        )
        == 0
    )

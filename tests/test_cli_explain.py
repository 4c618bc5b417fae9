"""``kvsim run --reasons`` and ``kvsim explain``, on the reported cliff and on small runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sim.cli import main
from sim.results import RunResult
from sim.vllm import is_installed

# vllm-project/vllm issue 48435: five groups of 10 sliding layers (window 1024, block 16), one of
# 10 full layers (block 32); 64 of the 4,564 tokens of each request are new
CLIFF = ["run", "--model", "google--gemma-4-31B", "--kv-cache-dtype", "fp8",
         "--max-model-len", "65536", "--workload", "round_robin", "--workload-param", "suffix=64",
         "--no-figures", "--quiet", "--latency", "constant"]  # fmt: skip
REPORTED = ["--num-gpu-blocks-override", "11545"]
SMALL_CHUNKS = ["--num-gpu-blocks-override", "7051", "--max-num-batched-tokens", "2048"]
SMALL = ["run", "--model", "google--gemma-3-1b-it", "--kv-cache-memory", "150MiB",
         "--max-model-len", "4096", "--workload-param", "num_requests=20",
         "--workload-param", "max_session_tokens=3500", "--no-figures", "--quiet"]  # fmt: skip


@pytest.fixture(autouse=True)
def folder_fixture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def cliff(sessions: int, *more: str) -> list[str]:
    return [*CLIFF, "--workload-param", f"num_conversations={sessions}", *more]


@pytest.fixture
def small(capsys):
    assert call(capsys, *SMALL, "--reasons", "--out", "small")[0] == 0
    return RunResult.load("small")


# -- real case B1 -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sessions", "pool", "found"),
    [
        (7, REPORTED, 4480),  # 31,948 tokens: 98.16 %
        (8, REPORTED, 0),  # 36,512 tokens
        (5, SMALL_CHUNKS, 4480),
        (6, SMALL_CHUNKS, 0),
    ],
)
def test_the_cliff_is_where_it_was_reported(capsys, sessions, pool, found) -> None:
    call(capsys, *cliff(sessions, *pool), "--out", "r")
    requests = RunResult.load("r").requests
    assert set(requests["cached_tokens"][:sessions]) == {0}
    assert set(requests["cached_tokens"][sessions:]) == {found}
    assert f"{4480 / 4564:.4f}" == "0.9816"


@pytest.mark.skipif(not is_installed(), reason="vLLM is not installed")
@pytest.mark.parametrize(
    ("sessions", "pool"), [(7, REPORTED), (8, REPORTED), (5, SMALL_CHUNKS), (6, SMALL_CHUNKS)]
)
def test_the_cliff_is_vllms_own(capsys, sessions, pool) -> None:
    arguments = [a for a in cliff(sessions, *pool)[1:] if a != "--no-figures"]
    code, out, _ = call(capsys, "verify", *arguments)
    assert (code, out.splitlines()[0].split(" in ")[0]) == (0, "equal to vLLM 0.25.1")


def test_explain_says_why_the_hit_was_zero(capsys) -> None:
    """By hand: a request takes ceil(4564 / 16) blocks for each sliding group, ceil(4564 / 32).

    5 x 286 + 143 = 1,573; eight requests take 12,584 and the pool has 11,544.
    """
    call(capsys, *cliff(8, *REPORTED), "--reasons", "--out", "r")
    code, out, err = call(capsys, "explain", "r", "c0.1")
    assert (code, err) == (0, "")
    for words in (
        "c0.1, 4,564 tokens, was looked up",
        "0 (0.0 %) were found in the cache.",
        "Nothing was found because of group 0 (sliding window 1,024): blocks that a hit needs had "
        "been evicted there before.",
        "4,480 tokens were usable in group 5 (full attention), but a hit must be usable in every "
        "group.",
        "group 0 (sliding window 1,024) cut 4,480 to 0",
        "A hit needs this group's blocks of the 1,023 tokens before its end",
        "c7.0 took the blocks for groups 2 and 3",
        "c0.0 had stored them",
        "From c0.0 to this lookup 12,584 blocks were taken from the pool, which has 11,544.",
        "tokens 4,480 to 4,495 (16): unaligned",
        "tokens 4,496 to 4,562 (67): new",
        "token 4,563: last token",
    ):
        assert words in out


def test_explain_sums_the_cliff_up(capsys) -> None:
    code, out, _ = call(capsys, *cliff(8, *REPORTED), "--reasons", "--out", "r")
    # two rounds of eight requests could have found 4,480 tokens each
    sentence = (
        "Of 109,536 prompt tokens, 71,680 were cached by group 5 (full attention) but vetoed by "
        "group 0 (sliding window 1,024), of which 100.0 % had been evicted there before."
    )
    assert code == 0
    assert sentence in out
    code, out, _ = call(capsys, "explain", "r")
    assert sentence in out
    assert re.search(r"c0\.1 +evicted in group 0 \(sliding window 1,024\) +4,480 +4,564", out)


# -- any run ------------------------------------------------------------------------------------
def test_found_and_lost_tokens_are_all_prompt_tokens(small) -> None:
    summary, requests = small.reasons, small.requests
    admitted = requests[requests["cached_tokens"].notna()]
    assert summary["prompt_tokens"] == admitted["prompt_tokens"].sum()
    assert summary["hit_tokens"] == admitted["cached_tokens"].sum()
    lost = sum(cause["tokens"] for cause in summary["causes"])
    assert summary["hit_tokens"] + lost == summary["prompt_tokens"]
    assert {"evicted", "new", "last_token"} <= {cause["cause"] for cause in summary["causes"]}


def test_a_result_gives_its_reasons_back(small) -> None:
    stored = json.loads(Path("small/summary.json").read_text())
    assert stored["reasons"] == small.reasons
    assert {"lookups.parquet", "reasons.parquet"} < set(stored["files"])


def test_steps_and_times_are_those_of_the_step_table(small) -> None:
    starts = small.steps["start_ns"]
    lookups = small.tables.lookups
    admitted = lookups[lookups["admitted"] == 1]
    assert (starts.loc[admitted["step"]].to_numpy() == admitted["time_ns"].to_numpy()).all()
    first = admitted[admitted["preemptions"] == 0].set_index("request_id")["time_ns"]
    known = small.requests.set_index("request_id")["first_scheduled_ns"].dropna()
    assert first.sort_index().to_dict() == known.sort_index().to_dict()


def test_recording_changes_nothing_else(capsys, small) -> None:
    call(capsys, *SMALL, "--out", "plain")
    plain = RunResult.load("plain")
    assert plain.reasons is None
    for table in ("requests", "steps", "waste"):
        assert getattr(plain, table).equals(getattr(small, table))


def test_a_run_without_reasons_is_run_again(capsys, small) -> None:
    call(capsys, *SMALL, "--out", "plain")
    before = sorted(path.name for path in Path("plain").iterdir())
    code, out, err = call(capsys, "explain", "plain", "s0.0")
    assert "plain has no reasons: the scenario is run again with them" in err
    assert (code, out) == (0, call(capsys, "explain", "small", "s0.0")[1])
    assert sorted(path.name for path in Path("plain").iterdir()) == before
    assert call(capsys, "explain", "plain", "--quiet")[2] == ""


def test_a_run_of_vllms_manager_is_explained_by_ours(capsys, small) -> None:
    call(capsys, *SMALL, "--out", "theirs")
    path = Path("theirs/scenario.yaml")
    path.write_text(path.read_text().replace("manager: native", "manager: vllm"))
    assert RunResult.load("theirs").scenario.engine.manager == "vllm"
    explained = call(capsys, "explain", "theirs", "s0.0", "--quiet")
    assert explained == call(capsys, "explain", "small", "s0.0", "--quiet")


def test_an_unknown_request_is_an_error_with_the_nearest_id(capsys, small) -> None:
    code, out, err = call(capsys, "explain", "small", "s0.00")
    assert (code, out) == (2, "")
    assert err.startswith("kvsim: error: REQUEST: s0.00: ")
    assert err.endswith("did you mean s0.0?\n")


def test_json_is_one_document(capsys, small) -> None:
    document = json.loads(call(capsys, "explain", "small", "--json")[1])
    assert document["summary"] == small.reasons
    assert document["run_id"] == small.run_id
    assert document["worst"][0]["lost_tokens"] >= document["worst"][-1]["lost_tokens"]
    document = json.loads(call(capsys, "explain", "small", "s0.0", "--json")[1])
    (lookup,) = document["lookups"]
    lost = sum(row["tokens"] for row in document["reasons"] if row["decides"])
    assert lookup["hit_tokens"] + lost == lookup["tokens"]


def test_a_run_without_prefix_caching_says_so(capsys) -> None:
    call(capsys, *SMALL, "--no-enable-prefix-caching", "--reasons", "--out", "off")
    assert "Prefix caching is off" in call(capsys, "explain", "off")[1]
    assert (
        "s0.0 was never looked up: prefix caching is off."
        in call(capsys, "explain", "off", "s0.0")[1]
    )


def test_export_has_the_tables_of_reasons(capsys, small) -> None:
    names = {Path(line).name for line in call(capsys, "export", "small")[1].split()}
    assert {"lookups.csv", "reasons.csv"} < names

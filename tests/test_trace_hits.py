"""Hit tokens of public traces, served one request at a time through the whole simulator.

With a pool that never evicts the numbers are known from counting alone; with a finite pool they
equal those of an independent model (``tests/reference/serial_hits.py``), request by request.
"""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path

import pytest

from sim.config import Scenario, validated
from sim.configs_dir import configs_dir
from sim.simulation import simulate
from tests.reference.serial_hits import read_trace, serial_hits

TRACES = Path(__file__).parents[1] / ".." / "shared" / "traces"
CONVERSATION = "mooncake_conversation_trace.jsonl.gz"
SYNTHETIC = "mooncake_synthetic_trace.jsonl.gz"
DYNAMO = "dynamo_mooncake_trace_1000.jsonl"
# Tokens that hold all distinct content of a trace: 5.92 M identities of 16 in the longest.
ENOUGH = {CONVERSATION: 7_000_000 * 16, SYNTHETIC: 7_000_000 * 16, DYNAMO: 700_000 * 16}

pytestmark = [pytest.mark.traces, pytest.mark.slow]


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"the public trace {name} is not beside the checkout")
    return path


@pytest.fixture(scope="module")
def one_group_model(tmp_path_factory) -> Path:
    """Llama-3.1-8B with a context that no request of the traces exceeds."""
    config = json.loads((configs_dir() / "models" / "meta-llama--Llama-3.1-8B.json").read_text())
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps({**config, "max_position_embeddings": 262_144}))
    return path


def cached_tokens(model: Path, path: Path, block_size: int, num_blocks: int, head: int | None):
    """Cached prompt tokens at first admission, by request, in order of the trace."""
    params = {"path": str(path), "arrival": {"kind": "closed", "concurrency": 1}}
    data = {
        "model": str(model),
        "cache": {"block_size": block_size, "num_gpu_blocks_override": num_blocks},
        "scheduler": {"max_model_len": min(262_144, (num_blocks - 1) * block_size)},
        "latency": {"name": "constant"},
        "engine": {"waste_samples": 2},
        "workload": {
            "name": "mooncake",
            "params": params | ({"max_requests": head} if head else {}),
        },
    }
    result = simulate(validated(Scenario, data))
    assert set(result.requests["outcome"]) == {"finished"}
    return result.requests.sort_values("arrival_ns", kind="stable")["cached_tokens"].tolist()


@pytest.mark.parametrize(
    ("block_size", "hit_tokens"),
    [(16, 3_823_616), (80, 3_785_280)],
)
def test_dynamo_trace_hits_what_counting_says(one_group_model, block_size, hit_tokens):
    rows = cached_tokens(
        one_group_model, trace(DYNAMO), block_size, ENOUGH[DYNAMO] // block_size, None
    )
    assert sum(rows) == hit_tokens


WHOLE_TRACES = [
    (CONVERSATION, 16, 54_063_104),
    (CONVERSATION, 784, 48_382_208),
    (SYNTHETIC, 16, 39_802_880),
    (SYNTHETIC, 80, 39_750_320),
    (SYNTHETIC, 528, 39_283_728),
]
# A minute each, and known from the identities alone (tests/unit/workloads/test_infinite_pool.py).
IF_ASKED_FOR = [
    *[(CONVERSATION, size, 54_063_104) for size in (32, 64, 512)],
    (CONVERSATION, 80, 53_665_920),
    (CONVERSATION, 528, 48_683_184),
    (CONVERSATION, 544, 48_870_784),
    *[(SYNTHETIC, size, 39_802_880) for size in (32, 64, 512)],
]


@pytest.mark.parametrize(
    ("name", "block_size", "hit_tokens"),
    WHOLE_TRACES + (IF_ASKED_FOR if os.environ.get("KVSIM_ALL_BLOCKS") else []),
)
def test_mooncake_traces_hit_what_counting_says(one_group_model, name, block_size, hit_tokens):
    rows = cached_tokens(one_group_model, trace(name), block_size, ENOUGH[name] // block_size, None)
    assert sum(rows) == hit_tokens


@pytest.mark.parametrize(
    ("name", "head", "block_size", "num_blocks"),
    [
        (CONVERSATION, 200, 16, 8_193),  # barely one request of the maximum length
        (CONVERSATION, 150, 16, 20_000),
        (CONVERSATION, 200, 80, 3_000),
        (DYNAMO, 400, 528, 400),
        (DYNAMO, 400, 512, 1_000),
    ],
)
def test_finite_pool_hits_what_the_independent_model_hits(
    one_group_model, name, head, block_size, num_blocks
):
    path = trace(name)
    ours = cached_tokens(one_group_model, path, block_size, num_blocks, head)
    requests = islice(read_trace(path, block_size), head)
    slow = serial_hits(requests, num_blocks=num_blocks, block_size=block_size)
    assert ours == slow
    infinite = serial_hits(
        islice(read_trace(path, block_size), head),
        num_blocks=ENOUGH[DYNAMO] // block_size,
        block_size=block_size,
    )
    assert sum(slow) < sum(infinite), "the pool must be small enough to evict"

"""Requests served one at a time hit what the whole engine hits with one request at a time."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from sim.config import Scenario, validated
from sim.curve.blocks import Requests, chain, sums_before
from sim.curve.groups import ModelGroups, model_groups
from sim.curve.hit_curve import HitCurve
from sim.curve.reading import request_batches
from sim.curve.serial import NOT_SERVED, ManagerServer, serve
from sim.curve.stack_distances import DEFINITIONS
from sim.errors import ConfigError
from sim.simulation import simulate
from tests.curve.made_traces import made_rows, write_trace
from tests.reference.serial_hits import SerialPool, Served
from workloads.mooncake import MooncakeParams

LLAMA, GEMMA, GPT_OSS = "meta-llama/Llama-3.1-8B", "google/gemma-3-1b-it", "openai/gpt-oss-20b"
SCOUT = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
JAMBA, QWEN_NEXT = "ai21labs/Jamba-v0.1", "Qwen/Qwen3-Next-80B-A3B-Instruct"
MAX_MODEL_LEN = 9000
KEYS = {"scheduler.max_model_len": MAX_MODEL_LEN, "scheduler.max_num_batched_tokens": 2048}
RECURRENT = {"cache.enable_prefix_caching": True, "cache.mamba_cache_mode": "align"}


@pytest.fixture(scope="module")
def trace_fixture(tmp_path_factory) -> MooncakeParams:
    """Prompts of up to 30 blocks of 256, and outputs of up to three."""
    rows = made_rows(7, 70, 256)
    path = write_trace(rows, tmp_path_factory.mktemp("trace") / "made.jsonl")
    return MooncakeParams(path=path, block_size=256)


def manager_server(groups: ModelGroups, num_blocks: int) -> ManagerServer:
    return ManagerServer(lambda: groups.manager(num_blocks), groups.limits, groups.align_block_size)


def served_by_the_engine(model: str, keys: dict, num_bytes: int, trace: MooncakeParams):
    """Hit tokens by request, -1 for those that were rejected."""
    data: dict = {"model": model, "cache": {}, "scheduler": {}}
    for key, value in keys.items():
        section, _, name = key.partition(".")
        data[section][name] = value
    data["cache"]["kv_cache_memory_bytes"] = num_bytes
    arrival = {"kind": "closed", "concurrency": 1}
    params = {"path": trace.path, "block_size": trace.block_size, "arrival": arrival}
    data |= {
        "latency": {"name": "constant"},
        "engine": {"waste_samples": 2},
        "workload": {"name": "mooncake", "params": params},
    }
    requests = simulate(validated(Scenario, data)).requests
    order = requests["request_id"].str[1:].astype(int).argsort()
    hits = requests["cached_tokens"].where(requests["outcome"] == "finished", -1)
    return hits.astype(int).to_numpy()[order]


CASES = [
    (LLAMA, {}, 1.2),
    pytest.param(LLAMA, {}, 2, marks=pytest.mark.slow),
    (GEMMA, {}, 1.2),
    pytest.param(GEMMA, {}, 3, marks=pytest.mark.slow),
    (GPT_OSS, {}, 1.2),
    (SCOUT, {}, 1.3),
    (JAMBA, RECURRENT, 1.3),
    (QWEN_NEXT, RECURRENT, 2),
]


@pytest.mark.parametrize(("model", "more", "requests_that_fit"), CASES)
def test_hits_are_those_of_the_engine(model, more, requests_that_fit, trace_fixture):
    """Windows give blocks back between chunks, states are kept where chunks end."""
    keys = KEYS | more
    groups = model_groups(model, keys)
    least = groups.layout.capacity.admission_bytes
    num_blocks = groups.num_blocks(int(requests_that_fit * least))
    num_bytes = num_blocks * groups.layout.bytes_per_block
    hits = serve(
        manager_server(groups, num_blocks),
        request_batches(trace_fixture, groups.layout.hash_block_size),
    )
    engine = served_by_the_engine(model, keys, num_bytes, trace_fixture)
    assert hits.tolist() == engine.tolist()
    unlimited = serve(
        manager_server(groups, 10 * num_blocks),
        request_batches(trace_fixture, groups.layout.hash_block_size),
    )
    assert 0 < hits[hits > 0].sum() < unlimited.sum(), "the pool must be small enough to evict"


def as_requests(served: list[Served], names: dict) -> Requests:
    """The same requests as flat arrays."""
    ids = [names.setdefault(name, len(names)) for request in served for name in request.names]
    return Requests(
        np.array(ids),
        sums_before(np.array([len(request.names) for request in served])),
        np.array([request.num_prompt_tokens for request in served]),
        np.array([request.num_output_tokens for request in served]),
    )


@pytest.mark.parametrize("num_blocks", [30, 150, 400])
def test_one_group_hits_what_the_independent_model_hits(num_blocks):
    """``tests/reference/serial_hits.py`` knows no manager."""
    keys = {"scheduler.max_model_len": 2000, "scheduler.max_num_batched_tokens": 300}
    groups = model_groups(LLAMA, keys)
    requests = [
        Served(row["input_length"], row["output_length"], block_names(number, row))
        for number, row in enumerate(made_rows(2, 150, 32))
    ]
    pool = SerialPool(num_blocks, 16)
    slow = [pool.serve(r) if fits_the_model(r) else None for r in requests]
    server = manager_server(groups, num_blocks)
    names: dict = {}
    hits = [
        server.serve(as_requests(requests[first : first + 40], names))
        for first in range(0, 150, 40)
    ]
    assert np.concatenate(hits).tolist() == [NOT_SERVED if s is None else s for s in slow]
    assert (num_blocks == 30) == (None in slow)


def fits_the_model(request: Served) -> bool:
    return request.num_prompt_tokens + request.num_output_tokens <= 2000


def block_names(number: int, row: dict) -> list:
    shared = row["input_length"] // 32 * 32
    total = row["input_length"] + row["output_length"]
    return [
        (row["hash_ids"][(end - 1) // 32], end) if end <= shared else ("only", number, end)
        for end in range(16, total + 1, 16)
    ]


def test_one_group_in_a_large_pool_hits_what_the_chain_hits(trace_fixture):
    """Nothing is evicted; with eviction they differ by blocks that are not full (docs/curve.md)."""
    groups = model_groups(LLAMA, KEYS)
    size = groups.block_size
    curve = HitCurve(DEFINITIONS["leaf_first"], size)
    for batch in request_batches(trace_fixture, size):
        curve.add(chain(batch, size, size, outputs=True))
    hits = serve(manager_server(groups, 50_000), request_batches(trace_fixture, size))
    assert hits.sum() == curve.hit_tokens([50_000])


def test_batches_may_be_cut_anywhere(trace_fixture):
    groups = model_groups(GEMMA, KEYS)
    (whole,) = request_batches(trace_fixture, 16)
    parts = [part(whole, first, first + 9) for first in range(0, 70, 9)]
    num_blocks = groups.num_blocks(2 * groups.layout.capacity.admission_bytes)
    together = serve(manager_server(groups, num_blocks), [whole])
    assert serve(manager_server(groups, num_blocks), parts).tolist() == together.tolist()


def part(requests: Requests, first: int, last: int) -> Requests:
    starts = requests.starts[first : last + 1]
    return Requests(
        requests.prefix_ids[starts[0] : starts[-1]],
        starts - starts[0],
        requests.num_prompt_tokens[first:last],
        requests.num_output_tokens[first:last],
    )


# -- groups ------------------------------------------------------------------------------------
def test_memory_of_a_chain_is_the_memory_of_its_blocks_in_every_group():
    groups = model_groups("google/gemma-3-27b-it", {})
    assert (groups.num_groups, groups.pool_blocks_per_chain_block) == (7, 7)
    size = groups.bytes_of_chain(100)
    assert groups.num_blocks(size) == 701
    assert groups.chain_capacity(size) == 100
    assert groups.chain_capacity(size - 1) == 99
    assert groups.chain_capacity(0) == 0


def test_a_model_that_caches_no_prefixes_is_refused():
    with pytest.raises(ConfigError, match="--enable-prefix-caching"):
        model_groups(JAMBA, {})
    with pytest.raises(ConfigError, match="--model"):
        model_groups("openai/whisper-large-v3", {})


def test_an_empty_list_of_batches_gives_no_hits():
    assert serve(manager_server(model_groups(LLAMA, KEYS), 700), []).tolist() == []


@pytest.mark.traces
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "more"), [(GEMMA, {}), (GPT_OSS, {}), (QWEN_NEXT, RECURRENT), (JAMBA, RECURRENT)]
)
def test_a_public_trace_hits_what_the_engine_hits(model, more, tmp_path):
    path = Path(__file__).parents[2] / ".." / "shared/traces/dynamo_mooncake_trace_1000.jsonl"
    if not path.is_file():
        pytest.skip("the public trace is not beside the checkout")
    head = tmp_path / "head.jsonl"
    with path.open(encoding="utf-8") as lines:
        head.write_text("".join(islice(lines, 100)), encoding="utf-8")
    trace = MooncakeParams(path=head)
    keys = {"scheduler.max_model_len": 32_000, **more}
    groups = model_groups(model, keys)
    num_blocks = groups.num_blocks(2 * groups.layout.capacity.admission_bytes)
    batches = request_batches(trace, groups.layout.hash_block_size)
    hits = serve(manager_server(groups, num_blocks), batches)
    num_bytes = num_blocks * groups.layout.bytes_per_block
    assert hits.tolist() == served_by_the_engine(model, keys, num_bytes, trace).tolist()

"""Hit tokens of requests served one at a time from a finite pool, against the slow models.

``serial_hits`` knows no manager; the naive manager and the real one are driven serially.
"""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from sim.prefix_ids import PrefixIds
from sim.request import Request, RequestSpec
from tests.conftest import load_implementation
from tests.helpers import free_list, full, make_manager
from tests.reference.serial_hits import SerialPool, Served, read_trace, serial_hits

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
NUM_REQUESTS = {16: 150, 80: 300, 528: 1000}
POOLS = [140_000, 1_000_000, 2_500_000]  # tokens; no request needs more than 122,378


def serve_with_manager(manager, requests: list[Request], chunk: int) -> list[int]:
    """Look up, prefill in chunks, decode token by token, free; return the hit tokens."""
    hits = []
    for request in requests:
        manager.new_step_starts()
        rows, hit = manager.get_computed_blocks(request)
        hits.append(hit)
        settings = {"num_new_computed_tokens": hit, "new_computed_blocks": rows}
        last = request.num_prompt_tokens + request.max_tokens - 1  # the last one is not computed
        while (computed := request.num_computed_tokens) < last:
            start = computed + settings.get("num_new_computed_tokens", 0)
            if start == request.num_tokens:
                request.num_tokens += 1
            count = min(chunk, request.num_tokens - start)
            assert manager.allocate_slots(request, count, **settings) is not None
            request.num_computed_tokens = start + count
            settings = {}
        manager.free(request)
    return hits


def random_requests(seed: int, block_size: int) -> list[Served]:
    """Prompts over a tree of documents, whole blocks and odd lengths, some repeated."""
    rng = random.Random(seed)
    requests = []
    for number in range(60):
        if requests and rng.random() < 0.25:
            requests.append(rng.choice(requests))
            continue
        prompt, output = rng.randint(1, 14 * block_size), rng.randint(1, 2 * block_size)
        if rng.random() < 0.3:
            prompt = max(1, prompt // block_size) * block_size
        shared = rng.randint(0, prompt)
        document = rng.choice("AAB")
        ends = range(block_size, prompt + output + 1, block_size)
        names = [(document if end <= shared else number, end) for end in ends]
        requests.append(Served(prompt, output, names))
    return requests


def as_records(requests: list[Served]) -> list[Request]:
    numbers: dict = {}
    return [
        Request(
            f"r{i}",
            served.num_prompt_tokens,
            served.num_output_tokens,
            [numbers.setdefault(name, len(numbers)) for name in served.names],
        )
        for i, served in enumerate(requests)
    ]


@pytest.mark.parametrize("implementation_name", ["reference", "sim"])
@pytest.mark.parametrize("num_usable", [16, 17, 30, 60, 400])
@pytest.mark.parametrize("block_size", [1, 4])
def test_random_streams(implementation_name, num_usable, block_size):
    """A request of 16 blocks at most fits into the smallest pool; the largest never evicts much."""
    implementation = load_implementation(implementation_name)
    for seed in range(6):
        requests = random_requests(seed, block_size)
        pool = SerialPool(num_usable + 1, block_size)
        expected = [pool.serve(request) for request in requests]
        manager = make_manager(implementation, [full(block_size)], num_blocks=num_usable + 1)
        chunk = [10**6, 5, 16][seed % 3]
        assert serve_with_manager(manager, as_records(requests), chunk) == expected
        assert free_list(manager) == list(pool.free)


def test_a_request_larger_than_the_pool_is_skipped():
    """4 usable blocks of 4: 13 + 3 tokens need 15 slots, 13 + 5 need 17."""
    fits, too_large = (
        Served(13, 3, [(i,) for i in range(4)]),
        Served(13, 5, [(i,) for i in range(4)]),
    )
    assert serial_hits([fits, too_large, fits], num_blocks=5, block_size=4) == [0, None, 12]


def test_the_last_block_of_a_repeated_prompt_is_computed_again():
    """8 tokens in blocks of 4: the second time 4 are hit, and the last block exists twice."""
    request = Served(8, 1, ["A", "B"])
    pool = SerialPool(6, 4)
    assert [pool.serve(request) for _ in range(3)] == [0, 4, 4]
    assert pool.holders["B"] == [2, 3, 4]


# -- the public traces ----------------------------------------------------------------------
INFINITE = [
    ("dynamo_mooncake_trace_1000.jsonl", 80, 3_785_280),
    ("mooncake_synthetic_trace.jsonl.gz", 512, 39_802_880),
    ("mooncake_synthetic_trace.jsonl.gz", 528, 39_283_728),
    ("mooncake_conversation_trace.jsonl.gz", 512, 54_063_104),
    ("mooncake_conversation_trace.jsonl.gz", 528, 48_683_184),
    ("mooncake_conversation_trace.jsonl.gz", 544, 48_870_784),
    ("mooncake_conversation_trace.jsonl.gz", 784, 48_382_208),
]


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the public trace {name} is not here")
    return path


@pytest.mark.traces
@pytest.mark.slow
@pytest.mark.parametrize(("name", "block_size", "hit_tokens"), INFINITE)
def test_the_slow_model_gives_the_published_numbers_without_eviction(name, block_size, hit_tokens):
    hits = serial_hits(
        read_trace(trace(name), block_size), num_blocks=500_000, block_size=block_size
    )
    assert sum(hits) == hit_tokens


@pytest.mark.traces
@pytest.mark.slow
@pytest.mark.parametrize("block_size", NUM_REQUESTS)
@pytest.mark.parametrize("num_tokens", POOLS)
@pytest.mark.parametrize(
    "name", ["mooncake_conversation_trace.jsonl.gz", "dynamo_mooncake_trace_1000.jsonl"]
)
def test_hit_tokens_with_a_finite_pool(name, num_tokens, block_size):
    """The workload's spans, our identities and our manager against the model's own reading."""
    from workloads.mooncake import MooncakeParams
    from workloads.mooncake import requests as spans_of

    num_blocks = num_tokens // block_size + 1
    count = NUM_REQUESTS[block_size]
    served = list(islice(read_trace(trace(name), block_size), count))
    expected = serial_hits(served, num_blocks=num_blocks, block_size=block_size)
    unlimited = serial_hits(served, num_blocks=10**7 // block_size, block_size=block_size)
    assert None not in expected
    assert sum(expected) < sum(unlimited) or num_tokens > POOLS[0]
    identities = PrefixIds(block_size)
    specs: list[RequestSpec] = [
        spec for _, spec in islice(spans_of(MooncakeParams(path=trace(name))), count)
    ]
    records = [
        Request(
            spec.request_id,
            spec.num_prompt_tokens,
            spec.num_output_tokens,
            identities.of(spec).tolist(),
        )
        for spec in specs
    ]
    manager = make_manager(
        load_implementation("sim"),
        [full(block_size)],
        num_blocks=num_blocks,
        max_model_len=10**6,
    )
    assert serve_with_manager(manager, records, 8192) == expected

import random

import pytest

from sim.errors import ConfigError
from sim.latency.roofline import RooflineParams, build, pairs_before, touched_share, visible
from sim.latency.work import StepWork
from sim.layout.kv_cache_spec import KVCacheSpec

from .fakes import FULL, SLIDING, STATE, make_hardware, make_layout, make_model

NO_HOST = {"step_overhead_us": 0, "kv_group_overhead_us": 0}


def slow_visible(work, window):
    """Pairs and keys by looking at every query and every key."""
    pairs = keys = 0
    for first, count in [*work.prefill, *((n, 1) for n in work.decode)]:
        seen = set()
        for query in range(first, first + count):
            low = 0 if window is None else max(0, query - window + 1)
            pairs += query - low + 1
            seen.update(range(low, query + 1))
        keys += len(seen)
    return pairs, keys


@pytest.mark.parametrize("window", [None, 1, 2, 5, 16, 40])
def test_visible_equals_a_count_over_all_queries_and_keys(window):
    rng = random.Random(f"visible {window}")
    for _ in range(100):
        work = StepWork(
            prefill=[(rng.randrange(40), rng.randrange(1, 30)) for _ in range(rng.randrange(3))],
            decode=[rng.randrange(60) for _ in range(rng.randrange(4))],
        )
        assert visible(work, window) == slow_visible(work, window)


def test_pairs_before_equals_the_sum_of_the_first_windows():
    assert pairs_before(5, None) == 1 + 2 + 3 + 4 + 5
    assert pairs_before(5, 3) == 1 + 2 + 3 + 3 + 3
    assert pairs_before(0, 3) == 0


def test_compute_bound_step_takes_flops_over_rate():
    # 8 prompt tokens, 1000 parameters: 2 x 1000 x 8 = 16000 FLOPs. One full layer, 2 heads, keys
    # and values of 8: 2 x 2 x (8 + 8) = 64 FLOPs for each of 36 pairs = 2304. At 1e9 FLOP/s 18304
    # ns; the memory is fast.
    step_time = build(
        RooflineParams(**NO_HOST),
        make_model(),
        make_hardware(bandwidth=1e12),
        make_layout((FULL, 1)),
    )
    assert step_time(StepWork(prefill=[(0, 8)], decode=[])) == 18304


def test_embedding_multiplies_nothing_and_the_head_once_per_request():
    # 1000 parameters, of which 200 are embedding and head: 2 x 800 x (8 + 2) tokens, and one
    # product with a head of 100 for each of three requests: 16000 + 600; no attention layer.
    step_time = build(
        RooflineParams(**NO_HOST),
        make_model(embedding=200, head=100),
        make_hardware(bandwidth=1e12),
        make_layout(),
    )
    assert step_time(StepWork(prefill=[(0, 8)], decode=[5, 7])) == 16600


def test_each_draft_is_a_query_with_a_product_of_its_own_and_keys_are_read_once():
    # Tokens 5 to 8 of one request and token 7 of another: 2 x 800 x 5 tokens, 5 heads of 2 x 100.
    step_time = build(
        RooflineParams(**NO_HOST),
        make_model(embedding=200, head=100),
        make_hardware(bandwidth=1e12),
        make_layout(),
    )
    work = StepWork(prefill=[], decode=[7], verify=[(5, 4)])
    assert step_time(work) == 8000 + 1000
    assert (work.num_decode_tokens, work.num_decode_requests) == (5, 2)
    # Pairs: 8 of the decode, 6 + 7 + 8 + 9 of the drafts; keys: 8, and 9 once.
    assert visible(work, None) == (8 + 30, 8 + 9)


def test_weights_are_read_as_the_family_stores_them_unless_told_otherwise():
    hardware, work = make_hardware(flops=1e15), StepWork(prefill=[], decode=[5])
    for told, stored, expected in [(None, 0.5, 500), (None, None, 2000), (1.5, 0.5, 1500)]:
        params = RooflineParams(**NO_HOST, weight_bytes_per_parameter=told)
        step_time = build(params, make_model(stored=stored), hardware, make_layout())
        assert step_time(work) == expected


def test_memory_bound_step_takes_bytes_over_bandwidth():
    # Weights 2000 B. Per token 1 head x (8 + 8) x 2 B = 32 B in each layer. Decode at contexts 9
    # and 2. The full layer loads 10 + 3 = 13 keys and writes 2: 15 x 32 = 480 B. Three sliding
    # layers (window 4) load 4 + 3 and write 2: 9 x 32 x 3 = 864 B. Two state layers of 10 x 2 +
    # 20 x 4 = 100 B are read and written for 2 requests: 2 x 2 x 2 x 100 = 800 B.
    step_time = build(
        RooflineParams(**NO_HOST),
        make_model(),
        make_hardware(flops=1e15),
        make_layout((FULL, 1), (SLIDING, 2), (SLIDING, 1), (STATE, 2)),
    )
    assert step_time(StepWork(prefill=[], decode=[9, 2])) == 2000 + 480 + 864 + 800


def test_host_time_is_added_for_the_step_and_for_each_group():
    params = {"step_overhead_us": 3, "kv_group_overhead_us": 0.5}
    arguments = make_model(), make_hardware(flops=1e15)
    layout = make_layout((FULL, 1), (SLIDING, 1))
    with_host = build(RooflineParams(**params), *arguments, layout)
    without = build(RooflineParams(**NO_HOST), *arguments, layout)
    work = StepWork(prefill=[], decode=[5])
    assert with_host(work) - without(work) == 3000 + 2 * 500


def test_efficiency_divides_both_rates():
    # 1000 parameters x 2 B / (1e9 B/s x 0.5) = 4000 ns; no attention layer.
    step_time = build(
        RooflineParams(**NO_HOST),
        make_model(),
        make_hardware(flops=1e15, efficiency=0.5),
        make_layout(),
    )
    assert step_time(StepWork(prefill=[], decode=[5])) == 4000


def test_touched_share_equals_the_expected_share_of_experts_drawn():
    # 1 of 4 experts per token, 2 tokens: 16 equally likely pairs of choices, 4 of them equal.
    by_enumeration = sum(len({a, b}) for a in range(4) for b in range(4)) / 16 / 4
    assert touched_share(0.25, 2) == by_enumeration
    assert touched_share(1.0, 7) == 1.0
    assert touched_share(0.25, 0) == 0.0


def test_mixture_of_experts_reads_its_active_share_for_one_token():
    # 1000 parameters, 250 active, 2 B each: 500 B for one token, 875 B for two.
    step_time = build(
        RooflineParams(**NO_HOST),
        make_model(active=250),
        make_hardware(flops=1e15),
        make_layout(),
    )
    assert step_time(StepWork(prefill=[], decode=[5])) == 500
    assert step_time(StepWork(prefill=[], decode=[5, 5])) == 875


def test_weight_size_and_number_format_can_be_chosen():
    half = build(
        RooflineParams(**NO_HOST, weight_bytes_per_parameter=0.5),
        make_model(),
        make_hardware(flops=1e15),
        make_layout(),
    )
    assert half(StepWork(prefill=[], decode=[1])) == 500
    fp8 = build(
        RooflineParams(**NO_HOST, compute_dtype="fp8"),
        make_model(),
        make_hardware(bandwidth=1e15),
        make_layout(),
    )
    assert fp8(StepWork(prefill=[(0, 10)], decode=[])) == 10_000  # 20000 FLOPs at 2e9 FLOP/s


def test_unknown_number_format_names_those_of_the_hardware():
    with pytest.raises(ConfigError) as caught:
        build(RooflineParams(compute_dtype="fp9"), make_model(), make_hardware(), make_layout())
    assert caught.value.lines() == [
        "latency.params.compute_dtype: fp9: known: fp8, bf16; did you mean fp8?"
    ]


def test_a_kind_of_layer_without_a_rule_is_an_error():
    with pytest.raises(ConfigError, match="a model without KVCacheSpec layers"):
        build(
            RooflineParams(),
            make_model(),
            make_hardware(),
            make_layout((KVCacheSpec(block_size=16), 1)),
        )

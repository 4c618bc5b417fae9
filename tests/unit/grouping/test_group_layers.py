import pytest

from sim.errors import InvariantError
from sim.layout.grouping import GROUPING_HEURISTICS, Bucket, GroupingPlan
from sim.layout.groups import bucket_by_spec, group_layers
from tests.unit.grouping.buckets import full, mamba, sliding, stack


def gemma_27b():
    """62 layers, every sixth full, named as in the engine's tests: sw.0 ..., full.0 ..."""
    specs, counts = {}, {"sw": 0, "full": 0}
    for idx in range(62):
        kind = "full" if (idx + 1) % 6 == 0 else "sw"
        specs[f"{kind}.{counts[kind]}"] = full() if kind == "full" else sliding()
        counts[kind] += 1
    return specs


def names(groups):
    return [list(group.layer_names) for group in groups]


def run(kind, first, last):
    return [f"{kind}.{idx}" for idx in range(first, last)]


def test_vllm_splits_strided_in_first_seen_order():
    # full.0 sw.0 sw.1 | full.1 sw.2 sw.3 (spec/layout.md 6.5)
    specs = {}
    for name in ("full.0", "sw.0", "sw.1", "full.1", "sw.2", "sw.3"):
        specs[name] = full() if name.startswith("full") else sliding()
    groups, lines = group_layers(specs, GROUPING_HEURISTICS["vllm"])
    assert names(groups) == [["full.0", "full.1"], ["sw.0", "sw.2"], ["sw.1", "sw.3"]]
    assert lines == []


def test_vllm_balances_gemma_3_27b():
    groups, lines = group_layers(gemma_27b(), GROUPING_HEURISTICS["vllm"])
    assert [len(group) for group in names(groups)] == [9, 9, 9, 9, 8, 8, 10]
    assert names(groups)[0] == [f"sw.{idx}" for idx in range(0, 52, 6)]
    assert names(groups)[-1] == run("full", 0, 10)
    assert lines == ["Add 8 padding layers, may waste at most 15.38% KV cache memory"]


def test_min_layers_splits_gemma_3_27b_as_the_original_text():
    groups, lines = group_layers(gemma_27b(), GROUPING_HEURISTICS["min_layers"])
    assert names(groups) == [
        run("full", 0, 10),
        run("sw", 0, 10),
        run("sw", 10, 20),
        run("sw", 20, 30),
        run("sw", 30, 40),
        run("sw", 40, 50),
        run("sw", 50, 52),  # and 8 padding layers
    ]
    assert lines == ["Add 8 padding layers, may waste at most 15.38% KV cache memory"]


def test_min_layers_keeps_the_smallest_bucket_where_vllm_takes_the_largest():
    specs = stack("sw.", sliding(), 12) | stack("full.", full(), 13)
    by_min, _ = group_layers(specs, GROUPING_HEURISTICS["min_layers"])
    by_vllm, _ = group_layers(specs, GROUPING_HEURISTICS["vllm"])
    assert [len(group) for group in names(by_min)] == [12, 1, 12]
    assert [len(group) for group in names(by_vllm)] == [12, 13]


def test_the_original_text_s_case_2():
    # 20 sliding and 10 full layers: three groups of 10
    specs = stack("sw.", sliding(), 20) | stack("full.", full(), 10)
    groups, lines = group_layers(specs, GROUPING_HEURISTICS["min_layers"])
    assert names(groups) == [run("full", 0, 10), run("sw", 0, 10), run("sw", 10, 20)]
    assert lines == []


@pytest.mark.parametrize(
    ("grouping", "lengths"), [("vllm", [20, 15, 15]), ("min_layers", [20, 20, 10])]
)
def test_20_full_and_30_sliding_pad_ten_whatever_the_split(grouping, lengths):
    specs = stack("F", full(), 20) | stack("S", sliding(), 30)
    groups, lines = group_layers(specs, GROUPING_HEURISTICS[grouping])
    assert [len(group) for group in names(groups)] == lengths
    assert lines == ["Add 10 padding layers, may waste at most 33.33% KV cache memory"]


@pytest.mark.parametrize(
    ("sizes", "rule", "line"),
    [
        # spec/real_cases.md B27
        ((19, 18), "vllm_0_11:ratio=1", "Add 17 padding layers, may waste at most 89.47%"),
        ((19, 18), "vllm", "Add 1 padding layers, may waste at most 5.56%"),
        ((9, 7), "vllm", "Add 2 padding layers, may waste at most 28.57%"),
        ((16, 26), "vllm", "Add 6 padding layers, may waste at most 23.08%"),
        ((13, 12), "vllm", "Add 1 padding layers, may waste at most 8.33%"),
    ],
)
def test_the_warning_of_public_cases(sizes, rule, line):
    specs = stack("F", full(), sizes[0]) | stack("S", sliding(), sizes[1])
    _, lines = group_layers(specs, GROUPING_HEURISTICS[rule])
    assert lines == [f"{line} KV cache memory"]


def test_one_odd_window_makes_62_groups():
    # 52 sliding, one of them with another window, and 10 full (spec/layout.md 14)
    specs = gemma_27b() | {"sw.7": sliding(sliding_window=512)}
    assert [len(bucket) for bucket in bucket_by_spec(specs)] == [51, 10, 1]
    groups, _ = group_layers(specs, GROUPING_HEURISTICS["vllm"])
    assert len(groups) == 62


def test_the_percentage_is_rounded_as_the_engine_rounds_it():
    # 160 layers in groups of 61: 3 * 61 - 160 = 23 pads; 23 / 160 * 100 prints 14.37 (15.15)
    specs = stack("F", full(), 61) | stack("S", sliding(), 160)
    _, lines = group_layers(specs, GROUPING_HEURISTICS["vllm"])
    assert lines == ["Add 23 padding layers, may waste at most 14.37% KV cache memory"]


@pytest.mark.parametrize("spec", [full(), sliding(), mamba()])
def test_equal_layers_are_one_group(spec):
    for grouping in GROUPING_HEURISTICS.values():
        groups, lines = group_layers(stack("L", spec, 5), grouping)
        assert names(groups) == [[f"L{idx}" for idx in range(5)]]
        assert groups[0].kv_cache_spec == spec
        assert lines == []


@pytest.mark.parametrize("grouping", list(GROUPING_HEURISTICS))
def test_one_type_with_different_shapes_is_one_bundle_for_every_rule(grouping):
    specs = {"a": full(), "b": full(num_kv_heads=4), "c": full(head_size=64)}
    groups, lines = group_layers(specs, GROUPING_HEURISTICS[grouping])
    assert names(groups) == [["a", "b", "c"]]
    assert lines == []


def test_a_heuristic_that_loses_or_mixes_layers_is_caught():
    specs = stack("F", full(), 2) | stack("S", sliding(), 2)
    for groups in ([("F0", "F1"), ("S0",)], [("F0", "S0"), ("F1", "S1")], [("F0", "F0", "F1")]):
        broken = GroupingPlan(2, tuple(groups))
        with pytest.raises(InvariantError):
            group_layers(specs, lambda buckets, broken=broken: broken)


def test_padding_of_a_bucket_counts_its_own_groups():
    small, large = Bucket(full(), ("a", "b")), Bucket(sliding(), ("c", "d", "e"))
    made = GROUPING_HEURISTICS["vllm"]([small, large])
    assert (made.group_size, made.padding_of(small), made.padding_of(large)) == (2, 0, 1)

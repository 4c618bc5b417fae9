"""Pools of several workers, packed pools, overrides, fitted lengths, shared layers."""

import pytest

from sim.errors import ConfigError
from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec, with_shared_layers
from sim.layout.kv_cache_spec import UniformTypeKVCacheSpecs
from sim.layout.pool import project
from tests.unit.layout.layouts import (
    GIB,
    full,
    limits,
    mamba,
    mla,
    plan,
    pool,
    shape,
    sliding,
    stack,
)

GPT_OSS = "openai--gpt-oss-20b"
PAGE = 65536  # of full() and sliding()


def refused(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.problems[0]


# -- several workers ----------------------------------------------------------------------------


def test_each_worker_keeps_its_layers_of_every_group():
    groups = [KVCacheGroupSpec(("a", "b"), full()), KVCacheGroupSpec(("c",), sliding(), True)]
    first, second = project(groups, {"a": 0}), project(groups, {"b": 0, "c": 0})
    assert [g.layer_names for g in first] == [("a",), ()]
    assert [g.layer_names for g in second] == [("b",), ("c",)]
    assert [g.is_eagle_group for g in (*first, *second)] == [False, False, False, True]


def test_a_worker_without_a_bundle_s_layers_keeps_the_whole_bundle():
    bundle = UniformTypeKVCacheSpecs.of({"a": mla(), "b": mla(block_size=64, head_size=128)})
    groups = [KVCacheGroupSpec(("a", "b"), bundle), KVCacheGroupSpec(("c",), full(block_size=64))]
    own, none = project(groups, {"a": 0, "c": 0})[0], project(groups, {"c": 0})[0]
    assert own.kv_cache_spec.page_size_bytes == 73728
    assert (none.layer_names, none.kv_cache_spec) == ((), bundle)


def test_a_stage_without_layers_is_refused():
    problem = refused(lambda: pool([stack("L", full(), 2), {}]))
    assert problem.key == "pipeline_parallel_layers"
    assert "`group_size must be greater than 0`" in problem.allowed


def test_each_worker_has_its_own_group_size_and_all_have_the_fewest_blocks():
    stages = [stack("L", full(), 3), stack("M", full(), 1)]
    memory = (3 * PAGE * 4000, PAGE * 5000)
    planned = pool(stages, kv_cache_memory_bytes=memory)
    assert [w.bytes_per_block for w in planned.workers] == [3 * PAGE, PAGE]
    assert {w.kv_cache_config.num_blocks for w in planned.workers} == {4000}
    sizes = [t.size for t in planned.workers[1].kv_cache_config.kv_cache_tensors]
    assert sizes == [PAGE * 4000]


def test_the_capacity_lines_come_once_per_worker():
    planned = pool([stack("L", full(), 1), stack("M", full(), 1)])
    assert len(planned.log_lines) == 4
    assert planned.log_lines[:2] == planned.log_lines[2:]


def test_the_check_runs_on_each_worker():
    # stage 1 of 16 of 48 layers: 8.0 GiB for it, not 24 (real cases, B23): 131072 tokens of 4 KiB
    stages = [stack("L", full(), 16), stack("M", full(), 32)]
    memory = (int(3.18 * GIB), 18 * GIB)
    problem = refused(lambda: pool(stages, limits(131072), kv_cache_memory_bytes=memory))
    assert "(8.0 GiB KV cache is needed" in problem.allowed
    assert "memory (3.18 GiB)" in problem.allowed
    # 3.18 GiB // (16 * 65536) = 3256 blocks of 16 tokens
    assert "the estimated maximum model length is 52096." in problem.allowed


def test_a_layer_on_two_workers_needs_one_spec():
    assert pool([{"a": full()}, {"a": full()}]).groups[0].layer_names == ("a",)
    problem = refused(lambda: pool([{"a": full()}, {"a": full(num_kv_heads=4)}]))
    assert (problem.key, problem.value) == ("specs", "a")


def test_memory_is_given_once_or_for_each_stage_or_rank():
    kwargs = {"pipeline_parallel_layers": (12, 12), "tensor_parallel_size": 2}
    for memory in (GIB * 9, (GIB * 9,) * 2, (GIB * 9,) * 4):
        layout = plan(GPT_OSS, kv_cache_memory_bytes=memory, **kwargs)
        # 6 slots of 4 heads of 64: 16384 bytes each
        assert layout.kv_cache_config.num_blocks == 9 * GIB // (6 * 16384)
    problem = refused(lambda: plan(GPT_OSS, kv_cache_memory_bytes=(GIB,) * 3, **kwargs))
    assert problem.allowed == "2 values, one for each stage, or 4, one for each rank"


def test_the_scheduler_sees_the_first_worker():
    layout = plan(
        GPT_OSS, kv_cache_memory_bytes=(10 * GIB, 9 * GIB), pipeline_parallel_layers=(12, 12)
    )
    view = layout.kv_cache_config
    assert view == layout.workers[0].kv_cache_config
    assert [len(g.layer_names) for g in view.kv_cache_groups] == [6, 6]
    assert [len(g.layer_names) for g in layout.groups] == [12, 12]


def test_a_stage_of_another_kind_only_plans_with_its_own_group():
    # one group has no layer here: the other's three layers set the width
    planned = pool([stack("F", full(), 3), stack("S", sliding(), 3)], kv_cache_memory_bytes=GIB)
    assert shape(planned.groups) == [("full_attention", 3, 16), ("sliding_window", 3, 16)]
    assert [w.slots_per_block for w in planned.workers] == [3, 3]
    assert [len(g.layer_names) for g in planned.workers[1].kv_cache_config.kv_cache_groups] == [
        0,
        3,
    ]


# -- bundles and packed pools -------------------------------------------------------------------


def test_a_bundle_has_a_tensor_per_layer_of_its_own_page():
    # 10 layers alternating 4 and 8 heads (spec/layout.md 13)
    specs = {f"L{i}": full(num_kv_heads=8 if i % 2 else 4) for i in range(10)}
    planned = pool(specs, kv_cache_memory_bytes=10 * GIB)
    config = planned.workers[0].kv_cache_config
    assert planned.workers[0].bytes_per_block == 5 * 32768 + 5 * 65536
    assert config.num_blocks == 21845
    assert [t.size for t in config.kv_cache_tensors[:2]] == [715816960, 1431633920]
    assert f"{planned.capacity.concurrency:.2f}" == "10.67"
    # the scheduler sees the first layer's spec
    assert planned.kv_cache_config.kv_cache_groups[0].kv_cache_spec == full(num_kv_heads=4)


def test_a_connector_may_ask_for_packed_blocks():
    layout = plan(GPT_OSS, enable_cross_layers_blocks=True)
    tensors = layout.kv_cache_config.kv_cache_tensors
    assert layout.bytes_per_block == 12 * 32768
    assert [t.offset for t in tensors] == [32768 * k for k in range(12)]
    assert {t.block_stride for t in tensors} == {393216}
    assert {t.size for t in tensors} == {21474705408}


def test_one_group_is_never_packed():
    tensors = pool(
        stack("L", full(), 2), enable_cross_layers_blocks=True
    ).kv_cache_config.kv_cache_tensors
    assert [(t.offset, t.block_stride) for t in tensors] == [(0, 0), (0, 0)]


def test_packed_slots_are_by_page_size_and_position():
    from sim.layout.kv_cache_config import bytes_per_block, packed_slots

    one = UniformTypeKVCacheSpecs.of({"a": full(), "b": full(num_kv_heads=4), "c": full()})
    two = UniformTypeKVCacheSpecs.of({"d": full(num_kv_heads=4), "e": full(num_kv_heads=4)})
    groups = [KVCacheGroupSpec(("a", "b", "c"), one), KVCacheGroupSpec(("d", "e"), two)]
    assert packed_slots(groups) == {65536: [["a"], ["c"]], 32768: [["b", "d"], ["e"]]}
    assert bytes_per_block(groups, packed=True) == 2 * 65536 + 2 * 32768


# -- override and fitted length -----------------------------------------------------------------


def test_an_override_is_logged_per_worker_before_the_check():
    stages = [stack("L", full(), 1), stack("M", full(), 2)]
    memory = (1000 * PAGE, 2000 * PAGE)
    planned = pool(stages, limits(64), kv_cache_memory_bytes=memory, num_gpu_blocks_override=7)
    assert (
        planned.log_lines[:2]
        == ("Overriding num_gpu_blocks=1000 with num_gpu_blocks_override=7",) * 2
    )
    assert [w.kv_cache_config.num_blocks for w in planned.workers] == [7, 7]


def fitted(specs, memory, longest=32768, **changes):
    return pool(specs, limits(longest), kv_cache_memory_bytes=memory, max_model_len=-1, **changes)


def test_a_length_is_fitted_before_the_check_and_the_logs():
    # 100 blocks of 16 tokens
    planned = fitted(stack("L", full(), 1), 100 * PAGE)
    assert planned.limits.max_model_len == 1600
    assert planned.log_lines == (
        "Auto-fit max_model_len: reduced from 32768 to 1600 to fit in available GPU memory "
        "(0.01 GiB available for KV cache)",
        "GPU KV cache size: 1,600 tokens",
        "Maximum concurrency for 1,600 tokens per request: 1.00x",
    )


def test_a_length_that_fits_stays():
    planned = fitted(stack("L", full(), 1), 3000 * PAGE)
    assert planned.log_lines[0] == (
        "Auto-fit max_model_len: full model context length 32768 fits in available GPU memory"
    )


def test_the_worker_with_the_least_decides_and_is_the_one_logged():
    stages = [stack("L", full(), 1), stack("M", full(), 2)]
    planned = fitted(stages, (10**6 * PAGE, 2 * 163840 * PAGE), longest=2**24)
    assert planned.limits.max_model_len == 163840 * 16
    assert "(20.0 GiB available" in planned.log_lines[0]


def test_not_even_one_token_fits():
    problem = refused(lambda: fitted(stack("L", full(), 2), PAGE))
    assert problem.allowed == (
        "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single "
        "token. Try increasing `gpu_memory_utilization`."
    )


def test_the_override_decides_what_a_fitted_length_fits_in():
    planned = fitted(stack("L", full(), 1), 3000 * PAGE, num_gpu_blocks_override=10)
    assert planned.limits.max_model_len == 160


def test_a_model_s_length_is_fitted_from_its_own():
    # 10 GiB: the estimate of the refusal (spec/layout.md 8)
    layout = plan("google--gemma-3-27b-it", kv_cache_memory_bytes=10 * GIB, max_model_len=-1)
    assert layout.limits.max_model_len == 75680
    assert layout.log_lines[-1].endswith("1.00x")


# -- nothing to keep, shared layers -------------------------------------------------------------


def test_without_layers_there_is_one_block_and_no_check():
    planned = pool({}, kv_cache_memory_bytes=0)
    assert planned.kv_cache_config == KVCacheConfig(1, (), ())
    assert (planned.log_lines, planned.capacity.tokens) == ((), 0)
    assert pool({}, max_model_len=-1).log_lines == (
        "Auto-fit max_model_len: attention-free model, using derived max_model_len=32768",
    )


def test_layers_that_share_a_cache_join_their_target_and_change_no_number():
    # gemma-3n-E4B: 20 own layers, 15 read L18 (sliding) or L19 (full) (spec/layout.md 6.7)
    layout = plan("google--gemma-3n-E4B-it", kv_cache_memory_bytes=8 * GIB)
    assert set(layout.kv_shared_target.values()) == {"L18", "L19"}
    runs = with_shared_layers(layout.kv_cache_config, layout.kv_shared_target)
    before = sum(len(g.layer_names) for g in layout.kv_cache_config.kv_cache_groups)
    after = sum(len(g.layer_names) for g in runs.kv_cache_groups)
    assert (before, after) == (20, 35)
    (group,) = [g for g in runs.kv_cache_groups if "L19" in g.layer_names]
    assert {"L24", "L29", "L34"} < set(group.layer_names)
    (tensor,) = [t for t in runs.kv_cache_tensors if "L19" in t.shared_by]
    assert {"L24", "L29", "L34"} < set(tensor.shared_by)
    assert [t.size for t in runs.kv_cache_tensors] == [
        t.size for t in layout.kv_cache_config.kv_cache_tensors
    ]


def test_states_of_two_shapes_are_one_bundle():
    # small oracle set
    specs = {"a": mamba(), "b": mamba(shapes=((8, 8), (8, 8)))}
    (group,) = pool(specs).groups
    assert len(group.kv_cache_spec.members) == 2

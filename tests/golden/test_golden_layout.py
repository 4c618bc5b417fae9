"""Layouts of the real vLLM 0.25.1 functions, from full specs and from model files."""

import json
from functools import cache
from pathlib import Path

import pytest

from sim.errors import ConfigError
from sim.layout.block_size import scheduler_and_hash_block_size
from sim.layout.kv_cache_spec import (
    FullAttentionSpec,
    MambaSpec,
    MemoryLimits,
    SlidingWindowSpec,
)
from sim.layout.plan import LayoutSettings, plan_layout, plan_pool
from sim.models import known_models, load_model

DATA = Path(__file__).parents[1] / "data"
KINDS = {"FullAttentionSpec", "SlidingWindowSpec", "MambaSpec"}


@cache
def golden_cases():
    golden = json.loads((DATA / "golden_layout.json").read_text())
    specs = json.loads((DATA / "golden_layout_specs.json").read_text())["cases"]
    return {case["key"]: (golden[case["index"]], case) for case in specs}


def is_plain(case):
    """One rank, hybrid manager on, not packed, and only kinds that exist."""
    settings, given = case["settings"], case["input"]
    kinds = {spec["kind"] for spec in case["specs"].values()}
    return (
        kinds <= KINDS
        and len(case["workers"]) == 1
        and given["dcp"] == 1
        and not given["hma_disabled"]
        and not settings["enable_cross_layers_blocks"]
    )


SPEC_CASES = [key for key, (_, case) in golden_cases().items() if is_plain(case)]
MODEL_CASES = [
    key
    for key in SPEC_CASES
    if (case := golden_cases()[key][1])["model_file"]
    and case["model_file"].removesuffix(".json") in known_models()
    and not case["settings"]["draft_layers"]
    and case["input"]["mode"] != "all"
]


def build_spec(fields):
    if fields["kind"] == "MambaSpec":
        return MambaSpec(
            block_size=fields["block_size"],
            shapes=tuple(tuple(shape) for shape in fields["shapes"]),
            dtype_bytes=tuple(fields["dtype_bytes"]),
            mamba_type=fields["flavour"],
            num_speculative_blocks=fields["num_speculative_blocks"],
            page_size_padded=fields["page_size_padded"],
        )
    common = {
        "block_size": fields["block_size"],
        "num_kv_heads": fields["num_kv_heads"],
        "head_size": fields["head_size"],
        "head_size_v": fields["head_size_v"],
        "dtype_bytes": fields["dtype_bytes"],
        "page_size_padded": fields["page_size_padded"],
        "indexes_kv_by_block_stride": fields["stride_indexed"],
    }
    if fields["kind"] == "SlidingWindowSpec":
        return SlidingWindowSpec(**common, sliding_window=fields["sliding_window"])
    return FullAttentionSpec(**common)


def plan_from_specs(case):
    given = case["input"]
    specs = {name: build_spec(case["specs"][key]) for name, key in case["workers"][0]}
    settings = LayoutSettings(
        kv_cache_memory_bytes=given["available"][0],
        max_num_batched_tokens=given["T"],
        max_model_len=given["L"],
        num_gpu_blocks_override=given["override"],
    )
    limits = MemoryLimits(given["L"], given["T"], given["mode"])
    return plan_pool(specs, settings, limits, longest=given["L"])


def groups_of(config):
    return [
        {
            "kind": type(group.kv_cache_spec).__name__,
            "block_size": group.kv_cache_spec.block_size,
            "page": group.kv_cache_spec.page_size_bytes,
            "layers": list(group.layer_names),
        }
        for group in config.kv_cache_groups
    ]


def tensors_of(config):
    return [
        {
            "size": tensor.size,
            "shared_by": list(tensor.shared_by),
            "offset": tensor.offset,
            "block_stride": tensor.block_stride,
        }
        for tensor in config.kv_cache_tensors
    ]


def assert_pool(golden, config, capacity, logs):
    worker = golden["workers"][0]
    assert config.num_blocks == worker["num_blocks"]
    assert groups_of(config) == worker["groups"]
    assert tensors_of(config) == worker["tensors"]
    assert list(logs) == golden["logs"]
    assert capacity.tokens == golden["tokens"]
    assert capacity.concurrency == golden["concurrency"]


def test_the_selection_covers_what_exists():
    assert len(golden_cases()) == 45
    assert len(SPEC_CASES) == 30  # 15 others: MLA, chunked, cross, DCP, PP, packed, manager off
    assert len(MODEL_CASES) == 9


@pytest.mark.parametrize("key", SPEC_CASES)
def test_specs_plan_as_in_the_engine(key):
    golden, case = golden_cases()[key]
    if "error" in golden:
        with pytest.raises(ConfigError) as caught:
            plan_from_specs(case)
        assert caught.value.problems[0].allowed == golden["error"].removeprefix("ValueError: ")
        return
    pool = plan_from_specs(case)
    assert_pool(golden, pool.kv_cache_config, pool.capacity, pool.log_lines)
    sizes = scheduler_and_hash_block_size(
        pool.kv_cache_config.kv_cache_groups, enable_prefix_caching=True
    )
    assert sizes == (golden["scheduler_block_size"], golden["hash_block_size"])


def plan_from_model(case):
    given = case["input"]
    align = given["mode"] == "align"
    settings = LayoutSettings(
        kv_cache_memory_bytes=given["available"][0],
        max_num_batched_tokens=given["T"],
        max_model_len=given["L"],
        num_gpu_blocks_override=given["override"],
        enable_prefix_caching=True if align else None,
        mamba_cache_mode="align" if align else None,
    )
    return plan_layout(load_model(case["model_file"].removesuffix(".json")), settings)


@pytest.mark.parametrize("key", MODEL_CASES)
def test_model_files_plan_as_in_the_engine(key):
    golden, case = golden_cases()[key]
    if "error" in golden:
        with pytest.raises(ConfigError) as caught:
            plan_from_model(case)
        assert caught.value.problems[0].allowed == golden["error"].removeprefix("ValueError: ")
        return
    layout = plan_from_model(case)
    # golden logs start at grouping: what block-size resolution says comes before them
    logs = layout.log_lines[-len(golden["logs"]) :]
    assert_pool(golden, layout.kv_cache_config, layout.capacity, logs)
    sizes = (layout.scheduler_block_size, layout.hash_block_size)
    assert sizes == (golden["scheduler_block_size"], golden["hash_block_size"])


@pytest.mark.parametrize("key", [k for k in MODEL_CASES if "error" not in golden_cases()[k][0]])
def test_model_files_give_every_field_of_the_specs(key):
    _, case = golden_cases()[key]
    built = {}
    for group in plan_from_model(case).kv_cache_config.kv_cache_groups:
        built |= dict.fromkeys(group.layer_names, group.kv_cache_spec)
    mode = case["input"]["mode"]
    for name, key_of_spec in case["workers"][0]:
        expected = build_spec(case["specs"][key_of_spec])
        if isinstance(expected, MambaSpec) and mode != "none":
            expected = MambaSpec(**(vars(expected) | {"mamba_cache_mode": mode}))
        assert built[name] == expected

"""Layouts of the real vLLM 0.25.1 functions, from full specs and from model files."""

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from sim.errors import ConfigError
from sim.layout import kv_cache_spec
from sim.layout.block_size import scheduler_and_hash_block_size
from sim.layout.kv_cache_spec import MambaSpec, MemoryLimits, QuantMode
from sim.layout.plan import LayoutSettings, plan_layout, plan_pool, prepare_layers
from sim.models import load_model
from sim.models.model_config import AttentionLayer

DATA = Path(__file__).parents[1] / "data"


@cache
def golden_cases():
    golden = json.loads((DATA / "golden_layout.json").read_text())
    specs = json.loads((DATA / "golden_layout_specs.json").read_text())["cases"]
    return {case["key"]: (golden[case["index"]], case) for case in specs}


SPEC_CASES = list(golden_cases())
MODEL_CASES = [key for key, (_, case) in golden_cases().items() if case["model_file"]]


def test_every_case_is_there():
    assert len(SPEC_CASES) == 45
    assert len(MODEL_CASES) == 44


def build_spec(fields):
    ignored = ("kind", "real_page_bytes", "page_bytes")
    values = {name: value for name, value in fields.items() if name not in ignored}
    if fields["kind"] == "MambaSpec":
        values["shapes"] = tuple(tuple(shape) for shape in fields["shapes"])
        values["dtype_bytes"] = tuple(fields["dtype_bytes"])
        values["mamba_type"] = values.pop("flavour")
    else:
        values["indexes_kv_by_block_stride"] = values.pop("stride_indexed")
        values["quant_mode"] = QuantMode(fields["quant_mode"])
    return getattr(kv_cache_spec, fields["kind"])(**values)


def common_settings(case):
    given = case["input"]
    return LayoutSettings(
        kv_cache_memory_bytes=tuple(given["available"]),
        max_num_batched_tokens=given["T"],
        max_model_len=given["L"],
        num_gpu_blocks_override=given["override"],
        disable_hybrid_kv_cache_manager=given["hma_disabled"],
        enable_cross_layers_blocks=case["settings"]["enable_cross_layers_blocks"],
    )


def plan_from_specs(case):
    given, settings = case["input"], case["settings"]
    by_worker = [
        {name: build_spec(case["specs"][key]) for name, key in worker} for worker in case["workers"]
    ]
    limits = MemoryLimits(
        max_model_len=given["L"],
        max_num_batched_tokens=given["T"],
        mamba_cache_mode=given["mode"],
        max_num_encoder_input_tokens=settings["max_num_encoder_input_tokens"] or 0,
        decode_context_parallel_size=given["dcp"],
        prefill_context_parallel_size=settings["pcp"],
    )
    return plan_pool(by_worker, common_settings(case), limits, longest=given["L"])


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


def assert_pools(golden, pool, logs):
    """A pool or a layout: both have workers and capacities."""
    for worker, expected in zip(pool.workers, golden["workers"], strict=True):
        config = worker.kv_cache_config
        assert config.num_blocks == expected["num_blocks"]
        assert groups_of(config) == expected["groups"]
        assert tensors_of(config) == expected["tensors"]
    assert list(logs) == golden["logs"]
    assert pool.capacity.tokens == golden["tokens"]
    assert pool.capacity.concurrency == golden["concurrency"]
    assert list(pool.scheduler_capacity) == golden["scheduler_capacity"]


def assert_refused(golden, plan):
    with pytest.raises(ConfigError) as caught:
        plan()
    assert caught.value.problems[0].allowed == golden["error"].removeprefix("ValueError: ")


@pytest.mark.parametrize("key", SPEC_CASES)
def test_specs_plan_as_in_the_engine(key):
    golden, case = golden_cases()[key]
    if "error" in golden:
        assert_refused(golden, lambda: plan_from_specs(case))
        return
    pool = plan_from_specs(case)
    assert_pools(golden, pool, pool.log_lines)
    sizes = scheduler_and_hash_block_size(
        pool.kv_cache_config.kv_cache_groups,
        enable_prefix_caching=True,
        context_parallel_size=pool.limits.context_parallel_size,
    )
    assert sizes == (golden["scheduler_block_size"], golden["hash_block_size"])


def model_of(case):
    return load_model(case["model_file"].removesuffix(".json"))


def settings_of(case):
    """A golden case's settings under the engine's names."""
    settings, mode = case["settings"], case["input"]["mode"]
    return replace(
        common_settings(case),
        kv_cache_dtype=settings["kv_cache_dtype"],
        tensor_parallel_size=settings["tp"],
        pipeline_parallel_layers=stages_of(case),
        decode_context_parallel_size=case["input"]["dcp"],
        prefill_context_parallel_size=settings["pcp"],
        enable_prefix_caching=None if mode == "none" else True,
        mamba_cache_mode=None if mode == "none" else mode,
        max_num_encoder_input_tokens=settings["max_num_encoder_input_tokens"],
        **speculation_of(settings),
    )


def stages_of(case):
    split = case["settings"]["pp_split_at"]
    bounds = [0, *split, model_of(case).dims.num_hidden_layers]
    return tuple(end - start for start, end in pairwise(bounds)) if split else None


def speculation_of(settings):
    drafts = settings["draft_layers"]
    if drafts:
        return {
            "speculative_method": "eagle",
            "num_speculative_layers": len(drafts),
            "draft_layer": AttentionLayer(name="draft", **drafts[0]),
        }
    if settings["mtp_layers"]:
        return {
            "speculative_method": "mtp",
            "num_speculative_tokens": settings["num_speculative_tokens"],
            "num_speculative_layers": settings["mtp_layers"],
        }
    return {}


@pytest.mark.parametrize("key", MODEL_CASES)
def test_model_files_plan_as_in_the_engine(key):
    golden, case = golden_cases()[key]
    if "error" in golden:
        assert_refused(golden, lambda: plan_layout(model_of(case), settings_of(case)))
        return
    layout = plan_layout(model_of(case), settings_of(case))
    # golden logs start at grouping: what block-size resolution says comes before them
    assert_pools(golden, layout, layout.log_lines[-len(golden["logs"]) :])
    sizes = (layout.scheduler_block_size, layout.hash_block_size)
    assert sizes == (golden["scheduler_block_size"], golden["hash_block_size"])


@pytest.mark.parametrize("key", MODEL_CASES)
def test_model_files_give_every_field_of_the_specs(key):
    _, case = golden_cases()[key]
    built = prepare_layers(model_of(case), settings_of(case)).specs_by_worker
    for own, worker in zip(built, case["workers"], strict=True):
        expected = {name: build_spec(case["specs"][spec]) for name, spec in worker}
        for name, spec in expected.items():
            if isinstance(spec, MambaSpec):
                expected[name] = replace(spec, mamba_cache_mode=case["input"]["mode"])
        assert list(own) == list(expected)
        assert own == expected

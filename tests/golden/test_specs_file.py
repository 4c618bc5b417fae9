"""The 45 layouts of the real functions again, through the file format of ``--specs``."""

import json
from functools import cache
from pathlib import Path

import pytest

from sim.errors import ConfigError
from sim.layout.plan import LayoutSettings
from sim.layout.plan_specs import plan_specs
from sim.layout.specs_file import load_specs

DATA = Path(__file__).parents[1] / "data"


@cache
def cases():
    golden = json.loads((DATA / "golden_layout.json").read_text())
    specs = json.loads((DATA / "golden_layout_specs.json").read_text())["cases"]
    return {case["key"]: (golden[case["index"]], case) for case in specs}


def settings_of(case):
    given, more = case["input"], case["settings"]
    return LayoutSettings(
        kv_cache_memory_bytes=tuple(given["available"]),
        max_model_len=given["L"],
        max_num_batched_tokens=given["T"],
        num_gpu_blocks_override=given["override"],
        mamba_cache_mode=given["mode"],
        decode_context_parallel_size=given["dcp"],
        disable_hybrid_kv_cache_manager=given["hma_disabled"],
        enable_cross_layers_blocks=more["enable_cross_layers_blocks"],
        max_num_encoder_input_tokens=more["max_num_encoder_input_tokens"],
        enable_prefix_caching=True,
    )


@pytest.mark.parametrize("key", cases())
def test_file_of_layers_plans_as_in_the_engine(tmp_path, key):
    golden, case = cases()[key]
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case))
    if "error" in golden:
        with pytest.raises(ConfigError) as caught:
            plan_specs(load_specs(path), settings_of(case))
        assert golden["error"].removeprefix("ValueError: ") in str(caught.value)
        return
    layout = plan_specs(load_specs(path), settings_of(case))
    assert list(layout.log_lines) == golden["logs"]
    assert (layout.capacity.tokens, layout.capacity.concurrency) == (
        golden["tokens"],
        golden["concurrency"],
    )
    for worker, expected in zip(layout.workers, golden["workers"], strict=True):
        config = worker.kv_cache_config
        assert config.num_blocks == expected["num_blocks"]
        layers = [list(group.layer_names) for group in config.kv_cache_groups]
        assert layers == [group["layers"] for group in expected["groups"]]
        sizes = [tensor.size for tensor in config.kv_cache_tensors]
        assert sizes == [tensor["size"] for tensor in expected["tensors"]]
    sizes = (layout.scheduler_block_size, layout.hash_block_size)
    assert sizes == (golden["scheduler_block_size"], golden["hash_block_size"])

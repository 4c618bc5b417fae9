"""Pipeline stages: which layers stand on which."""

import pytest

from sim.errors import ConfigError
from sim.models import load_model, split_pipeline, with_speculation


def refusal(stem, *args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        split_pipeline(load_model(stem), *args, **kwargs)
    (line,) = caught.value.lines()
    return line


def test_sizes_and_split_points_say_the_same():
    model = load_model("openai--gpt-oss-20b")
    stages = split_pipeline(model, [10, 14])
    assert stages == split_pipeline(model, split_at=[10])
    assert [stage[0] for stage in stages] == ["L0", "L10"]
    assert [len(stage) for stage in stages] == [10, 14]


def test_one_stage_holds_everything():
    model = load_model("Zyphra--Zamba2-1.2B")
    everything = [tuple(layer.name for layer in model.layers)]
    assert split_pipeline(model, [38]) == split_pipeline(model, split_at=[]) == everything


def test_blocks_without_a_cache_count():
    # M-M-M-M*-...: of blocks 0 to 3 two own a cache, of blocks 4 to 7 two and the attention
    stages = split_pipeline(load_model("nvidia--Nemotron-H-8B-Base-8K"), [4, 4, 44])
    assert stages[:2] == [("L0.mamba", "L2.mamba"), ("L4.mamba", "L6.mamba", "L7.attn")]


def test_a_stage_may_own_no_cache():
    stages = split_pipeline(load_model("nvidia--Nemotron-H-8B-Base-8K"), [1, 1, 0, 50])
    assert stages[:3] == [("L0.mamba",), (), ()]


def test_all_caches_of_a_block_stay_together():
    stages = split_pipeline(load_model("deepseek-ai--DeepSeek-V4-Flash"), [3, 40])
    assert stages[0][2:] == ("L2.swa", "L2.attn", "L2.comp", "L2.idx", "L2.idxcomp")
    whisper = split_pipeline(load_model("openai--whisper-large-v3"), [1, 31])
    assert whisper[0] == ("D0.self", "D0.cross")


def test_speculative_layers_go_to_the_last_stage():
    model = with_speculation(load_model("deepseek-ai--DeepSeek-V3"), "mtp", 1)
    model = with_speculation(model, "eagle", 1)
    assert split_pipeline(model, [60, 1])[1] == ("L60", "L61", "draft.0")
    assert split_pipeline(model, [61, 0])[1] == ("L61", "draft.0")


@pytest.mark.parametrize("sizes", [[24], [12, 13], [12, -1, 13], [], [24.0], [True, 23], ["24"]])
def test_sizes_must_add_up(sizes):
    stem = "Qwen--Qwen3-8B"  # 36 layers
    assert refusal(stem, sizes).startswith("pipeline_parallel_layers: ")


@pytest.mark.parametrize("points", [[20, 10], [37], [-1], ["1"]])
def test_split_points_must_ascend(points):
    assert refusal("Qwen--Qwen3-8B", split_at=points).startswith("pipeline_parallel")


def test_a_cache_is_not_read_from_another_stage():
    stem = "google--gemma-3n-E4B-it"  # layers 20 to 34 read 18 and 19
    line = refusal(stem, [20, 15])
    assert "L20 on the stage of L18" in line
    stages = split_pipeline(load_model(stem), [18, 17])
    assert stages[1] == ("L18", "L19")


def test_either_sizes_or_points():
    model = load_model("Qwen--Qwen3-8B")
    with pytest.raises(ValueError, match="either"):
        split_pipeline(model)
    with pytest.raises(ValueError, match="either"):
        split_pipeline(model, [36], split_at=[])

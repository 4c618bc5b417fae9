"""The rules of the families, on small configs made by hand."""

import pytest

from sim.errors import ConfigError
from sim.models import model_from_config

from .made_by_hand import DENSE, build, problem_keys, windows


def test_llama_without_kv_heads_has_as_many_as_query_heads_of_the_hidden_share():
    layer = build("LlamaForCausalLM").layers[0]
    assert (layer.name, layer.num_kv_heads, layer.head_size) == ("L0", 4, 16)  # 64 / 4


def test_null_counts_as_absent():
    model = build("LlamaForCausalLM", head_dim=None, num_key_value_heads=None)
    assert model == build("LlamaForCausalLM")


def test_llama_ignores_a_window():
    assert windows(build("LlamaForCausalLM", sliding_window=16)) == [None] * 6


def test_qwen_window_is_off_unless_the_switch_is_on():
    assert windows(build("Qwen2ForCausalLM", sliding_window=32)) == [None] * 6
    off = build("Qwen2ForCausalLM", sliding_window=32, use_sliding_window=False)
    assert windows(off) == [None] * 6


def test_qwen_switch_makes_layers_from_max_window_layers_slide():
    model = build(
        "Qwen2ForCausalLM", sliding_window=32, use_sliding_window=True, max_window_layers=4
    )
    assert windows(model) == [None, None, None, None, 32, 32]


def test_qwen_layer_types_win_over_the_count_and_are_cut_at_the_depth():
    types = ["sliding_attention", "full_attention"] * 4
    model = build("Qwen3ForCausalLM", sliding_window=32, use_sliding_window=True, layer_types=types)
    assert windows(model) == [32, None, 32, None, 32, None]


def test_qwen3_moe_counts_as_published():
    # Qwen3-30B-A3B: 30.5 billion parameters, 3.3 billion of them active (its model card)
    dims = build(
        "Qwen3MoeForCausalLM",
        hidden_size=2048,
        intermediate_size=6144,
        moe_intermediate_size=768,
        num_hidden_layers=48,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        vocab_size=151936,
    ).dims
    assert dims.num_parameters_total == pytest.approx(30.5e9, rel=0.01)
    assert dims.num_parameters_active == pytest.approx(3.3e9, rel=0.02)


@pytest.mark.parametrize("architecture", ["MistralForCausalLM", "Phi3ForCausalLM"])
def test_mistral_and_phi_have_one_window_or_none(architecture):
    assert windows(build(architecture)) == [None] * 6
    assert windows(build(architecture, sliding_window=None)) == [None] * 6
    assert windows(build(architecture, sliding_window=2047)) == [2047] * 6


def test_gemma2_slides_in_even_layers():
    assert windows(build("Gemma2ForCausalLM", sliding_window=48)) == [48, None] * 3


def test_gemma3_is_full_in_every_sixth_layer_and_its_tail_slides():
    model = build("Gemma3ForCausalLM", num_hidden_layers=8, sliding_window=48)
    assert windows(model) == [48, 48, 48, 48, 48, None, 48, 48]


def test_thin_gemma3_file_is_filled_with_class_defaults_and_says_so():
    # what the hub's gemma-3-4b-it holds in text_config
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    data = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    model = model_from_config(data, "thin")
    layer = model.layers[0]
    assert (layer.num_kv_heads, layer.head_size, layer.sliding_window) == (4, 256, 1024)
    assert model.max_model_len == 131072
    assert windows(model).count(None) == 5
    assert "text_config.num_key_value_heads=4" in model.defaults_taken
    assert "text_config.sliding_window_pattern=6" in model.defaults_taken


def test_gpt_oss_goes_by_the_index_and_ignores_layer_types():
    model = build(
        "GptOssForCausalLM",
        num_local_experts=4,
        num_experts_per_tok=2,
        layer_types=["full_attention"] * 6,
        num_key_value_heads=2,
        head_dim=16,
    )
    assert windows(model) == [128, None] * 3


def test_jamba_attends_at_the_offset_of_each_period():
    model = build(
        "JambaForCausalLM",
        attn_layer_period=3,
        attn_layer_offset=1,
        num_key_value_heads=2,
        mamba_d_state=8,
        mamba_d_conv=3,
        mamba_expand=2,
    )
    assert [layer.kind for layer in model.layers] == ["mamba1", "full", "mamba1"] * 2
    assert [layer.name for layer in model.layers[:2]] == ["L0.mamba", "L1.attn"]
    shapes = [(tensor.role, tensor.shape) for tensor in model.layers[0].tensors]
    assert shapes == [("conv", (2, 128)), ("ssm", (128, 8))]  # (3 - 1, 2 * 64), (2 * 64, 8)
    assert model.has_recurrent
    assert model.is_hybrid
    assert model.supports_mamba_all


def test_attention_only_models_are_not_hybrid():
    model = build("Gemma2ForCausalLM")
    assert not model.has_recurrent
    assert not model.is_hybrid


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "absent"])
def test_every_dtype_is_served_in_two_bytes(dtype):
    assert build("LlamaForCausalLM", torch_dtype=dtype).dtype_bytes == 2


def test_extra_keys_of_a_hub_file_are_ignored():
    extra = {"rope_scaling": {"factor": 8.0}, "vision_config": {"hidden_size": -1}, "x": None}
    assert build("LlamaForCausalLM", **extra) == build("LlamaForCausalLM")


def test_broken_facts_do_not_matter():
    model = build("LlamaForCausalLM", _facts={"params_total": "many", "params_active": 1})
    assert model.dims.parameters_from == "counted"


# -- wrong fields ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["absent", None, 0, -1, 2**31 + 1, True, "64", 64.0, float("nan"), [64], {}]
)
def test_a_wrong_size_names_its_key(value):
    with pytest.raises(ConfigError) as caught:
        build("LlamaForCausalLM", hidden_size=value)
    assert problem_keys(caught) == ["config.json:hidden_size"]
    assert "an integer from 1 to 2147483648" in str(caught.value)


def test_a_nested_key_is_named_with_its_path():
    text = {**DENSE, "num_hidden_layers": -3}
    with pytest.raises(ConfigError) as caught:
        build("Gemma3ForConditionalGeneration", text_config=text)
    assert problem_keys(caught) == ["config.json:text_config.num_hidden_layers"]


def test_each_problem_is_one_line():
    with pytest.raises(ConfigError) as caught:
        build("LlamaForCausalLM", hidden_size="absent", vocab_size=-1, num_hidden_layers=True)
    assert sorted(problem_keys(caught)) == [
        "config.json:hidden_size",
        "config.json:num_hidden_layers",
        "config.json:vocab_size",
    ]
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads"),  # 4 heads in groups of 3
        ({"hidden_size": 66}, "num_attention_heads"),  # 66 / 4 is no integer
    ],
)
def test_heads_that_do_not_divide_are_refused(changes, key):
    with pytest.raises(ConfigError) as caught:
        build("LlamaForCausalLM", **changes)
    assert problem_keys(caught) == [f"config.json:{key}"]


def test_a_jamba_offset_outside_its_period_is_refused():
    with pytest.raises(ConfigError) as caught:
        build("JambaForCausalLM", attn_layer_period=4, attn_layer_offset=4, num_key_value_heads=2)
    assert problem_keys(caught) == ["config.json:attn_layer_offset"]


def test_more_experts_per_token_than_experts_are_refused():
    with pytest.raises(ConfigError) as caught:
        build("GptOssForCausalLM", num_local_experts=2, num_experts_per_tok=3, head_dim=16,
              num_key_value_heads=2)  # fmt: skip
    assert problem_keys(caught) == ["config.json:num_experts_per_tok"]


def test_an_endless_stack_is_refused():
    with pytest.raises(ConfigError, match="an integer from 1 to 10000"):
        build("LlamaForCausalLM", num_hidden_layers=2**30)


@pytest.mark.parametrize("types", [["full_attention"], "full", [1] * 6, ["linear"] * 6])
def test_wrong_layer_types_are_refused(types):
    with pytest.raises(ConfigError, match="layer_types"):
        build("Qwen3ForCausalLM", use_sliding_window=True, layer_types=types)


@pytest.mark.parametrize("names", ["absent", None, [], "LlamaForCausalLM", [None], {}])
def test_an_architecture_is_needed(names):
    with pytest.raises(ConfigError) as caught:
        build("LlamaForCausalLM", architectures=names)
    assert problem_keys(caught) == ["config.json:architectures"]


def test_an_architecture_without_a_rule_is_named_and_the_nearest_comes_first():
    with pytest.raises(ConfigError) as caught:
        build("Gemma3xForCausalLM")
    problem = caught.value.problems[0]
    assert (problem.key, problem.value) == ("config.json:architectures", "Gemma3xForCausalLM")
    assert problem.allowed.startswith("known: Gemma3ForCausalLM, ")
    assert problem.suggestion == "Gemma3ForCausalLM"


def test_an_unknown_dtype_is_refused():
    with pytest.raises(ConfigError, match="one of auto, bfloat16, float16, float32"):
        build("LlamaForCausalLM", torch_dtype="float7")

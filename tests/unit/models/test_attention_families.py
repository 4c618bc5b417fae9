"""Rules of the attention-only families beyond the uniform ones, on small configs."""

import pytest

from sim.models import model_from_config

from .made_by_hand import DENSE, build, kinds, refused, windows

FULL, SLIDING = "full_attention", "sliding_attention"
TYPES = [SLIDING, SLIDING, SLIDING, FULL, SLIDING, SLIDING]
EXPERTS = {"moe_intermediate_size": 32, "num_key_value_heads": 2}


def test_cohere2_is_full_in_every_fourth_layer_or_as_listed():
    assert windows(build("Cohere2ForCausalLM", sliding_window=32, num_key_value_heads=2)) == [
        32, 32, 32, None, 32, 32,
    ]  # fmt: skip
    two = build("Cohere2ForCausalLM", sliding_window_pattern=2, num_key_value_heads=2)
    assert windows(two) == [4096, None] * 3
    assert "sliding_window=4096" in two.defaults_taken
    listed = build("Cohere2ForCausalLM", layer_types=[FULL] * 6, num_key_value_heads=2)
    assert windows(listed) == [None] * 6


def test_a_pattern_of_zero_is_refused():
    assert refused("Cohere2ForCausalLM", sliding_window_pattern=0, num_key_value_heads=2) == [
        "sliding_window_pattern"
    ]


def test_lately_saved_gemma_files_list_their_layers():
    model = build("Gemma3ForCausalLM", layer_types=[FULL, SLIDING] * 3, sliding_window=48)
    assert windows(model) == [None, 48] * 3


@pytest.mark.parametrize(
    "architecture", ["Olmo3ForCausalLM", "Exaone4ForCausalLM", "MinistralForCausalLM"]
)
def test_listed_layers_slide(architecture):
    model = build(architecture, layer_types=TYPES, sliding_window=32)
    assert windows(model) == [32, 32, 32, None, 32, 32]
    short = refused(architecture, layer_types=TYPES[:5], sliding_window=32)
    assert short == ["layer_types"]
    wrong = refused(architecture, layer_types=[*TYPES[:5], "linear"], sliding_window=32)
    assert wrong == ["layer_types[5]"]


def test_olmo3_without_a_list_is_full_in_every_fourth_layer():
    assert windows(build("Olmo3ForCausalLM")) == [4096, 4096, 4096, None, 4096, 4096]


@pytest.mark.parametrize("pattern", [4, "LLLG"])
def test_exaone_pattern_is_a_period_or_letters(pattern):
    model = build("Exaone4ForCausalLM", sliding_window=32, sliding_window_pattern=pattern)
    assert windows(model) == [32, 32, 32, None, 32, 32]


def test_exaone_without_window_and_pattern_is_full():
    nothing = build("Exaone4ForCausalLM", sliding_window=None, sliding_window_pattern=None)
    assert windows(nothing) == [None] * 6


@pytest.mark.parametrize("pattern", ["LLX", "", 0, -1, [4], 2.5])
def test_a_wrong_exaone_pattern_is_refused(pattern):
    assert refused("Exaone4ForCausalLM", sliding_window_pattern=pattern) == [
        "sliding_window_pattern"
    ]


def test_ministral_without_a_list_has_one_window_or_none():
    assert windows(build("MinistralForCausalLM", sliding_window=32)) == [32] * 6
    assert windows(build("MinistralForCausalLM")) == [None] * 6


def test_an_interleaved_mistral_file_is_no_uniform_one():
    model = build("MistralForCausalLM", sliding_window=32, layer_types=TYPES)
    assert windows(model) == [32, 32, 32, None, 32, 32]


def test_full_attention_mixtures():
    glm = build("Glm4MoeForCausalLM", num_nextn_predict_layers=1, **EXPERTS)
    assert (kinds(glm), [la.name for la in glm.mtp_layers]) == (["full"] * 6, ["L6"])
    minimax = build("MiniMaxM2ForCausalLM", attn_type_list=[1] * 6, num_key_value_heads=2)
    assert kinds(minimax) == ["full"] * 6
    assert kinds(build("HunYuanDenseV1ForCausalLM")) == ["full"] * 6


def test_dense_hunyuan_with_shared_caches_is_refused():
    assert refused("HunYuanDenseV1ForCausalLM", use_cla=True, cla_share_factor=2) == ["use_cla"]


def test_glm_mtp_layers_are_a_count():
    wrong = refused("Glm4MoeForCausalLM", num_nextn_predict_layers=-1, **EXPERTS)
    assert wrong == ["num_nextn_predict_layers"]


def test_hunyuan_sizes_are_a_number_or_one_per_layer():
    listed = {"moe_topk": [2] * 6, "moe_intermediate_size": [32] * 6, "num_shared_expert": [1] * 6}
    plain = {"moe_topk": 2, "moe_intermediate_size": 32, "num_shared_expert": 1}
    common = {"num_experts": 4, "num_key_value_heads": 2}
    as_list = build("HunYuanMoEV1ForCausalLM", **listed, **common)
    as_number = build("HunYuanMoEV1ForCausalLM", **plain, **common)
    assert as_list == as_number
    # per layer: router 64*4, 5 (or 3) experts of 3*64*32, attention 64*(2*4+2*2)*16
    assert as_list.dims.num_parameters_total == 6400 + 6 * (256 + 5 * 6144 + 12_288)
    assert as_list.dims.num_parameters_active == 6400 + 6 * (256 + 3 * 6144 + 12_288)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"use_cla": True}, "use_cla"),
        ({"moe_topk": [2] * 5}, "moe_topk"),
        ({"moe_topk": [2, 2, 2, 2, 2, -1]}, "moe_topk[5]"),
        ({"moe_topk": 5}, "moe_topk"),
    ],
)
def test_wrong_hunyuan_files_are_refused(changes, key):
    fields = {"num_experts": 4, "moe_topk": 2, "num_key_value_heads": 2, **changes}
    assert refused("HunYuanMoEV1ForCausalLM", **fields) == [key]


LLAMA4 = {"num_key_value_heads": 2, "head_dim": 16, "attention_chunk_size": 64}


def chunks(model):
    return [layer.attention_chunk_size for layer in model.layers]


@pytest.mark.parametrize("listed", ["absent", [], None, [1, 1, 1, 0, 1, 1]])
def test_llama4_is_chunked_where_positions_rotate(listed):
    model = build("Llama4ForCausalLM", no_rope_layers=listed, **LLAMA4)
    assert chunks(model) == [64, 64, 64, None, 64, 64]
    assert kinds(model)[2:4] == ["chunked", "full"]
    assert model.attention_chunk_size == 64


def test_llama4_reads_the_nested_model_of_a_multimodal_file():
    text = {**DENSE, **LLAMA4}
    data = {"architectures": ["Llama4ForConditionalGeneration"], "text_config": text}
    assert chunks(model_from_config(data, "nested")) == [64, 64, 64, None, 64, 64]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"no_rope_layers": [1, 1]}, "no_rope_layers"),
        ({"no_rope_layers": [1, 1, 1, 2, 1, 1]}, "no_rope_layers[3]"),
        ({"attention_chunk_size": 0}, "attention_chunk_size"),
        ({"moe_layers": [6]}, "moe_layers[0]"),
    ],
)
def test_wrong_llama4_files_are_refused(changes, key):
    assert refused("Llama4ForCausalLM", **{**LLAMA4, **changes}) == [key]


MIMO = {
    "num_key_value_heads": 2,
    "head_dim": 24,
    "v_head_dim": 16,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 24,
    "swa_v_head_dim": 16,
    "sliding_window": 32,
    "attention_chunk_size": 32,
    "hybrid_layer_pattern": [0, 1, 1, 0, 1, 1],
    "moe_layer_freq": [0, 1, 1, 1, 1, 1],
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}


def test_mimo_layers_have_sizes_by_kind_and_no_chunk():
    model = build("MiMoV2FlashForCausalLM", **MIMO)
    full, sliding = model.layers[:2]
    assert (full.num_kv_heads, full.head_size, full.head_size_v) == (2, 24, 16)
    assert full.kv_bytes_per_token(2) == 2 * (24 + 16) * 2
    assert (sliding.num_kv_heads, sliding.sliding_window) == (4, 32)
    assert sliding.kv_bytes_per_token(2) == 4 * (24 + 16) * 2
    assert windows(model) == [None, 32, 32, None, 32, 32]
    assert model.attention_chunk_size is None


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern"),
        ({"hybrid_layer_pattern": [0, 1, 1, 0, 1, 2]}, "hybrid_layer_pattern[5]"),
        ({"swa_num_key_value_heads": 3}, "swa_num_key_value_heads"),
        ({"v_head_dim": 0}, "v_head_dim"),
        ({"moe_layer_freq": 1}, "moe_layer_freq"),
    ],
)
def test_wrong_mimo_files_are_refused(changes, key):
    assert refused("MiMoV2FlashForCausalLM", **{**MIMO, **changes}) == [key]


STEP = {
    "num_attention_groups": 2,
    "head_dim": 16,
    "layer_types": [FULL, SLIDING, SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL],
    "num_nextn_predict_layers": 2,
    "attention_other_setting": {
        "num_attention_heads": 6,
        "num_attention_groups": 3,
        "head_dim": 8,
    },
    "moe_layers_enum": "3,4,5",
    "moe_num_experts": 4,
    "moe_top_k": 2,
}


def test_step_takes_the_heads_of_sliding_layers_from_another_section():
    model = build("Step3p5ForCausalLM", **STEP)
    assert windows(model) == [None, 512, 512, 512, None, 512]
    full, sliding = model.layers[:2]
    assert (full.num_kv_heads, full.head_size) == (2, 16)
    assert (sliding.num_kv_heads, sliding.head_size) == (3, 8)
    assert [(la.name, la.kind) for la in model.mtp_layers] == [("L6", "sliding"), ("L7", "full")]


def test_step_mtp_layers_that_are_not_listed_slide():
    model = build("Step3p5ForCausalLM", **{**STEP, "layer_types": STEP["layer_types"][:6]})
    assert [layer.kind for layer in model.mtp_layers] == ["sliding", "sliding"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"layer_types": [FULL] * 5}, "layer_types"),
        ({"attention_other_setting": 3}, "attention_other_setting"),
        ({"num_attention_groups": 3}, "num_attention_groups"),
        ({"moe_layers_enum": "3,four"}, "moe_layers_enum"),
        ({"moe_layers_enum": [3, 4]}, "moe_layers_enum"),
        ({"moe_layers_enum": "²"}, "moe_layers_enum"),
    ],
)
def test_wrong_step_files_are_refused(changes, key):
    assert key in refused("Step3p5ForCausalLM", **{**STEP, **changes})


def test_gemma3n_tail_reads_the_last_owning_layers():
    types = [SLIDING, SLIDING, SLIDING, FULL, SLIDING, FULL]
    model = build("Gemma3nForCausalLM", layer_types=types, num_kv_shared_layers=2)
    assert [layer.name for layer in model.layers] == ["L0", "L1", "L2", "L3"]
    assert model.kv_shared_target == {"L4": "L2", "L5": "L3"}
    assert windows(model) == [512, 512, 512, None]


def test_thin_gemma3n_file_is_filled_with_class_defaults():
    text = {"num_hidden_layers": 35, "model_type": "gemma3n_text"}
    data = {"architectures": ["Gemma3nForConditionalGeneration"], "text_config": text}
    model = model_from_config(data, "thin")
    assert len(model.layers) == 20  # 35 less 15 shared
    assert model.layers[0].kv_bytes_per_token(2) == 2048  # models/README.md
    assert "text_config.num_kv_shared_layers=15" in model.defaults_taken


@pytest.mark.parametrize("shared", [5, 6, 7, -1])
def test_too_many_shared_layers_are_refused(shared):
    assert refused("Gemma3nForCausalLM", num_kv_shared_layers=shared) == ["num_kv_shared_layers"]


GEMMA4 = {
    "layer_types": [SLIDING, SLIDING, FULL, SLIDING, FULL, SLIDING],
    "head_dim": 16,
    "global_head_dim": 32,
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "hidden_size_per_layer_input": 0,
}


@pytest.mark.parametrize(("k_is_v", "kv_heads"), [(True, 1), (False, 2)])
def test_gemma4_full_layers_have_their_own_size(k_is_v, kv_heads):
    model = build("Gemma4ForCausalLM", attention_k_eq_v=k_is_v, **GEMMA4)
    sizes = {(la.kind, la.num_kv_heads, la.head_size) for la in model.layers}
    assert sizes == {("sliding", 2, 16), ("full", kv_heads, 32)}
    assert model.layers[2].kv_bytes_per_token(2) == 2 * kv_heads * 32 * 2  # keys and values


def test_gemma4_tail_reads_the_last_owning_layer_of_its_type():
    model = build("Gemma4ForCausalLM", num_kv_shared_layers=3, **GEMMA4)
    assert model.kv_shared_target == {"L3": "L1", "L4": "L2", "L5": "L1"}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers"),  # no full layer would own a cache
        ({"num_kv_shared_layers": 6}, "num_kv_shared_layers"),
        ({"layer_types": "absent"}, "layer_types"),
        ({"attention_k_eq_v": True, "num_global_key_value_heads": 3}, "num_global_key_value_heads"),
        ({"attention_k_eq_v": "yes"}, "attention_k_eq_v"),
    ],
)
def test_wrong_gemma4_files_are_refused(changes, key):
    assert refused("Gemma4ForCausalLM", **{**GEMMA4, **changes}) == [key]


WHISPER = {
    "d_model": 64,
    "decoder_layers": 2,
    "encoder_layers": 3,
    "decoder_attention_heads": 4,
    "max_source_positions": 50,
    "max_target_positions": 20,
}


def test_whisper_has_two_caches_per_decoder_layer():
    model = build("WhisperForConditionalGeneration", **WHISPER)
    assert [layer.name for layer in model.layers] == ["D0.self", "D0.cross", "D1.self", "D1.cross"]
    assert kinds(model) == ["full", "cross"] * 2
    assert (model.max_model_len, model.max_encoder_tokens) == (20, 50)
    assert model.is_encoder_decoder


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"decoder_attention_heads": 5}, "decoder_attention_heads"),
        ({"d_model": "absent"}, "d_model"),
        ({"decoder_layers": 0}, "decoder_layers"),
        ({"max_source_positions": -1}, "max_source_positions"),
    ],
)
def test_wrong_whisper_files_are_refused(changes, key):
    assert refused("WhisperForConditionalGeneration", **{**WHISPER, **changes}) == [key]

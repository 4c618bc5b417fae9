"""Rules of the families with recurrent layers, on small configs."""

import pytest

from sim.models import load_model, model_from_config

from .made_by_hand import DENSE, build, kinds, refused

MAMBA2 = {
    "num_key_value_heads": 2,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 32,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}


def shapes(layer):
    return [tensor.shape for tensor in layer.tensors]


def test_bamba_attends_in_the_listed_layers():
    model = build("BambaForCausalLM", attn_layer_indices=[1, 4], **MAMBA2)
    assert kinds(model) == ["mamba2", "full", "mamba2", "mamba2", "full", "mamba2"]
    assert shapes(model.layers[0]) == [(3, 128 + 2 * 2 * 32), (8, 16, 32)]
    assert model.supports_mamba_all


@pytest.mark.parametrize(
    ("mamba", "attention"), [("mamba", "attention"), ("linear_attention", "full_attention")]
)
def test_granite_accepts_both_spellings_of_its_layers(mamba, attention):
    types = [mamba, mamba, attention, mamba, mamba, mamba]
    model = build("GraniteMoeHybridForCausalLM", layer_types=types, **MAMBA2)
    assert [la.name for la in model.layers[1:4]] == ["L1.mamba", "L2.attn", "L3.mamba"]


def test_a_head_size_of_auto_fills_the_inner_width():
    model = build("BambaForCausalLM", attn_layer_indices=[], **{**MAMBA2, "mamba_d_head": "auto"})
    assert shapes(model.layers[0])[1] == (8, 16, 32)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"attn_layer_indices": [6]}, "attn_layer_indices[0]"),
        ({"attn_layer_indices": ["1"]}, "attn_layer_indices[0]"),
        ({"attn_layer_indices": "absent"}, "attn_layer_indices"),
        ({"mamba_d_head": 15}, "mamba_d_head"),
        ({"mamba_n_heads": 7, "mamba_d_head": "auto"}, "mamba_d_head"),
        ({"mamba_d_conv": 1}, "mamba_d_conv"),
    ],
)
def test_wrong_bamba_files_are_refused(changes, key):
    fields = {"attn_layer_indices": [1], **MAMBA2, **changes}
    assert refused("BambaForCausalLM", **fields) == [key]


def test_granite_needs_its_layer_types():
    assert refused("GraniteMoeHybridForCausalLM", **MAMBA2) == ["layer_types"]
    types = ["mamba"] * 5 + ["hybrid"]
    wrong = refused("GraniteMoeHybridForCausalLM", layer_types=types, **MAMBA2)
    assert wrong == ["layer_types[5]"]


ZAMBA2 = {
    "n_mamba_heads": 8,
    "mamba_headdim": 16,
    "mamba_ngroups": 1,
    "mamba_d_state": 32,
    "hybrid_layer_ids": [2, 5],
}


def test_zamba2_has_a_state_everywhere_and_attention_beside_some():
    model = build("Zamba2ForCausalLM", **ZAMBA2)
    assert [layer.name for layer in model.layers] == [
        "L0.mamba", "L1.mamba", "L2.mamba", "L2.attn", "L3.mamba", "L4.mamba", "L5.mamba",
        "L5.attn",
    ]  # fmt: skip
    attention = model.first_attention_layer
    assert (attention.num_kv_heads, attention.head_size) == (4, 32)  # 2 * 64 / 4


def test_zamba2_without_ids_goes_by_its_block_types():
    types = ["mamba", "mamba", "hybrid", "mamba", "mamba", "hybrid"]
    fields = {**ZAMBA2, "hybrid_layer_ids": "absent", "layers_block_type": types}
    assert (
        build("Zamba2ForCausalLM", **fields).layers == build("Zamba2ForCausalLM", **ZAMBA2).layers
    )


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hybrid_layer_ids": [6]}, "hybrid_layer_ids[0]"),
        ({"hybrid_layer_ids": "absent"}, "layers_block_type"),
        ({"mamba_headdim": 17}, "mamba_headdim"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
    ],
)
def test_wrong_zamba2_files_are_refused(changes, key):
    assert refused("Zamba2ForCausalLM", **{**ZAMBA2, **changes}) == [key]


NEMOTRON = {
    "hybrid_override_pattern": "M-M*EM",
    "num_key_value_heads": 2,
    "head_dim": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 12,
    "n_groups": 2,
    "ssm_state_size": 32,
    "expand": 2,
    "n_routed_experts": 8,
}


def test_nemotron_goes_by_letters_and_ignores_expand():
    model = build("NemotronHForCausalLM", **NEMOTRON)
    assert [layer.name for layer in model.layers] == ["L0.mamba", "L2.mamba", "L3.attn", "L5.mamba"]
    assert shapes(model.layers[0]) == [(3, 8 * 12 + 2 * 2 * 32), (8, 12, 32)]
    assert model.dims.num_hidden_layers == 6


@pytest.mark.parametrize(
    ("given", "meant"),
    [("absent", "float32"), ("float32", "float32"), ("bfloat16", "bfloat16"), ("auto", "float32")],
)
def test_nemotron_states_are_float32_unless_the_file_says_otherwise(given, meant):
    model = build("NemotronHForCausalLM", mamba_ssm_cache_dtype=given, **NEMOTRON)
    assert model.mamba_ssm_cache_dtype == meant


@pytest.mark.parametrize("pattern", ["absent", "M-M*E", "M-M*EX", ["M"] * 6, 6, ""])
def test_a_wrong_nemotron_pattern_is_refused(pattern):
    fields = {**NEMOTRON, "hybrid_override_pattern": pattern}
    assert refused("NemotronHForCausalLM", **fields) == ["hybrid_override_pattern"]


def test_nemotron_blocks_may_be_spelled_out():
    names = ["mamba", "mlp", "mamba", "attention", "moe", "mamba"]
    fields = {**NEMOTRON, "hybrid_override_pattern": "absent", "layers_block_type": names}
    spelled = build("NemotronHForCausalLM", **fields)
    assert spelled.layers == build("NemotronHForCausalLM", **NEMOTRON).layers


def test_falcon_h1_has_both_caches_in_every_layer():
    model = build("FalconH1ForCausalLM", **{**MAMBA2, "mamba_d_ssm": 128})
    assert [layer.name for layer in model.layers[:3]] == ["L0.mamba", "L0.attn", "L1.mamba"]
    assert build("FalconH1ForCausalLM", **MAMBA2).layers == model.layers  # 2 * 64
    wide = {**MAMBA2, "mamba_d_ssm": 256, "mamba_d_head": 32}
    assert shapes(build("FalconH1ForCausalLM", **wide).layers[0])[1] == (8, 32, 32)


def test_falcon_h1_heads_must_fill_its_inner_width():
    wrong = refused("FalconH1ForCausalLM", **{**MAMBA2, "mamba_d_ssm": 120})
    assert wrong == ["mamba_d_head"]


PLAMO2 = {"hidden_size_per_head": 16, "num_key_value_heads": 1, "mamba_num_heads": 8}


@pytest.mark.parametrize(
    ("step", "depth", "attending"),
    [(2, 6, [1, 3, 5]), (4, 6, [2]), (2, 1, [0]), (8, 4, [3])],
)
def test_plamo2_attends_in_the_middle_of_each_step(step, depth, attending):
    model = build("Plamo2ForCausalLM", mamba_step=step, num_hidden_layers=depth, **PLAMO2)
    assert [idx for idx, kind in enumerate(kinds(model)) if kind == "full"] == attending


def test_plamo2_ignores_its_window_and_convolves_inner_channels_only():
    model = build("Plamo2ForCausalLM", attention_window_size=32, **PLAMO2)
    assert kinds(model)[1] == "full"
    assert shapes(model.layers[0]) == [(3, 128), (8, 16, 64)]
    assert kinds(build("Plamo2ForCausalLM", mamba_enabled=False, **PLAMO2)) == ["full"] * 6


def test_a_plamo2_step_of_one_is_refused():
    assert refused("Plamo2ForCausalLM", mamba_step=1, **PLAMO2) == ["mamba_step"]


def test_mamba2_heads_must_fill_its_inner_width():
    fields = {"num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 32}
    model = build("Mamba2ForCausalLM", **fields)
    assert (model.layers[0].name, shapes(model.layers[0])) == ("L0", [(3, 192), (8, 16, 32)])
    assert not model.is_hybrid
    assert refused("Mamba2ForCausalLM", **{**fields, "head_dim": 15}) == ["head_dim"]


def test_falcon_mamba_is_as_wide_as_its_intermediate_size():
    model = build("FalconMambaForCausalLM", expand=16, state_size=8)
    assert shapes(model.layers[0]) == [(3, 128), (128, 8)]
    plain = build("MambaForCausalLM", intermediate_size="absent", expand=3, state_size=8)
    assert shapes(plain.layers[0]) == [(3, 192), (192, 8)]
    assert refused("FalconMambaForCausalLM", conv_kernel=1) == ["conv_kernel"]


def test_a_context_length_that_no_file_names_is_assumed():
    named = build("MambaForCausalLM")
    assert (named.max_model_len, named.max_model_len_is_assumed) == (1024, False)
    silent = build("MambaForCausalLM", max_position_embeddings="absent")
    assert (silent.max_model_len, silent.max_model_len_is_assumed) == (2048, True)
    assert "max_position_embeddings=2048" in silent.defaults_taken


GATED = {
    "head_dim": 16,
    "num_key_value_heads": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def test_qwen3_next_attends_at_the_end_of_each_interval():
    model = build("Qwen3NextForCausalLM", full_attention_interval=3, **GATED, **EXPERTS)
    assert kinds(model) == ["gdn", "gdn", "full"] * 2
    assert shapes(model.layers[0]) == [(3, 2 * 2 * 8 + 4 * 12), (4, 12, 8)]
    assert model.mamba_ssm_cache_dtype is None
    assert [layer.name for layer in model.mtp_layers] == ["L6.attn"]


@pytest.mark.parametrize("linear", ["linear_attention", "mamba"])
@pytest.mark.parametrize("full", ["full_attention", "attention"])
def test_qwen3_5_lists_its_layers_in_either_spelling(linear, full):
    text = {**DENSE, **GATED, "layer_types": [full, linear] * 3, "mamba_ssm_dtype": "float32"}
    data = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": text}
    model = model_from_config({**data, "tie_word_embeddings": True}, "nested")
    assert kinds(model) == ["full", "gdn"] * 3
    assert model.mamba_ssm_cache_dtype == "float32"


def test_tied_embeddings_of_qwen3_5_are_counted_once():
    text = {**DENSE, **GATED}
    data = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": text}
    tied, untied = (
        model_from_config({**data, "tie_word_embeddings": flag}, "nested").dims
        for flag in (True, False)
    )
    assert untied.num_parameters_total - tied.num_parameters_total == 100 * 64


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"full_attention_interval": 0}, "full_attention_interval"),
        ({"linear_num_value_heads": 3}, "linear_num_value_heads"),
        ({"layer_types": ["conv"] * 6}, "layer_types[0]"),
        ({"num_nextn_predict_layers": 65}, "num_nextn_predict_layers"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"mamba_ssm_dtype": "int8"}, "mamba_ssm_dtype"),
    ],
)
def test_wrong_qwen3_next_files_are_refused(changes, key):
    assert refused("Qwen3NextForCausalLM", **{**GATED, **EXPERTS, **changes}) == [key]


def test_minimax_types_are_numbers():
    fields = {"num_key_value_heads": 2, "num_local_experts": 4}
    model = build("MiniMaxText01ForCausalLM", attn_type_list=[0, 0, 1, 0, 0, 1], **fields)
    assert kinds(model) == ["lightning", "lightning", "full"] * 2
    assert shapes(model.layers[0]) == [(4, 16, 16)]
    short = refused("MiniMaxM1ForCausalLM", attn_type_list=[0, 1], **fields)
    assert short == ["attn_type_list"]
    wrong = refused("MiniMaxM1ForCausalLM", attn_type_list=[0, 1, 2, 0, 0, 0], **fields)
    assert wrong == ["attn_type_list[2]"]


RING = {"num_key_value_heads": 2, "moe_intermediate_size": 16, "head_dim": 16}


def test_ring_2_0_attends_at_group_ends_and_in_an_unfinished_group():
    model = build("BailingMoeLinearV2ForCausalLM", layer_group_size=4, **RING)
    assert kinds(model) == ["lightning"] * 3 + ["full"] * 3


def test_ring_2_5_has_latent_attention_at_group_ends():
    model = build("BailingMoeV2_5ForCausalLM", layer_group_size=4, **RING)
    assert kinds(model) == ["lightning"] * 3 + ["mla"] + ["lightning"] * 2
    assert model.layers[3].head_size == 512 + 64
    assert "kv_lora_rank=512" in model.defaults_taken


@pytest.mark.parametrize("size", [0, -1, "4"])
def test_a_wrong_ring_group_is_refused(size):
    for architecture in ("BailingMoeLinearV2ForCausalLM", "BailingMoeV2_5ForCausalLM"):
        assert refused(architecture, layer_group_size=size, **RING) == ["layer_group_size"]


LFM2 = {"num_key_value_heads": 2, "conv_L_cache": 3}


def test_lfm2_attends_in_listed_layers_or_by_type():
    by_index = build("Lfm2ForCausalLM", full_attn_idxs=[1, 4], **LFM2)
    types = ["conv", "full_attention", "conv", "conv", "full_attention", "conv"]
    by_type = build("Lfm2ForCausalLM", layer_types=types, **LFM2)
    assert by_index.layers == by_type.layers
    assert kinds(by_index) == ["short_conv", "full", "short_conv"] * 2
    assert shapes(by_index.layers[0]) == [(2, 64)]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"full_attn_idxs": "absent"}, "full_attn_idxs"),
        ({"full_attn_idxs": [-1]}, "full_attn_idxs[0]"),
        ({"conv_L_cache": 1}, "conv_L_cache"),
        ({"block_ffn_dim_multiplier": "1"}, "block_ffn_dim_multiplier"),
        ({"block_ffn_dim_multiplier": float("nan")}, "block_ffn_dim_multiplier"),
    ],
)
def test_wrong_lfm2_files_are_refused(changes, key):
    fields = {"full_attn_idxs": [1], **LFM2, **changes}
    assert refused("Lfm2ForCausalLM", **fields) == [key]


def test_recurrent_gemma_repeats_its_block_types():
    fields = {"num_key_value_heads": 1, "attention_window_size": 32, "lru_width": 48}
    model = build("RecurrentGemmaForCausalLM", num_hidden_layers=5, **fields)
    assert kinds(model) == ["rglru", "rglru", "sliding", "rglru", "rglru"]
    assert shapes(model.layers[0]) == [(3, 48), (48,)]
    assert model.layers[0].state_bytes({"conv": 2, "ssm": 2}) == 3 * 48 * 2 + 48 * 4
    assert refused("RecurrentGemmaForCausalLM", _block_types=["conv"], **fields) == [
        "_block_types[0]"
    ]
    assert refused("RecurrentGemmaForCausalLM", _block_types=[], **fields) == ["_block_types"]


def test_phi4_flash_has_one_full_cache_that_its_upper_half_reads():
    model = build("Phi4FlashForCausalLM", num_hidden_layers=8, sliding_window=32)
    # half is 4: 0 and 2 and 4 are Mamba, 1 and 3 slide, 5 is full, 6 owns nothing, 7 reads 5
    assert kinds(model) == ["mamba1", "sliding", "mamba1", "sliding", "mamba1", "full"]
    assert model.kv_shared_target == {"L7.attn": "L5.attn"}


def test_a_phi4_flash_stack_without_an_even_middle_is_refused():
    assert refused("Phi4FlashForCausalLM") == ["num_hidden_layers"]  # 6 layers


KIMI = {"linear_attn_config": {"kda_layers": [1, 2, 4, 5], "num_heads": 4, "head_dim": 8}}
KIMI_EXPERTS = {"num_experts": 8, "num_experts_per_token": 2}


def test_kimi_counts_its_layers_from_one():
    model = build("KimiLinearForCausalLM", model_max_length=4096, **KIMI, **KIMI_EXPERTS)
    assert kinds(model) == ["kda", "kda", "mla"] * 2
    assert shapes(model.layers[0]) == [(3, 3 * 32), (4, 8, 8)]
    assert model.max_model_len == 4096


@pytest.mark.parametrize(
    ("linear", "key"),
    [
        ({"kda_layers": [0]}, "linear_attn_config.kda_layers[0]"),
        ({"kda_layers": [7]}, "linear_attn_config.kda_layers[0]"),
        ({"kda_layers": None}, "linear_attn_config.kda_layers"),
        (3, "linear_attn_config"),
    ],
)
def test_wrong_kimi_files_are_refused(linear, key):
    assert key in refused("KimiLinearForCausalLM", linear_attn_config=linear, **KIMI_EXPERTS)


@pytest.mark.parametrize(
    ("stem", "tokens"),
    [
        ("ai21labs--Jamba-v0.1", 2048),  # spec/layout.md 3.2, "N all (chunk)"
        ("ibm-ai-platform--Bamba-9B-v1", 256),
        ("Zyphra--Zamba2-7B", 256),
        ("nvidia--Nemotron-H-8B-Base-8K", 128),
    ],
)
def test_chunks_of_the_mode_all_are_those_of_the_specification(stem, tokens):
    assert load_model(stem).mamba_chunk_size == tokens


@pytest.mark.parametrize(
    ("stem", "supports"),
    [
        ("ai21labs--Jamba-v0.1", True),
        ("tiiuae--falcon-mamba-7b", True),
        ("mistralai--Mamba-Codestral-7B-v0.1", True),
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", True),
        ("Zyphra--Zamba2-1.2B", True),
        ("tiiuae--Falcon-H1-34B-Instruct", True),
        ("ibm-granite--granite-4.0-h-tiny", True),
        ("pfnet--plamo-2-8b", False),
        ("MiniMaxAI--MiniMax-M1-80k", False),
        ("Qwen--Qwen3.5-9B", False),
        ("moonshotai--Kimi-Linear-48B-A3B-Instruct", False),
        ("LiquidAI--LFM2-8B-A1B", False),
        ("inclusionAI--Ring-2.5-1T", False),
    ],
)
def test_which_models_declare_the_mode_all(stem, supports):
    assert load_model(stem).supports_mamba_all == supports  # spec/layout.md 3.0

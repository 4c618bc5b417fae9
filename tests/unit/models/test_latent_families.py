"""Rules of latent attention, sparse indexers and compressed caches, on small configs."""

import pytest

from sim.models import load_model

from .made_by_hand import build, kinds, refused

SPARSE = {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
}


@pytest.mark.parametrize("architecture", ["DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"])
def test_deepseek_caches_one_vector_per_token(architecture):
    layer = build(architecture, **SPARSE).layers[0]
    assert (layer.name, layer.kind, layer.head_size) == ("L0", "mla", 36)
    assert layer.kv_bytes_per_token(2) == 72
    assert layer.indexes_kv_by_block_stride


def test_a_sparse_model_has_an_indexer_beside_each_layer():
    model = build("DeepseekV32ForCausalLM", num_nextn_predict_layers=1, **SPARSE)
    assert [layer.name for layer in model.layers[:3]] == ["L0.attn", "L0.idx", "L1.attn"]
    assert [layer.name for layer in model.mtp_layers] == ["L6.attn", "L6.idx"]
    main, indexer = model.layers[:2]
    assert not main.indexes_kv_by_block_stride
    assert not indexer.indexes_kv_by_block_stride
    assert indexer.kv_bytes_per_token(2) == 16 + 4  # one fp32 scale per 128 values


def test_an_indexer_of_256_values_has_two_scales():
    model = build("DeepseekV32ForCausalLM", **{**SPARSE, "index_head_dim": 256})
    assert model.layers[1].kv_bytes_per_token(2) == 256 + 8


def test_glm_skips_indexers_by_frequency():
    skipping = {"index_topk_freq": 2, "index_skip_topk_offset": 2}
    model = build("GlmMoeDsaForCausalLM", **SPARSE, **skipping)
    # max(i - 2 + 1, 0) % 2 == 0 for i in 0, 1, 3, 5
    assert [la.name for la in model.layers if la.kind == "indexer"] == [
        "L0.idx", "L1.idx", "L3.idx", "L5.idx",
    ]  # fmt: skip
    assert all(la.is_sparse for la in model.layers if la.kind == "mla")


def test_glm_may_list_its_indexers():
    types = ["full", "shared", "full", "shared", "shared", "full"]
    model = build("GlmMoeDsaForCausalLM", indexer_types=types, **SPARSE)
    assert kinds(model).count("indexer") == 3
    wrong = refused("GlmMoeDsaForCausalLM", indexer_types=["none"] * 6, **SPARSE)
    assert wrong == ["indexer_types[0]"]


def test_glm_5_2_list_and_rule_agree():
    model = load_model("zai-org--GLM-5.2")  # the file carries both; the rule is read
    assert kinds(model).count("indexer") == 21


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"kv_lora_rank": 0}, "kv_lora_rank"),
        ({"q_lora_rank": -1}, "q_lora_rank"),
        ({"index_head_dim": "128"}, "index_head_dim"),
        ({"index_topk_freq": 0}, "index_topk_freq"),
        ({"num_nextn_predict_layers": True}, "num_nextn_predict_layers"),
        ({"num_attention_heads": "absent"}, "num_attention_heads"),
    ],
)
def test_wrong_sparse_files_are_refused(changes, key):
    assert refused("GlmMoeDsaForCausalLM", **{**SPARSE, **changes}) == [key]


V4 = {
    "head_dim": 32,
    "index_head_dim": 128,
    "sliding_window": 16,
    "compress_ratios": [0, 1, 4, 128, 4, 128, 4],
    "num_nextn_predict_layers": 1,
}


def test_v4_layers_own_what_their_ratio_says():
    model = build("DeepseekV4ForCausalLM", **V4)
    names = [layer.name for layer in model.layers]
    assert names[:10] == [
        "L0.swa", "L1.swa",
        "L2.swa", "L2.attn", "L2.comp", "L2.idx", "L2.idxcomp",
        "L3.swa", "L3.attn", "L3.comp",
    ]  # fmt: skip
    assert [layer.name for layer in model.mtp_layers] == [
        "L6.swa", "L6.attn", "L6.comp", "L6.idx", "L6.idxcomp",
    ]  # fmt: skip
    assert model.is_deepseek_v4


def test_v4_widths_are_those_of_the_specification():
    # 15.6: 4 * head_dim with window 8, 2 * head_dim with window 128, indexer 4 * index_head_dim
    layers = {layer.name: layer for layer in build("DeepseekV4ForCausalLM", **V4).layers}
    states = [layers[name] for name in ("L2.comp", "L2.idxcomp", "L3.comp")]
    assert [(s.head_size, s.sliding_window, s.block_size) for s in states] == [
        (128, 8, 4),
        (512, 8, 4),
        (64, 128, 8),
    ]
    assert (layers["L2.idx"].head_size, layers["L2.idx"].compress_ratio) == (132, 4)
    assert (layers["L0.swa"].head_size, layers["L0.swa"].sliding_window) == (32, 16)


def test_a_v4_mtp_layer_that_is_not_listed_has_a_window_only():
    model = build("DeepseekV4ForCausalLM", **{**V4, "compress_ratios": V4["compress_ratios"][:6]})
    assert [layer.name for layer in model.mtp_layers] == ["L6.swa"]


@pytest.mark.parametrize(
    ("ratios", "key"),
    [
        ("absent", "compress_ratios"),
        ([4] * 5, "compress_ratios"),
        ([4, 4, 4, 4, 4, 8], "compress_ratios"),
        ([4, 4, 4, 4, 4, -4], "compress_ratios[5]"),
        ([4, 4, 4, 4, 4, "4"], "compress_ratios[5]"),
        (4, "compress_ratios"),
    ],
)
def test_wrong_v4_ratios_are_refused(ratios, key):
    assert refused("DeepseekV4ForCausalLM", **{**V4, "compress_ratios": ratios}) == [key]

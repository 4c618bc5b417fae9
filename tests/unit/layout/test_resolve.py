"""From layers to specs: dtypes, layers that keep the model's dtype, sharding, speculation."""

import pytest

from sim.errors import ConfigError
from sim.layout.dtypes import kv_cache_dtype, state_dtype_bytes, turboquant_slot_bytes
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    QuantMode,
    TQFullAttentionSpec,
)
from sim.layout.plan import plan_layout, prepare_layers
from sim.models import load_model
from sim.models.model_config import AttentionLayer, ModelConfig, ModelDims
from tests.unit.layout.layouts import GIB, plan, settings

GEMMA = "google--gemma-3-27b-it"
LLAMA = "meta-llama--Llama-3.1-8B"
QWEN = "Qwen--Qwen3-Next-80B-A3B-Instruct"
JAMBA = "ai21labs--Jamba-v0.1"


def specs_of(model, **changes):
    return prepare_layers(load_model(model), settings(**changes)).specs


def refused(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.problems[0]


# -- dtypes (spec/layout.md 2.1) ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "mode"),
    [
        ("auto", 2, "NONE"),
        ("float16", 2, "NONE"),
        ("bfloat16", 2, "NONE"),
        ("fp8", 1, "FP8_PER_TENSOR"),
        ("fp8_e4m3", 1, "FP8_PER_TENSOR"),
        ("fp8_e5m2", 1, "FP8_PER_TENSOR"),
        ("fp8_inc", 1, "FP8_PER_TENSOR"),
        ("fp8_ds_mla", 1, "FP8_PER_TENSOR"),
        ("fp8_per_token_head", 1, "FP8_PER_TOKEN_HEAD"),
        ("int8_per_token_head", 1, "INT8_PER_TOKEN_HEAD"),
        ("int4_per_token_head", 1, "INT4_PER_TOKEN_HEAD"),
        ("nvfp4", 1, "NVFP4"),
        ("turboquant_k8v4", 1, "NONE"),
    ],
)
def test_dtypes_have_a_size_and_a_mode(name, size, mode):
    dtype = kv_cache_dtype(name, 2)
    assert (dtype.dtype_bytes, dtype.quant_mode) == (size, QuantMode(mode))


@pytest.mark.parametrize(
    ("name", "slot"),
    [("k8v4", 196), ("4bit", 134), ("k3v4", 118), ("3bit", 102)],
)
def test_turboquant_slots(name, slot):
    assert turboquant_slot_bytes(f"turboquant_{name}", 128) == slot


def test_slots_are_rounded_up_to_even():
    # head of 20: keys ceil(60 / 8) + 2 = 10, values ceil(60 / 8) + 4 = 12
    assert turboquant_slot_bytes("turboquant_3bit", 20) == 22
    # head of 18: keys ceil(54 / 8) + 2 = 9, values 72 / 8 + 4 = 13; k8v4: 18 + 13 = 31 -> 32
    assert turboquant_slot_bytes("turboquant_k8v4", 18) == 32


def test_a_state_s_dtype_is_the_user_s_the_model_s_or_the_convolution_s():
    assert state_dtype_bytes("auto", "auto", 2) == {"conv": 2, "ssm": 2}
    assert state_dtype_bytes("float32", "auto", 2) == {"conv": 4, "ssm": 4}
    assert state_dtype_bytes("auto", "auto", 2, "float32") == {"conv": 2, "ssm": 4}
    assert state_dtype_bytes("auto", "bfloat16", 2, "float32") == {"conv": 2, "ssm": 2}


@pytest.mark.parametrize(
    ("dtype", "page"),
    # 16 tokens of 16 heads of 128 (Gemma-3-27b): keys and values; scales 2 * 16 * 16 * 4
    [
        ("fp8", 65536),
        ("int8_per_token_head", 65536 + 2048),
        ("nvfp4", 2 * 16 * 16 * 72),
    ],
)
def test_a_quantised_cache_of_a_model(dtype, page):
    assert plan(GEMMA, kv_cache_dtype=dtype).page_size_bytes == page


def test_a_latent_layer_has_no_mode_and_an_indexer_no_dtype_name():
    specs = specs_of("deepseek-ai--DeepSeek-V3.2", kv_cache_dtype="nvfp4")
    latent, indexer = specs["L0.attn"], specs["L0.idx"]
    assert isinstance(latent, MLAAttentionSpec)
    assert (latent.quant_mode, latent.cache_dtype_str) == (QuantMode.NONE, "nvfp4")
    assert (indexer.head_size, indexer.dtype_bytes, indexer.cache_dtype_str) == (132, 1, None)


# -- layers that keep the model's dtype (spec/layout.md 2.1, 3.3) -------------------------------


def test_skipped_layers_keep_the_model_s_dtype():
    specs = specs_of(LLAMA, kv_cache_dtype="fp8", kv_cache_dtype_skip_layers=("0", "31"))
    wide = [name for name, spec in specs.items() if spec.dtype_bytes == 2]
    assert wide == ["L0", "L31"]
    assert {specs[name].quant_mode for name in wide} == {QuantMode.NONE}
    # need 4096 * 16; 16 * ceil(65536 / (16 * 2048)) = 32 tokens
    assert {spec.block_size for spec in specs.values()} == {32}


def test_windows_share_the_quantised_page_whether_skipped_or_not():
    # gpt-oss: 8 heads of 64; nvfp4 p = 8 * 72 = 576, w = 2048; need 32768:
    # N = 16 * ceil(32768 / 9216) = 64; shared 36864; no listed size but 16: 16 * 2048 fits
    specs = specs_of(
        "openai--gpt-oss-20b",
        kv_cache_dtype="nvfp4",
        kv_cache_dtype_skip_layers=("sliding_window",),
    )
    window, whole = specs["L0"], specs["L1"]
    assert (window.block_size, window.dtype_bytes, window.page_size_bytes) == (16, 2, 36864)
    assert (whole.block_size, whole.quant_mode, whole.page_size_bytes) == (
        64, QuantMode.NVFP4, 36864
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "block"), [("fp8", 32), ("nvfp4", 64)])
def test_a_window_takes_the_largest_listed_block_that_fits(dtype, block):
    # FlashInfer lists 16, 32, 64; all windows quantised, block 0 skipped (spec/layout.md 15.3):
    # fp8: N 32, shared 32 * p: 32 tokens fit; nvfp4: N 64, shared 64 * p: 64 tokens
    specs = specs_of(
        "openai--gpt-oss-20b",
        kv_cache_dtype=dtype,
        kv_cache_dtype_skip_layers=("1",),
        attention_backend="FLASHINFER",
    )
    assert specs["L0"].block_size == block


@pytest.mark.parametrize("entry", ["32", "-1", "x", "windows", "1.5", ""])
def test_a_skipped_layer_must_exist(entry):
    problem = refused(lambda: specs_of(LLAMA, kv_cache_dtype_skip_layers=(entry,)))
    assert problem.key == "kv_cache_dtype_skip_layers"
    assert problem.allowed == "a layer number from 0 to 31, or sliding_window"


def test_turboquant_leaves_out_two_layers_at_each_end_of_a_pure_model():
    specs = specs_of(LLAMA, kv_cache_dtype="turboquant_4bit")
    plain = [name for name, spec in specs.items() if not isinstance(spec, TQFullAttentionSpec)]
    assert plain == ["L0", "L1", "L30", "L31"]
    hybrid = specs_of(JAMBA, kv_cache_dtype="turboquant_4bit")
    assert sum(isinstance(spec, TQFullAttentionSpec) for spec in hybrid.values()) == 4


def test_turboquant_slots_decide_a_hybrid_s_block():
    # 8 heads of 128 at 134 bytes: 1072 per token; 16 * ceil(311296 / 17152) = 304
    assert plan(JAMBA, kv_cache_dtype="turboquant_4bit").settings.block_size == 304


def test_per_token_scales_count_in_the_alignment():
    # 2048 + 64 bytes per token: 16 * ceil(311296 / (16 * 2112)) = 160 tokens of 2112
    layout = plan(JAMBA, kv_cache_dtype="int8_per_token_head")
    assert (layout.settings.block_size, layout.page_size_bytes) == (160, 160 * 2112)


# -- ranks and speculation ----------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "block"), [(1, 544), (2, 544), (4, 272), (8, 144)])
def test_qwen3_next_s_block_by_rank(ranks, block):
    assert plan(QWEN, tensor_parallel_size=ranks).settings.block_size == block


def test_qwen3_next_with_two_speculative_tokens():
    layout = plan(QWEN, speculative_method="mtp", num_speculative_tokens=2)
    assert layout.settings.block_size == 560
    state = next(s for g in layout.groups if isinstance(s := g.kv_cache_spec, MambaSpec))
    assert state.num_speculative_blocks == 2
    assert "Padding mamba page size by 1.45% " in layout.log_lines[1]


@pytest.mark.parametrize(
    ("changes", "block", "padding"),
    [
        ({"kv_cache_dtype": "fp8"}, 1072, None),
        ({"mamba_ssm_cache_dtype": "float32"}, 1056, "0.76"),
        ({"block_size": 1024}, 1024, "91.04"),
        ({"tensor_parallel_size": 8}, 144, "7.46"),
    ],
)
def test_qwen3_next_s_worked_examples(changes, block, padding):
    layout = plan(QWEN, **changes)
    assert layout.settings.block_size == block
    padded = [line for line in layout.log_lines if line.startswith("Padding")]
    assert [f"by {padding}% " in line for line in padded] == ([True] if padding else [])


@pytest.mark.parametrize(
    ("model", "mode", "block"),
    [
        (JAMBA, "all", 2048),
        ("Zyphra--Zamba2-7B", "all", 256),
        ("nvidia--Nemotron-H-8B-Base-8K", "all", 1152),
        ("nvidia--Nemotron-H-8B-Base-8K", "align", 1040),
    ],
)
def test_blocks_by_mode(model, mode, block):
    layout = plan(
        model,
        kv_cache_memory_bytes=200 * GIB,
        enable_prefix_caching=True,
        mamba_cache_mode=mode,
    )
    assert (layout.settings.block_size, layout.settings.mamba_block_size) == (block, block)
    assert layout.mamba_cache_mode == mode


def test_the_user_s_mamba_block_is_the_unit_of_mode_all():
    # Bamba: 1024 tokens, 95.28 % (spec/layout.md 3.2)
    layout = plan(
        "ibm-ai-platform--Bamba-9B-v1",
        max_model_len=4096,
        enable_prefix_caching=True,
        mamba_cache_mode="all",
        mamba_block_size=512,
    )
    assert layout.settings.block_size == 1024
    assert any("by 95.28% " in line for line in layout.log_lines)


def test_a_pure_state_model_has_blocks_of_a_request_or_of_the_cache():
    mamba = "tiiuae--falcon-mamba-7b"
    assert plan(mamba, max_model_len=32768).block_size == 32768
    cached = {"kv_cache_memory_bytes": 200 * GIB, "enable_prefix_caching": True}
    assert plan(mamba, **cached, max_model_len=32768).block_size == 16  # appendix C13
    assert plan(mamba, **cached, max_model_len=32768, mamba_block_size=64).block_size == 64


def test_a_class_that_forgets_speculative_tokens_can_make_a_state_too_large():
    # appendix C9: the page is aligned to the state without them
    problem = refused(
        lambda: plan(
            "ibm-granite--granite-4.0-h-micro",
            kv_cache_memory_bytes=200 * GIB,
            speculative_method="eagle",
            num_speculative_tokens=8,
        )
    )
    assert problem.key == "page_size_padded"
    assert "of a state of layer" in problem.allowed


def test_speculative_tokens_need_a_method():
    problem = refused(lambda: plan(LLAMA, num_speculative_tokens=2))
    assert problem.key == "num_speculative_tokens"


def test_a_draft_repeats_the_target_s_shape_or_has_its_own():
    assert len(plan(LLAMA, speculative_method="eagle").groups[0].layer_names) == 33
    draft = AttentionLayer(name="d", num_kv_heads=4, head_size=128)
    layout = plan(LLAMA, speculative_method="draft_model", draft_layer=draft)
    assert layout.bytes_per_block == 32 * 65536 + 32768


# -- other kinds of models ----------------------------------------------------------------------


def test_chunks_take_the_cache_block_size():
    specs = specs_of("meta-llama--Llama-4-Scout-17B-16E-Instruct", block_size=32)
    assert isinstance(specs["L0"], ChunkedLocalAttentionSpec)
    assert {spec.block_size for spec in specs.values()} == {32}


def test_cross_attention_goes_by_the_encoder_s_tokens():
    whisper = {"model": "openai--whisper-large-v3", "max_num_batched_tokens": 448}
    by_model, by_user = plan(**whisper), plan(**whisper, max_num_encoder_input_tokens=160)
    assert by_model.limits.max_num_encoder_input_tokens == 1500
    assert by_user.capacity.blocks_per_request == 28 + 10
    assert not by_model.enable_prefix_caching


def prefix_model(non_causal):
    layer = AttentionLayer(name="L0", num_kv_heads=1, head_size=64, non_causal=non_causal)
    return ModelConfig("made", "PrefixLM", 1024, 2, (layer,), ModelDims(64, 1, 1, 64, 9, 9))


def test_attention_that_is_not_causal_turns_prefix_caching_off():
    layout = plan_layout(prefix_model(True), settings())
    assert not layout.enable_prefix_caching
    assert layout.log_lines[:2] == (
        "Disabling chunked prefill: model has non-causal attention layers.",
        "Disabling prefix caching: model has non-causal attention layers.",
    )
    off = plan_layout(prefix_model(True), settings(enable_prefix_caching=False))
    assert len([line for line in off.log_lines if line.startswith("Disabling")]) == 1
    assert plan_layout(prefix_model(False), settings()).enable_prefix_caching


def test_the_largest_model_is_planned_fast():
    from time import perf_counter

    model = load_model("deepseek-ai--DeepSeek-V4-Pro")
    wanted = settings(kv_cache_memory_bytes=700 * GIB, kv_cache_dtype="fp8_ds_mla")
    plan_layout(model, wanted)
    begin = perf_counter()
    plan_layout(model, wanted)
    assert perf_counter() - begin < 0.25  # 0.05 s on an idle machine

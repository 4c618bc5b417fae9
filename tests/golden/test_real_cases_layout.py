"""Layout cases of public issues (spec/real_cases.md): small inputs, values worked out by hand."""

import pytest

from sim.core.kv_cache_manager import KVCacheManager
from sim.errors import ConfigError
from sim.layout.block_size import BlockSizes, align_pages
from sim.layout.capacity import admission_bytes
from sim.layout.kv_cache_spec import HiddenStateCacheSpec, MambaSpec
from sim.layout.plan import LayoutSettings, plan_layout
from sim.layout.plan_specs import plan_specs
from sim.layout.plans.steady_state import held_at
from sim.layout.specs_file import specs_from
from sim.layout.state_blocks import check_state_blocks
from sim.models import load_model
from sim.request import Request

GIB = 2**30


def settings(memory=2**50, length=131072, batched=8192, **more):
    return LayoutSettings(
        kv_cache_memory_bytes=memory,
        max_model_len=length,
        max_num_batched_tokens=batched,
        **more,
    )


def full(layers=1, block_size=16, per_token=4096, **more):
    page = {"page_bytes": block_size * per_token}
    return {"kind": "full", "layers": layers, "block_size": block_size, **page, **more}


def swa(layers, window=1024, block_size=16, per_token=4096, **more):
    page = {"page_bytes": block_size * per_token, "window": window}
    return {"kind": "swa", "layers": layers, "block_size": block_size, **page, **more}


def mamba(layers, page, block_size=8192):
    return {"kind": "mamba", "layers": layers, "block_size": block_size, "page_bytes": page}


def plan(entries, **more):
    return plan_specs(specs_from(entries, "case"), settings(**more))


def refusal(call, *args, **more):
    with pytest.raises(ConfigError) as caught:
        call(*args, **more)
    return str(caught.value)


# -- B14: one block is the null block ------------------------------------------------------------
def runs(layout, num_tokens):
    """Whether an empty pool gives a request of so many tokens its blocks."""
    manager = KVCacheManager(
        layout.kv_cache_config,
        layout.limits.max_model_len,
        layout.scheduler_block_size,
        layout.hash_block_size,
        max_num_batched_tokens=layout.limits.max_num_batched_tokens,
        enable_caching=False,
    )
    return manager.allocate_slots(Request("r", num_tokens, 1), num_tokens) is not None


@pytest.mark.parametrize(
    ("block_size", "num_blocks", "length", "servable"),
    [
        (16, 64, 1024, 1008),  # 64 x 16 = 1024 pass the check; 63 x 16 = 1008 run
        (128, 8, 1024, 896),  # CPU blocks: 7 x 128
        (8192, 13, 106496, 98304),  # 12 x 8192
    ],
)
def test_b14_pool_of_exactly_the_length_passes_and_cannot_serve_it(
    block_size, num_blocks, length, servable
):
    layout = plan([full(block_size=block_size)], num_gpu_blocks_override=num_blocks, length=length)
    assert layout.kv_cache_config.num_blocks == num_blocks
    assert layout.log_lines[-1].endswith(" tokens per request: 1.00x")
    assert runs(layout, servable)
    assert not runs(layout, servable + 1)
    assert not runs(layout, length)


def test_b14_auto_fit_takes_all_blocks_too():
    # 8 blocks of 128 tokens: 1024, of which 896 can run
    page = 2 * 8 * 128 * 2 * 128  # Llama-3.1-8B: 8 heads of 128, keys and values, bf16
    layout = plan_layout(
        load_model("meta-llama--Llama-3.1-8B"),
        settings(memory=8 * 32 * page, length=-1, block_size=128),
    )
    assert layout.limits.max_model_len == 1024
    assert runs(layout, 896)
    assert not runs(layout, 897)


def test_b14_states_of_draft_tokens_count_into_the_need():
    # block 16, length 1024, 3 draft tokens: 64 attention blocks + 1 + 3 states = 68; with the null
    # block 69, which is our reading of the table in PR 52530
    given = {"layers": [mamba(1, 65536), full()], "num_speculative_blocks": 3}
    layout = plan(given, length=1024, num_gpu_blocks_override=68)
    assert layout.capacity.blocks_per_request + 1 == 69


# -- B17: two formulas of the token line ---------------------------------------------------------
def test_b17_token_line_before_and_after_0_21():
    # 50 sliding (16 tokens) and 10 full (32 tokens) of 262144-byte pages: 6 groups of 10, Q =
    # 2621440; 50 GiB hold 20480 blocks. Old: 20480 // 6 x 16 = 3413 x 16 = 54608 at any length.
    # New at 131072, 2048 batched: 4096 + 5 x (192 + 1) = 5061 blocks; 20480 / 5061 = 4.04663
    layout = plan_layout(load_model("google--gemma-4-31B"), settings(50 * GIB, batched=2048))
    assert layout.kv_cache_config.num_blocks == 20480
    assert layout.capacity.blocks_per_request == 5061
    assert layout.capacity.tokens_before_0_21 == 54608
    assert layout.capacity.tokens == 530400
    assert f"{layout.capacity.concurrency:.2f}" == "4.05"
    at_half = plan_layout(load_model("google--gemma-4-31B"), settings(50 * GIB, 65536, 2048))
    assert at_half.capacity.tokens_before_0_21 == 54608
    assert at_half.capacity.tokens != 530400


# -- B18, B19: DeepSeek-V4 -----------------------------------------------------------------------
def v4(gib, length, batched):
    return plan_layout(
        load_model("deepseek-ai--DeepSeek-V4-Flash"),
        settings(int(gib * GIB), length, batched, kv_cache_dtype="fp8_ds_mla"),
    )


def blocks_of(layout):
    return [group.kv_cache_spec.max_blocks(layout.limits) for group in layout.groups]


@pytest.mark.parametrize(("batched", "tokens"), [(8192, 280257), (4096, 490059), (2048, 783220)])
def test_b18_token_line_depends_on_the_batch(batched, tokens):
    assert v4(7.70, 121344, batched).capacity.tokens == tokens


def test_b18_blocks_are_a_fixed_number_and_one_for_each_256_tokens():
    # windows and states at 8192 batched tokens: 2 x (ceil(8319 / 64) + 1) + ceil(8199 / 4) + 1 +
    # ceil(8319 / 8) + 1 = 262 + 2051 + 1041 = 3354, whatever the length
    for length in (121344, 60672, 30336):
        blocks = blocks_of(v4(7.70, length, 8192))
        assert blocks[0] == -(-length // 256)
        assert sum(blocks[1:]) == 3354


def test_b19_three_ratios_disagree():
    # groups of 256, 64, 64, 4 and 8 tokens a block; 30000 / 256 = 117.2
    layout = v4(5.44, 30000, 8192)
    assert [group.kv_cache_spec.block_size for group in layout.groups] == [256, 64, 64, 4, 8]
    assert blocks_of(layout) == [118, 131, 131, 2051, 1041]
    assert layout.kv_cache_config.num_blocks == 5618
    assert f"{layout.capacity.concurrency:.2f}" == "1.82"  # logged
    assert f"{5618 / sum(blocks_of(layout)):.2f}" == "1.62"  # by ids: 5618 / 3472
    need = admission_bytes(layout.groups, layout.limits)
    # 22 tuples of 37440 + 8640 + 1728 bytes for each of 3472 blocks
    assert need == 3472 * 22 * 47808
    assert f"{need / GIB:.2f}" == "3.40"
    assert f"{5.44 * GIB / need:.2f}" == "1.60"  # by admission


# -- B21: states bound the running requests ------------------------------------------------------
def test_b21_more_requests_than_state_blocks_are_refused():
    # A4: 3.86 GiB over 2 GPUs hold 161 blocks of 16 x 1605632 bytes
    layout = plan_layout(
        load_model("Qwen--Qwen3.5-27B"),
        settings(int(3.86 * GIB), 122633, tensor_parallel_size=2),
    )
    assert layout.kv_cache_config.num_blocks == 161
    check_state_blocks(layout, 161)
    assert "161 blocks" in refusal(check_state_blocks, layout, 256)


def test_b21_models_without_states_are_not_bound():
    check_state_blocks(plan([full()], num_gpu_blocks_override=8192, length=1024), 10**6)


# -- B23: a stage is charged for its own layers --------------------------------------------------
def test_b23_each_stage_is_checked_with_its_own_layers():
    # 2048 bytes a token and layer, 262144 tokens: 48 layers need 24 GiB, 16 of them 8 GiB.
    # 3.18 GiB // (16 layers x 16 tokens x 2048) = 6512 blocks = 104192 tokens
    specs = {"f": {"kind": "full", "block_size": 16, "page_bytes": 16 * 2048}}
    workers = [[[f"L{i}", "f"] for i in range(16)], [[f"L{i}", "f"] for i in range(16, 48)]]
    text = refusal(
        plan,
        {"specs": specs, "workers": workers},
        memory=(int(3.18 * GIB), 18 * GIB),
        length=262144,
    )
    assert "(8.0 GiB KV cache is needed" in text
    assert "(3.18 GiB)" in text
    assert "the estimated maximum model length is 104192." in text


# -- B25: admission and steady state -------------------------------------------------------------
def test_b25_steady_state_and_admission_of_gpt_oss():
    # 12 sliding and 12 full layers, one block = 12 x 32768 = 393216 bytes; 32 requests of 8192
    layout = plan_layout(load_model("openai--gpt-oss-20b"), settings(length=8192))
    sliding, whole = (group.kv_cache_spec for group in layout.groups)
    limits, block = layout.limits, layout.bytes_per_block
    assert block == 393216
    # steady: 512 full, and a window of 128 before token 8192 lies in 8 blocks, else in 9
    assert held_at(whole, 8192, limits).blocks == 512
    assert held_at(sliding, 8192, limits).blocks == 8
    assert held_at(sliding, 8193, limits).blocks == 9
    assert f"{32 * (512 + 8) * block / GIB:.2f}" == "6.09"
    # admission: ceil(min(127 + 8192, 8192) / 16) + 1 = 513
    assert blocks_of(layout) == [513, 512]
    assert layout.capacity.admission_bytes == 1025 * block
    assert f"{32 * layout.capacity.admission_bytes / GIB:.1f}" == "12.0"


# -- B27: a few odd layers -----------------------------------------------------------------------
def buckets(*sizes):
    """Layers of equal pages in buckets of these sizes; windows tell the buckets apart."""
    return [full(sizes[0]), *(swa(n, 128 * (i + 1)) for i, n in enumerate(sizes[1:]))]


@pytest.mark.parametrize(
    ("sizes", "num_groups", "warnings"),
    [
        ((19, 18), 2, ["1 padding layers, may waste at most 5.56%"]),
        ((30, 10, 5, 1), 46, []),
        ((1, 12, 12, 12, 36), 73, []),
        ((30, 1), 31, []),
        ((9, 7), 2, ["2 padding layers, may waste at most 28.57%"]),
        ((20, 30), 3, ["10 padding layers, may waste at most 33.33%"]),  # 30 < 1.5 x 20 is false
        ((26, 16), 3, ["6 padding layers, may waste at most 23.08%"]),  # 26 in 2 groups of 16
        ((12, 13), 2, ["1 padding layers, may waste at most 8.33%"]),
        ((1, 35), 36, []),  # one full layer among sliding ones
        ((4, 3, 3, 3), 4, ["1 padding layers, may waste at most 33.33%"] * 3),
    ],
)
def test_b27_group_size_is_ruined_by_a_few_odd_layers(sizes, num_groups, warnings):
    layout = plan(buckets(*sizes))
    assert len(layout.groups) == num_groups
    said = [line for line in layout.log_lines if line.startswith("Add ")]
    assert said == [f"Add {text} KV cache memory" for text in warnings]


# -- B28: pages that do not divide ---------------------------------------------------------------
def gemma_4_with_scales(stride_indexed):
    # fp8 with a scale per token and head: 16 x (512 + 8) bytes a token, full 4 x (1024 + 8)
    flag = {"stride_indexed": stride_indexed}
    return [
        swa(50, per_token=16 * 520, **flag),
        full(10, per_token=4 * 1032, **flag),
    ]


def test_b28_pages_that_do_not_divide_are_padded_where_the_backend_can():
    layout = plan(gemma_4_with_scales(True))
    assert len(layout.groups) == 6
    assert {group.kv_cache_spec.block_size for group in layout.groups} == {16}
    assert {group.kv_cache_spec.page_size_bytes for group in layout.groups} == {133120}
    whole = next(g.kv_cache_spec for g in layout.groups if len(g.layer_names) == 10
                 and g.kv_cache_spec.kind == "full_attention")  # fmt: skip
    assert whole.real_page_size_bytes == 66048


def test_b28_pages_that_do_not_divide_are_refused_elsewhere():
    text = refusal(plan, gemma_4_with_scales(False))
    assert "page size is not divisible by the maximum page size and cannot be padded" in text


# -- B33: mode `all` -----------------------------------------------------------------------------
def test_b33_mode_all_rounds_up_to_the_chunk():
    # 788 kB of state at 2 kB a token: 394 tokens, in chunks of 256: 512
    sizes = align_pages(BlockSizes(16, 16), 2000, 788_000, 16, "all", 256)
    assert (sizes.block_size, sizes.mamba_block_size) == (512, 512)
    assert align_pages(BlockSizes(16, 16), 2000, 788_000, 2, "all", 2).block_size == 400  # k = 16


# -- B34: fp8 doubles the block, not the pool ----------------------------------------------------
@pytest.mark.parametrize(
    ("model", "bf16", "fp8"),
    [("Qwen--Qwen3.5-27B", 784, 1568), ("Qwen--Qwen3.5-35B-A3B", 1056, 2096)],
)
def test_b34_fp8_doubles_the_block_and_not_the_tokens(model, bf16, fp8):
    layouts = [
        plan_layout(load_model(model), settings(24 * GIB, kv_cache_dtype=dtype))
        for dtype in ("auto", "fp8")
    ]
    assert [layout.settings.block_size for layout in layouts] == [bf16, fp8]
    wide, narrow = (layout.capacity.tokens for layout in layouts)
    assert wide < narrow < 2 * wide


# -- B35: a hidden-state layer -------------------------------------------------------------------
def test_b35_hidden_state_layer_at_its_own_block_and_at_the_pools():
    # page 800 x 4096 = 3276800; 10240 bytes a token: 320 tokens and nothing left over in 0.25.1,
    # 1228800 bytes (37.5 %) left over at 200 tokens
    hidden = {"kind": "hidden", "block_size": 200, "page_bytes": 200 * 10240}
    layout = plan([mamba(3, 3276800), full(1, block_size=800), hidden])
    spec = layout.groups[-1].kv_cache_spec
    assert layout.groups[-1].layer_names == ("hidden.0",)
    assert (spec.block_size, spec.page_size_bytes) == (320, 3276800)
    assert spec.real_page_size_bytes == 3276800
    at_200 = HiddenStateCacheSpec(
        block_size=200, num_kv_heads=1, head_size=5120, dtype_bytes=2, page_size_padded=3276800
    )
    waste = at_200.page_size_bytes - at_200.real_page_size_bytes
    assert (waste, waste / at_200.page_size_bytes) == (1228800, 0.375)


# -- B40: the hybrid manager switched off --------------------------------------------------------
CANNOT = "failed to convert the KV cache specs to one unified type."


def test_b40_states_cannot_become_attention():
    off = {"disable_hybrid_kv_cache_manager": True}
    assert CANNOT in refusal(plan_layout, load_model("Qwen--Qwen3.5-27B"), settings(**off))
    assert CANNOT in refusal(plan, [mamba(48, 3211264), full(16, 784)], **off)


def test_b40_blocks_of_16_and_32_cannot_become_one_type():
    off = settings(disable_hybrid_kv_cache_manager=True, block_size=32)
    assert CANNOT in refusal(plan_layout, load_model("google--gemma-4-31B"), off)


def test_b40_sliding_models_start_and_keep_everything():
    off = settings(32 * GIB, disable_hybrid_kv_cache_manager=True)
    layout = plan_layout(load_model("openai--gpt-oss-20b"), off)
    assert len(layout.groups) == 1
    assert blocks_of(layout) == [8192]  # 131072 / 16 in all 24 layers
    assert not any(isinstance(g.kv_cache_spec, MambaSpec) for g in layout.groups)

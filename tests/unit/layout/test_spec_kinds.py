"""Pages and maxima of the kinds beside full, windowed and recurrent (spec/layout.md 2.2)."""

import pytest

from sim.errors import ConfigError
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    QuantMode,
    RSWASpec,
    SinkFullAttentionSpec,
    UniformTypeKVCacheSpecs,
)
from tests.unit.layout.layouts import (
    chunked,
    cross,
    full,
    hidden,
    limits,
    mamba,
    mla,
    rswa,
    sink,
    sliding,
    sliding_mla,
    turboquant,
)

MODES = {  # mode, element size -> full page, sliding page; B 16, 8 heads of 128 (2.2, "Size check")
    ("NONE", 2): (65536, 65536),
    ("FP8_PER_TENSOR", 1): (32768, 32768),
    ("INT8_PER_TOKEN_HEAD", 1): (33792, 33792),
    ("FP8_PER_TOKEN_HEAD", 1): (33792, 33792),
    ("INT4_PER_TOKEN_HEAD", 1): (17408, 33792),
    ("NVFP4", 1): (18432, 18432),
}


@pytest.mark.parametrize(("mode", "size"), MODES)
def test_pages_by_quantisation(mode, size):
    fields = {"quant_mode": QuantMode(mode), "dtype_bytes": size}
    pages = full(**fields).page_size_bytes, sliding(**fields).page_size_bytes
    assert pages == MODES[mode, size]


@pytest.mark.parametrize("kind", [chunked, cross])
@pytest.mark.parametrize(
    ("mode", "page"),
    # 2 * 16 * 8 * (128, 72, 64 + scales of 4 bytes) for keys and values
    [("FP8_PER_TENSOR", 32768), ("NVFP4", 18432), ("INT4_PER_TOKEN_HEAD", 16384 + 1024)],
)
def test_chunked_and_cross_pages_by_quantisation(kind, mode, page):
    assert kind(quant_mode=QuantMode(mode), dtype_bytes=1).page_size_bytes == page


def test_values_of_another_size_are_packed_on_their_own():
    # 16 * 8 * (72 + 36): nvfp4 vectors of 128 and 64
    spec = full(head_size_v=64, dtype_bytes=1, quant_mode=QuantMode.NVFP4)
    assert spec.page_size_bytes == 16 * 8 * (72 + 36)


def test_scales_grow_with_the_block():
    spec = full(block_size=32, dtype_bytes=1, quant_mode=QuantMode.INT8_PER_TOKEN_HEAD)
    assert spec.page_size_bytes == 2 * 33792


@pytest.mark.parametrize(("slot", "page"), [(196, 25088), (134, 17152), (118, 15104), (102, 13056)])
def test_turboquant_pages_are_slots(slot, page):
    assert turboquant(tq_slot_size=slot).page_size_bytes == page
    assert turboquant(tq_slot_size=0).page_size_bytes == 32768


def test_latent_pages():
    # B 64, D 576 (spec/layout.md 2.2)
    assert mla().page_size_bytes == 73728
    assert mla(dtype_bytes=1).page_size_bytes == 36864
    assert mla(dtype_bytes=1, cache_dtype_str="fp8_ds_mla").page_size_bytes == 41984
    assert mla(dtype_bytes=1, quant_mode=QuantMode.INT4_PER_TOKEN_HEAD).data_bytes == 64 * 288


def test_compressed_pages_are_aligned():
    # DeepSeek-V4 (spec/layout.md 6.3)
    v4 = {
        "block_size": 256, "head_size": 512, "dtype_bytes": 1, "alignment": 576,
        "cache_dtype_str": "fp8_ds_mla", "model_version": "deepseek_v4",
    }  # fmt: skip
    assert mla(compress_ratio=4, **v4).real_page_size_bytes == 37376
    assert mla(compress_ratio=4, **v4).page_size_bytes == 37440
    assert mla(compress_ratio=128, **v4).page_size_bytes == 1728
    indexer = mla(block_size=256, head_size=132, dtype_bytes=1, compress_ratio=4, alignment=576)
    assert (indexer.real_page_size_bytes, indexer.page_size_bytes) == (8448, 8640)
    state = sliding_mla(head_size=2048, dtype_bytes=4, alignment=576)
    assert (state.real_page_size_bytes, state.page_size_bytes) == (32768, 32832)


def test_an_alignment_overrides_a_padding_and_runs_again_on_copies_but_one():
    spec = sliding_mla(head_size=2048, dtype_bytes=4, alignment=576, page_size_padded=99999)
    assert spec.page_size_bytes == 32832
    assert spec.padded_to(37440).page_size_bytes == 37440
    assert spec.padded_to(37440).alignment == 576


def test_an_alignment_that_fits_leaves_a_padding_alone():
    # 4 * 2048 * 4 = 32768 is a multiple of 512
    spec = sliding_mla(head_size=2048, dtype_bytes=4, alignment=512, page_size_padded=40000)
    assert spec.page_size_bytes == 40000


def test_an_unknown_model_version_is_refused_for_latent_windows():
    with pytest.raises(ConfigError, match="model_version: deepseek_v5"):
        sliding_mla(model_version="deepseek_v5")
    assert mla(model_version="deepseek_v5").model_version == "deepseek_v5"


def test_a_chunk_s_bound_has_no_straddling_block():
    # min(8192 + 8192, L) tokens: 1024 blocks (Llama-4-Scout, spec/layout.md 13)
    assert chunked().max_blocks(limits(131072)) == 1024
    assert chunked().max_blocks(limits(100)) == 7  # ceil(100 / 16)


def test_cross_attention_holds_the_encoder_s_tokens():
    assert cross().max_blocks(limits(448, max_num_encoder_input_tokens=1500)) == 94


def test_an_encoder_keeps_nothing():
    spec = EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=8, head_size=64, dtype_bytes=2)
    assert spec.max_memory_usage_bytes(limits()) == 0


def test_relatives_of_full_attention_are_bounded_like_it():
    bound = limits(1000)
    assert rswa(rswa_window=8).max_blocks(bound) == 63  # ceil(1000 / 16), not the window
    assert sink(sink_len=32).max_blocks(bound) == 63  # the sink is not counted
    assert hidden().max_blocks(bound) == 63
    assert mla().max_blocks(bound) == 16  # ceil(1000 / 64)


def test_ranks_share_a_sequence_in_full_attention_only():
    # ceil(163840 / 8) = 20480 tokens, 320 blocks of 64 (DeepSeek-V3 DCP8, spec/layout.md 10)
    shared = limits(163840, decode_context_parallel_size=8, max_num_encoder_input_tokens=160)
    assert mla().max_blocks(shared) == 320
    assert full().max_blocks(limits(1000, prefill_context_parallel_size=3)) == 21  # ceil(334 / 16)
    assert chunked().max_blocks(shared) == 1024
    assert cross().max_blocks(shared) == 10
    assert mamba().max_blocks(shared) == 1


def test_windows_do_not_work_where_decoding_splits_the_context():
    with pytest.raises(ConfigError) as caught:
        sliding().max_blocks(limits(decode_context_parallel_size=2))
    assert caught.value.problems[0].allowed == "DCP not support sliding window."
    assert sliding().max_blocks(limits(prefill_context_parallel_size=2)) == 577


def test_kinds_are_named_as_in_the_engine():
    kinds = {
        "full_attention": [full(), turboquant(), rswa()],
        "mla_attention": [mla(), hidden()],
        "sliding_window": [sliding()],
        "sliding_window_mla": [sliding_mla()],
        "chunked_local_attention": [chunked()],
        "cross_attention": [cross()],
        "sink_full_attention": [sink()],
        "mamba": [mamba()],
    }
    for name, specs in kinds.items():
        assert {spec.kind for spec in specs} == {name}


# -- bundles ------------------------------------------------------------------------------------


def bundle(*specs):
    return UniformTypeKVCacheSpecs.of({f"L{idx}": spec for idx, spec in enumerate(specs)})


def test_a_bundle_s_page_is_the_sum_and_its_kind_the_members():
    pair = bundle(full(), full(num_kv_heads=4))
    assert pair.page_size_bytes == 65536 + 32768
    assert (pair.block_size, pair.kind) == (16, "full_attention")
    assert bundle(full(), mla(block_size=16)).kind == "unknown"


def test_a_bundle_holds_the_most_blocks_of_any_member_but_needs_each_member_s_own():
    # states of one size, windows would not share a block table: 10 blocks against 3
    one, other = mamba(num_speculative_blocks=9), mamba(num_speculative_blocks=2)
    mixed, bound = bundle(one, other), limits()
    assert mixed.max_blocks(bound) == 10
    assert mixed.max_memory_usage_bytes(bound) == 10 * 2 * 311296
    assert mixed.need_bytes(bound) == (10 + 3) * 311296


def test_the_maximum_of_a_bundle_is_one_of_ratios_not_of_bytes():
    # 2 pages of 65536 against 40 of 64: bytes say the first, blocks the second
    small = full(block_size=16, num_kv_heads=1, head_size=1, dtype_bytes=2)
    assert small.page_size_bytes == 64
    wide = RSWASpec(block_size=16, num_kv_heads=8, head_size=128, dtype_bytes=2, rswa_window=1)
    few = OnlyTwo(**vars(wide))
    assert bundle(few, small).max_blocks(limits(640)) == 40


class OnlyTwo(RSWASpec):
    """A large page of which a request needs two only."""

    def max_memory_usage_bytes(self, limits):
        return 2 * self.page_size_bytes


def test_a_part_of_a_bundle_keeps_its_members_and_none_keeps_all():
    whole = bundle(full(), full(num_kv_heads=4))
    assert whole.only(["L1"]).page_size_bytes == 32768
    assert whole.only([]) is whole


def test_classes_count_in_equality():
    fields = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
    assert SinkFullAttentionSpec(**fields, sink_len=16) != full()
    chunk = ChunkedLocalAttentionSpec(**fields, attention_chunk_size=16)
    assert chunk != CrossAttentionSpec(**fields)

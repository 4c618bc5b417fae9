"""Merging specs (U1) and sharing a block table (U2), beyond full, windows and states (2.4)."""

import pytest

from sim.errors import ConfigError
from sim.layout.uniformity import is_one_type, merge
from tests.unit.layout.layouts import (
    chunked,
    cross,
    full,
    hidden,
    mamba,
    mla,
    rswa,
    sink,
    sliding,
    sliding_mla,
    turboquant,
)

ONE_WINDOW = "All attention layers in the same KV cache group must have the same window size."


def test_a_recorded_window_is_kept_and_full_layers_without_one_join():
    merged = merge([full(), full(sliding_window=1024), full(sliding_window=1024)])
    assert merged == full(sliding_window=1024)
    assert merge([full(), full(attention_chunk_size=512)]) == full(attention_chunk_size=512)


def test_a_window_and_a_chunk_do_not_merge():
    assert merge([full(sliding_window=8), full(attention_chunk_size=512)]) is None


def test_one_layer_that_is_not_causal_makes_the_group_so():
    assert merge([full(), full(non_causal=True)]) == full(non_causal=True)


@pytest.mark.parametrize("field", ["sliding_window", "attention_chunk_size"])
def test_two_windows_are_an_error_before_fields_are_compared(field):
    with pytest.raises(ConfigError) as caught:
        merge([full(**{field: 512}), full(**{field: 1024, "num_kv_heads": 4})])
    assert caught.value.problems[0].allowed == ONE_WINDOW


def test_two_windows_do_not_matter_beside_another_kind():
    assert merge([full(sliding_window=512), full(sliding_window=1024), sliding()]) is None
    assert merge([full(sliding_window=512), full(sliding_window=1024), mla()]) is None


def test_the_first_decides_between_full_and_reference_windows():
    # small oracle set: U1 on [Full, RSWA] true, [RSWA, Full] false
    assert merge([full(), rswa()]) == full()
    assert merge([rswa(), full()]) is None
    assert merge([rswa(), rswa(rswa_window=8)]) is None
    assert merge([rswa(), rswa()]) == rswa()


def test_sinks_merge_whatever_their_length():
    assert merge([sink(sink_len=16), sink(sink_len=32)]) == sink(sink_len=16)
    assert merge([sink(), full()]) == sink()


def test_turboquant_needs_equal_slots_after_the_rule_of_full():
    assert merge([turboquant(), turboquant()]) == turboquant()
    assert merge([turboquant(), turboquant(tq_slot_size=134)]) is None
    assert merge([turboquant(), full(dtype_bytes=1, indexes_kv_by_block_stride=False)]) is None
    with pytest.raises(ConfigError):  # the windows come first (spec/layout.md 15.19)
        merge([turboquant(sliding_window=8), turboquant(sliding_window=9, tq_slot_size=134)])


def test_latent_specs_merge_whatever_their_sizes():
    # small oracle set: D 576 and 128, B 64 and 128
    assert merge([mla(), mla(head_size=128)]) == mla()
    assert merge([mla(), mla(block_size=128)]).block_size == 64
    assert merge([mla(), mla(dtype_bytes=1, page_size_padded=99999)]) == mla()


@pytest.mark.parametrize(
    "changes",
    [
        {"cache_dtype_str": None},
        {"compress_ratio": 4},
        {"model_version": "deepseek_v4"},
        {"indexes_kv_by_block_stride": False},
    ],
)
def test_latent_specs_merge_only_with_equal_names(changes):
    assert merge([mla(), mla(**changes)]) is None


def test_latent_and_full_do_not_merge_either_way():
    same = {"block_size": 16, "num_kv_heads": 8, "head_size": 128}
    assert merge([full(), mla(**same)]) is None
    assert merge([mla(**same), full()]) is None


def test_a_merged_latent_spec_drops_its_alignment_and_keeps_its_padding():
    spec = mla(block_size=4, head_size=100, alignment=512)  # 800 bytes, padded to 1024
    merged = merge([spec, spec])
    assert (merged.alignment, merged.page_size_bytes) == (None, 1024)


def test_latent_windows_merge_by_names_and_window():
    assert merge([sliding_mla(), sliding_mla(head_size=64)]) == sliding_mla()
    assert merge([sliding_mla(), sliding_mla(sliding_window=9)]) is None
    assert merge([sliding_mla(), sliding()]) is None


@pytest.mark.parametrize("kind", [chunked, cross])
def test_other_kinds_merge_only_if_equal(kind):
    assert merge([kind(), kind()]) == kind()
    assert merge([kind(), kind(num_kv_heads=4)]) is None


def test_relatives_of_full_attention_share_a_table():
    first = full(block_size=64)
    for other in (mla(), hidden(block_size=64), rswa(block_size=64), sink(block_size=64)):
        assert is_one_type([first, other])
        assert is_one_type([other, first])
    assert not is_one_type([first, chunked(block_size=64)])
    assert not is_one_type([first, cross(block_size=64)])


def test_a_window_accepts_a_latent_one_but_not_the_other_way():
    plain, latent = sliding(sliding_window=8), sliding_mla(block_size=16)
    assert is_one_type([plain, latent])
    assert not is_one_type([latent, plain])
    assert not is_one_type([latent, sliding_mla(block_size=16, sliding_window=9)])


def test_chunks_share_a_table_if_as_long_and_cross_attention_always():
    assert is_one_type([chunked(), chunked(num_kv_heads=4)])
    assert not is_one_type([chunked(), chunked(attention_chunk_size=4096)])
    assert is_one_type([cross(), cross(num_kv_heads=4)])


def test_equal_block_sizes_are_needed_whatever_the_kind():
    assert not is_one_type([mla(), mla(block_size=128)])
    assert not is_one_type([mamba(), mamba(block_size=32)])

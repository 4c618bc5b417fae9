import pytest

from sim.layout.uniformity import is_one_type, merge
from tests.unit.layout.layouts import full, limits, mamba, sliding


def test_pages_are_those_of_the_spec_table():
    # spec/layout.md 2.2, "Size check": B 16, 8 heads of 128
    assert full().page_size_bytes == 65536
    assert full(dtype_bytes=1).page_size_bytes == 32768
    assert sliding().page_size_bytes == 65536


def test_a_state_s_page_is_the_sum_of_its_tensors_whatever_the_block():
    # Jamba-v0.1: 3 * 8192 * 2 + 8192 * 16 * 2 (spec/layout.md 3.2)
    assert mamba().page_size_bytes == 49152 + 262144
    assert mamba(block_size=4096).page_size_bytes == 311296
    assert mamba(dtype_bytes=(2, 4)).page_size_bytes == 49152 + 524288


def test_padding_changes_the_page_but_not_its_content():
    for padded in (full(page_size_padded=98304), mamba(page_size_padded=327680)):
        assert padded.page_size_bytes == padded.page_size_padded
        assert padded.real_page_size_bytes in (65536, 311296)


def test_values_may_have_another_head_size_and_default_to_the_keys():
    assert full().head_size_v == 128
    assert full() == full(head_size_v=128)
    # 16 tokens * 8 heads * (128 + 64) * 2 bytes
    assert full(head_size_v=64).page_size_bytes == 49152


def test_full_attention_holds_the_whole_sequence():
    assert full().max_blocks(limits(max_model_len=33)) == 3  # ceil(33 / 16)


def test_the_window_bound_counts_one_token_less_than_the_window():
    # W - 1 + T = 16 + 16 = 32 tokens: 2 blocks and one more; W + T would need 3 and one more
    bound = limits(max_model_len=4096, max_num_batched_tokens=16)
    assert sliding(sliding_window=17).max_blocks(bound) == 3
    assert sliding(sliding_window=18).max_blocks(bound) == 4


def test_the_window_bound_is_capped_at_the_length():
    # min(1023 + 8192, 40) = 40 tokens: 3 blocks and one more
    assert sliding().max_blocks(limits(max_model_len=40)) == 4


def test_the_window_bound_counts_batches_in_flight():
    # 1023 + 2 * 8192 = 17407 tokens: 1088 blocks and one more; with one batch 576 and one more
    assert sliding().max_blocks(limits(131072, batches_in_flight=2)) == 1089
    assert sliding().max_blocks(limits(131072)) == 577  # spec/layout.md 13, Gemma-3-27b


@pytest.mark.parametrize(
    ("mode", "speculative", "blocks"),
    [
        ("none", 0, 1),
        ("none", 2, 3),
        ("align", 0, 2),
        ("align", 2, 4),
        ("all", 0, 7),
        ("all", 3, 10),
    ],
)
def test_a_state_s_bound_goes_by_the_engine_s_mode(mode, speculative, blocks):
    spec = mamba(num_speculative_blocks=speculative, mamba_cache_mode="none")
    bound = limits(max_model_len=100, mamba_cache_mode=mode)  # all: ceil(100 / 16) = 7
    assert spec.max_blocks(bound) == blocks


def test_a_padded_state_s_bound_counts_padded_pages():
    spec = mamba(page_size_padded=327680)
    bound = limits(mamba_cache_mode="align")
    assert spec.max_memory_usage_bytes(bound) == 2 * 327680


# -- the two uniformity tests (spec/layout.md 2.4 and 14, small oracle set) --------------------


def test_full_specs_merge_whatever_the_value_head_size_and_the_first_counts():
    wide, narrow = full(num_kv_heads=16), full(num_kv_heads=16, head_size_v=64)
    assert merge([wide, narrow]).page_size_bytes == 131072
    assert merge([narrow, wide]).page_size_bytes == 98304


@pytest.mark.parametrize(
    "changes",
    [
        {"block_size": 32},
        {"num_kv_heads": 4},
        {"head_size": 64},
        {"dtype_bytes": 1},
        {"page_size_padded": 98304},
        {"indexes_kv_by_block_stride": False},
    ],
)
def test_full_specs_that_differ_in_one_field_do_not_merge(changes):
    assert merge([full(), full(**changes)]) is None


def test_windows_merge_only_if_equal():
    assert merge([sliding(), sliding()]) == sliding()
    assert merge([sliding(), sliding(sliding_window=512)]) is None
    assert merge([sliding(), sliding(head_size_v=64)]) is None
    assert merge([sliding(), full()]) is None
    assert merge([full(), sliding()]) is None


def test_states_merge_only_if_equal():
    assert merge([mamba(), mamba()]) == mamba()
    assert merge([mamba(), mamba(mamba_type="mamba2")]) is None


def test_one_type_needs_equal_block_sizes():
    assert is_one_type([full(), full(num_kv_heads=4)])
    assert not is_one_type([full(), full(block_size=32)])


def test_windows_are_of_one_type_if_the_window_is_the_same():
    assert is_one_type([sliding(), sliding(num_kv_heads=4)])
    assert not is_one_type([sliding(), sliding(sliding_window=512)])
    assert not is_one_type([sliding(), full()])
    assert not is_one_type([full(), sliding()])


def test_states_are_of_one_type_if_they_speculate_alike():
    assert is_one_type([mamba(), mamba(shapes=((8, 8), (8, 8)))])
    assert not is_one_type([mamba(), mamba(num_speculative_blocks=1)])

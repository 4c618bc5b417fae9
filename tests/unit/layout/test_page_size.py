import pytest

from sim.errors import ConfigError
from sim.layout.page_size import equalise_page_sizes
from tests.unit.layout.layouts import full, mamba, sliding


def test_equal_pages_stay_as_they_are():
    specs = {"a": full(), "b": sliding()}
    assert equalise_page_sizes(specs) == specs


def test_a_page_that_divides_the_largest_gets_larger_blocks():
    # gemma-4-like (spec/layout.md 6.4): SW 16 heads of 256, Full 4 heads of 512
    specs = {
        "sw": sliding(num_kv_heads=16, head_size=256),
        "full": full(num_kv_heads=4, head_size=512),
    }
    assert [s.page_size_bytes for s in specs.values()] == [262144, 131072]
    equal = equalise_page_sizes(specs)
    assert equal["sw"] == specs["sw"]
    assert equal["full"] == full(num_kv_heads=4, head_size=512, block_size=32)


def test_a_window_s_blocks_grow_with_a_larger_attention_block():
    # Gemma-3 with --block-size 32: SW 16 -> 32 (spec/layout.md 6.4)
    equal = equalise_page_sizes({"full": full(block_size=32), "sw": sliding()})
    assert equal["sw"].block_size == 32


def test_a_page_that_does_not_divide_is_padded():
    # 8x128, 8x192, SW 8x128: pages 65536, 98304, 65536 (spec/layout.md 6.4)
    specs = {"a": full(), "b": full(head_size=192), "c": sliding()}
    equal = equalise_page_sizes(specs)
    assert equal["a"] == full(page_size_padded=98304)
    assert equal["b"] == specs["b"]
    assert equal["c"] == sliding(page_size_padded=98304)
    assert equal["a"].block_size == 16


def test_padding_needs_a_backend_that_goes_by_the_block_stride():
    specs = {"L0": full(indexes_kv_by_block_stride=False), "L1": full(head_size=192)}
    with pytest.raises(ConfigError) as caught:
        equalise_page_sizes(specs)
    assert caught.value.problems[0].allowed == (
        "Layer L0: page size is not divisible by the maximum page size and cannot be padded. "
        "Padding is only supported for attention layers whose backend indexes KV pages by the "
        "block stride (indexes_kv_by_block_stride is True)."
    )


def test_a_state_can_neither_be_padded_nor_grow():
    # 311296 does not divide 458752 (7 * 65536), and is half of 622592
    with pytest.raises(ConfigError, match="cannot be padded"):
        equalise_page_sizes({"m": mamba(), "a": full(block_size=112)})
    with pytest.raises(ConfigError, match="cannot grow"):
        equalise_page_sizes({"m": mamba(), "a": full(block_size=152)})


def test_a_page_that_was_padded_before_cannot_grow():
    padded = full(page_size_padded=70000)
    with pytest.raises(ConfigError, match="cannot grow"):
        equalise_page_sizes({"a": padded, "b": full(page_size_padded=140000)})

"""Memory plans by hand: toy layers of one page of 65536 bytes per 16 tokens, and Jamba."""

from fractions import Fraction

import pytest

from sim.errors import ConfigError
from sim.layout.grouping import LengthDistribution
from sim.layout.plans import MEMORY_PLANS, PlanInput
from sim.layout.settings import LayoutSettings
from tests.unit.grouping.buckets import PAGE, full, limits, mamba, sliding, stack

GIB = 2**30
STATE = 2 * 3 * 8192 + 2 * 8192 * 16  # Jamba's state of one layer: 311,296 bytes


def given(specs, memory=10 * GIB, length=4096, lengths=None, **changes):
    settings = LayoutSettings(
        kv_cache_memory_bytes=memory, max_num_batched_tokens=8192, max_model_len=length
    )
    return PlanInput(
        specs_by_worker=(specs,),
        settings=settings,
        limits=limits(max_model_len=length, **changes),
        longest=length,
        lengths=LengthDistribution.of(lengths or [(length, 1)]),
    )


def toy():
    """2 full and 6 sliding layers: 256 and 257 blocks at 4096 tokens."""
    return stack("F", full(), 2) | stack("S", sliding(), 6)


def jamba(**state):
    """28 states and 4 attention layers, as aligned by the engine: 80 tokens, 327,680 bytes."""
    states = stack("M", mamba(page_size_padded=327680, **state), 28)
    return states | stack("A", full(block_size=80), 4)


# -- type_pools -----------------------------------------------------------------------------------
def test_type_pools_divide_the_memory_by_need():
    # need in pages: 2 x 256 = 512 and 6 x 257 = 1542 of 2054; 10 GiB are 163,840 pages
    # full: 163840 x 512 / 2054 = 40840.3 pages, 20420 blocks of 2; sliding: 122999.7, 20499 of 6
    made = MEMORY_PLANS["type_pools"](given(toy()))
    assert [pool.num_pages for pool in made.pools] == [20420, 20499]
    assert [pool.page_bytes for pool in made.pools] == [2 * PAGE, 6 * PAGE]
    # the sliding pool runs out first: 20499 / 257 = 79.7626
    assert made.concurrency == 20499 / 257
    assert made.tokens == int(20499 / 257 * 4096)
    assert made.remainder_bytes == (163840 - 2 * 20420 - 6 * 20499) * PAGE == 6 * PAGE


def test_type_pools_for_short_requests_starve_long_ones():
    # sized for 16 tokens: 1 full and 2 sliding blocks, 2 and 12 pages of 14;
    # 163840 x 2 / 14 = 23405.7 -> 11702 full blocks: 45.7 requests of 256 blocks
    made = MEMORY_PLANS["type_pools"](given(toy(), lengths=[(16, 1)]))
    assert made.pools[0].num_pages == 11702
    assert made.concurrency == 11702 / 256


def test_type_pools_use_natural_pages():
    # the state without its padding, attention in blocks of 16 again
    made = MEMORY_PLANS["type_pools"](given(jamba()))
    assert [pool.page_bytes for pool in made.pools] == [28 * STATE, 4 * PAGE]
    assert all(group.page_padding_bytes == 0 for group in made.groups)
    assert [group.spec.block_size for group in made.groups] == [16, 16]


def test_type_pools_refuse_a_pool_that_holds_no_request():
    with pytest.raises(ConfigError, match="one request of 4096 tokens needs 256 pages"):
        MEMORY_PLANS["type_pools"](given(toy(), memory=2000 * PAGE))


def test_one_type_is_one_pool_of_everything():
    made = MEMORY_PLANS["type_pools"](given(stack("F", full(), 4)))
    assert [pool.num_pages for pool in made.pools] == [163840 // 4]
    assert made.concurrency == 40960 / 256


# -- lcm_page -------------------------------------------------------------------------------------
def test_lcm_page_is_the_least_common_multiple_of_the_types_pages():
    # 2 and 6 pages: 6; a large page holds 3 full blocks or 1 sliding block
    made = MEMORY_PLANS["lcm_page"](given(toy()))
    (pool,) = made.pools
    assert (pool.page_bytes, pool.num_pages) == (6 * PAGE, 163840 // 6)
    assert [group.per_page for group in made.groups] == [3, 1]
    assert made.concurrency == float(Fraction(27306) / (Fraction(256, 3) + 257))
    assert made.missing_layers == 0


def test_lcm_page_rounds_states_up_to_attention_pages_and_counts_it_as_padding():
    # 28 x 311,296 = 8,716,288 bytes are 33.25 attention pages of 4 x 65,536: 34 of them
    made = MEMORY_PLANS["lcm_page"](given(jamba()))
    states, attention = made.groups
    assert states.block_bytes == 34 * 4 * PAGE == 8_912_896
    assert states.page_padding_bytes == 8_912_896 - 8_716_288
    assert (states.per_page, attention.per_page) == (1, 34)
    assert made.recurrent_floor_bytes == 8_912_896


def test_lcm_page_refuses_large_pages_above_a_64th_of_the_memory():
    # 52 and 10 layers: 260 pages; 64 of them are 16640
    specs = stack("S", sliding(), 52) | stack("F", full(), 10)
    made = MEMORY_PLANS["lcm_page"](given(specs, memory=16640 * PAGE, length=16))
    assert made.pools[0].num_pages == 64
    with pytest.raises(ConfigError, match="1/64 of the memory"):
        MEMORY_PLANS["lcm_page"](given(specs, memory=16640 * PAGE - 1, length=16))
    loose = MEMORY_PLANS["lcm_page:least_large_pages=32"]
    assert loose(given(specs, memory=16640 * PAGE - 1, length=16)).pools[0].num_pages == 63


# -- multi_layer_page -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layers", "block_size", "page", "num_groups"),
    [
        # block = 16 x ceil(311296, 65536 k); units: 28 states and ceil(4 / k) attention pages
        (1, 80, 327680, 8),  # what the engine does: groups of 4, 7 + 1
        (2, 48, 393216, 15),  # groups of 2, 14 + 1
        (4, 32, 524288, 29),  # groups of 1, 28 + 1
        (9, 32, 524288, 29),  # no more than there are
        (3, 32, 393216, 15),  # 16 x ceil(311296, 196608) = 32; pages of 3 and 1 layers
    ],
)
def test_multi_layer_page_shrinks_the_attention_block(layers, block_size, page, num_groups):
    made = MEMORY_PLANS[f"multi_layer_page:layers={layers}"](given(jamba()))
    assert len(made.groups) == num_groups
    attention = [group for group in made.groups if not group.is_recurrent]
    assert {group.spec.block_size for group in attention} == {block_size}
    assert made.pools[0].page_bytes == page * {8: 4, 15: 2, 29: 1}[num_groups]
    assert {g.page_padding_bytes // len(g.layer_names) for g in made.groups if g.is_recurrent} == {
        page - STATE
    }
    # three in a page and one in the next: two slots of the second page are empty
    assert made.missing_layers == (2 if layers == 3 else 0)


def test_multi_layer_page_takes_all_layers_by_default():
    default, four = MEMORY_PLANS["multi_layer_page"], MEMORY_PLANS["multi_layer_page:layers=4"]
    assert default(given(jamba())) == four(given(jamba()))


def test_multi_layer_page_with_one_layer_has_the_engine_s_capacity():
    # 80 GiB, 131072 tokens: 65536 blocks of 4 x 327680; 7 + ceil(131072, 80) = 1646 a request
    made = MEMORY_PLANS["multi_layer_page:layers=1"](given(jamba(), 80 * GIB, 131072))
    assert (made.pools[0].num_pages, made.concurrency) == (65536, 65536 / 1646)


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        (toy(), "no recurrent layers"),
        (stack("M", mamba(), 2), "no attention layers"),
        (jamba() | stack("S", sliding(), 2), "full attention layers of one shape"),
        (jamba() | stack("B", full(block_size=80, head_size=64), 2), "4 full_attention, 2 full"),
    ],
)
def test_multi_layer_page_says_what_it_cannot_do(specs, reason):
    with pytest.raises(ConfigError, match=reason):
        MEMORY_PLANS["multi_layer_page"](given(specs))


# -- single_full ----------------------------------------------------------------------------------
def test_single_full_keeps_every_token_of_every_layer():
    # 8 layers in one block of 8 pages: 20480 blocks, 256 a request
    made = MEMORY_PLANS["single_full"](given(toy()))
    assert len(made.groups) == 1
    assert made.pools[0].num_pages == 20480
    assert made.concurrency == 20480 / 256
    assert made.missing_layers == 0


def test_single_full_refuses_recurrent_layers_in_the_engine_s_words():
    with pytest.raises(ConfigError, match="failed to convert the KV cache specs"):
        MEMORY_PLANS["single_full"](given(jamba()))

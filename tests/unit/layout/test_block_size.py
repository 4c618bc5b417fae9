import pytest

from sim.errors import ConfigError
from sim.layout.block_size import (
    BlockSizes,
    align_pages,
    attention_block_size,
    check_align,
    recurrent_block_size,
    scheduler_and_hash_block_size,
)
from sim.layout.kv_cache_config import KVCacheGroupSpec
from tests.unit.layout.layouts import full, mamba, sliding

L = 262144


def groups(*specs):
    return [KVCacheGroupSpec((f"L{idx}",), spec) for idx, spec in enumerate(specs)]


def sizes_of(*specs, caching=True, hash_block_size=None):
    return scheduler_and_hash_block_size(
        groups(*specs), hash_block_size, enable_prefix_caching=caching
    )


# model, state bytes, bytes per token, kernel, user's block -> block, padding (spec/layout.md 3.2)
WORKED = [
    ("Jamba-v0.1", 311296, 4096, 16, 16, 80, "5.26"),
    ("Bamba-9B", 2147840, 4096, 16, 16, 528, "0.69"),
    ("Zamba2-7B", 962048, 28672, 16, 16, 48, "43.05"),
    ("Nemotron-H-8B", 4255744, 4096, 16, 16, 1040, "0.10"),
    ("MiniMax-Text-01 TP8", 262144, 512, 16, 16, 512, None),
    ("Qwen3-Next-80B", 1097728, 2048, 16, 16, 544, "1.49"),
    ("Qwen3-Next TP8", 137216, 1024, 16, 16, 144, "7.46"),
    ("Qwen3-Next fp8 KV", 1097728, 1024, 16, 16, 1072, None),
    ("Qwen3-Next fp32 SSM", 2146304, 2048, 16, 16, 1056, "0.76"),
    ("Qwen3-Next --block-size 1024", 1097728, 2048, 16, 1024, 1024, "91.04"),
    ("LFM2-1.2B", 8192, 2048, 16, 16, 16, "300.00"),
    ("Kimi-Linear", 2170880, 1152, 64, 64, 1920, "1.89"),
]


@pytest.mark.parametrize(
    ("state", "token", "kernel", "user", "block", "percent"),
    [row[1:] for row in WORKED],
    ids=[row[0] for row in WORKED],
)
def test_alignment_gives_the_worked_block_sizes(state, token, kernel, user, block, percent):
    sizes = align_pages(BlockSizes(user, L), token, state, kernel, "none")
    lines = []
    if block != user:
        lines.append(
            f"Setting attention block size to {block} tokens to ensure that attention page size "
            "is >= mamba page size."
        )
    if percent:
        lines.append(
            f"Padding mamba page size by {percent}% to ensure that mamba page size and attention "
            "page size are exactly equal."
        )
    assert list(sizes.log_lines) == lines
    assert sizes.block_size == block
    assert sizes.mamba_page_size_padded == (block * token if percent else None)
    assert sizes.mamba_block_size == L


def test_align_gives_both_kinds_the_same_block_size():
    sizes = align_pages(BlockSizes(16, 16), 4096, 311296, 16, "align")
    assert (sizes.block_size, sizes.mamba_block_size) == (80, 80)


def test_no_state_changes_nothing():
    assert align_pages(BlockSizes(16, L), 4096, 0, 16, "none") == BlockSizes(16, L)


def test_a_raised_block_is_a_multiple_of_the_user_s():
    # 48 tokens hold 196608 bytes; 2 * 48 = 96 is the next multiple that holds 311296
    assert align_pages(BlockSizes(48, L), 4096, 311296, 16, "none").block_size == 96


def test_the_attention_block_is_the_user_s_or_the_preferred_one():
    assert attention_block_size(None, 16, 16) == 16
    assert attention_block_size(48, 16, 16) == 48


@pytest.mark.parametrize("block_size", [1, 8, 24])
def test_a_block_that_no_kernel_divides_is_refused(block_size):
    with pytest.raises(ConfigError, match=f"No common block size for {block_size}"):
        attention_block_size(block_size, 16, 16)


def test_a_recurrent_block_holds_a_request_without_caching_and_follows_attention_with_it():
    assert recurrent_block_size(None, 16, L, enable_prefix_caching=False) == L
    assert recurrent_block_size(L, 16, L, enable_prefix_caching=False) == L
    assert recurrent_block_size(None, 16, L, enable_prefix_caching=True) == 16
    assert recurrent_block_size(64, 16, L, enable_prefix_caching=True) == 64


def test_a_recurrent_block_size_needs_prefix_caching():
    with pytest.raises(ConfigError) as caught:
        recurrent_block_size(64, 16, L, enable_prefix_caching=False)
    problem = caught.value.problems[0]
    assert problem.key == "cache.mamba_block_size"
    assert problem.allowed == "--mamba-block-size can only be set with --enable-prefix-caching"


# -- scheduler and hash (examples of spec/layout.md 10) ----------------------------------------


def test_one_group_needs_no_common_size_and_ignores_a_hash_size():
    assert sizes_of(full(block_size=48), hash_block_size=7) == (48, 48)


@pytest.mark.parametrize(
    ("blocks", "caching", "user", "expected"),
    [
        ((16, 32), True, None, (32, 16)),
        ((16, 24), True, None, (48, 8)),
        ((16, 32), False, None, (32, 32)),
        ((16, 32), True, 8, (32, 8)),
        ((16, 32), False, 7, (32, 32)),  # not looked at without caching
    ],
)
def test_several_groups_take_lcm_and_gcd(blocks, caching, user, expected):
    specs = [sliding(block_size=blocks[0]), full(block_size=blocks[1])]
    assert sizes_of(*specs, caching=caching, hash_block_size=user) == expected


def test_a_hash_size_must_divide_every_group():
    with pytest.raises(ConfigError) as caught:
        sizes_of(sliding(), full(block_size=32), hash_block_size=32)
    assert caught.value.problems[0].allowed == (
        "Invalid hash_block_size=32; all KV cache group block sizes must be divisible by "
        "hash_block_size. Got group block sizes=[16, 32]."
    )


def test_a_state_block_other_than_the_smallest_makes_hashes_as_coarse_as_hits():
    assert sizes_of(mamba(block_size=528), full(block_size=528)) == (528, 528)
    # Bamba, mode none, L = 4096: lcm(528, 4096)
    assert sizes_of(mamba(block_size=4096), full(block_size=528)) == (135168, 135168)
    # any smaller group disables fine hashing (spec/layout.md C11)
    three = [mamba(block_size=64), full(block_size=64), full(block_size=48)]
    assert sizes_of(*three) == (192, 192)


# -- start-up checks of align (spec/layout.md 10.3) --------------------------------------------


def test_align_accepts_steps_of_at_least_a_block():
    check_align(80, 80)
    check_align(80, 8192, 80)
    check_align(80, 8192, 0)


@pytest.mark.parametrize(
    ("tokens", "threshold", "chunked", "key"),
    [
        (79, 0, True, "scheduler.max_num_batched_tokens"),
        (8192, 79, True, "scheduler.long_prefill_token_threshold"),
        (8192, 0, False, "scheduler.enable_chunked_prefill"),
    ],
)
def test_align_refuses_steps_that_cannot_end_at_a_block(tokens, threshold, chunked, key):
    with pytest.raises(ConfigError) as caught:
        check_align(80, tokens, threshold, enable_chunked_prefill=chunked)
    assert [problem.key for problem in caught.value.problems] == [key]

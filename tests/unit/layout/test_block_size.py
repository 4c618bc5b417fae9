import pytest

from sim.errors import ConfigError
from sim.layout.backends import ATTENTION_BACKENDS
from sim.layout.block_size import (
    BlockSizes,
    align_pages,
    check_align,
    cover_wide_pages,
    preferred_block_size,
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


def test_the_cache_block_is_the_user_s_or_what_the_backend_prefers():
    flash, latent = ATTENTION_BACKENDS["FLASH_ATTN"], ATTENTION_BACKENDS["FLASHMLA"]
    assert preferred_block_size(None, 16, flash) == (16, ())
    assert preferred_block_size(48, 16, latent) == (48, ())
    assert preferred_block_size(None, 16, None) == (16, ())
    line = "Setting kv cache block size to 64 for FLASHMLA backend."
    assert preferred_block_size(None, 16, latent) == (64, (line,))


# model, state bytes, bytes per token, chunk -> block and padding in mode all (spec/layout.md 3.2)
WORKED_ALL = [
    ("Jamba-v0.1", 311296, 4096, 2048, 2048, "2594.74"),
    ("Bamba-9B", 2147840, 4096, 256, 768, "46.46"),
    ("Bamba-9B, user mamba block 512", 2147840, 4096, 512, 1024, "95.28"),
    ("Zamba2-7B", 962048, 28672, 256, 256, "662.96"),
    ("Nemotron-H-8B", 4255744, 4096, 128, 1152, "10.88"),
    # a line of a user's log: 788 kB state, 2 kB per token, chunk 256: 394 -> 512 (real cases, B33)
    ("B33", 788_000, 2000, 256, 512, "29.95"),
]


@pytest.mark.parametrize(
    ("state", "token", "chunk", "block", "percent"),
    [row[1:] for row in WORKED_ALL],
    ids=[row[0] for row in WORKED_ALL],
)
def test_mode_all_aligns_to_chunks_too(state, token, chunk, block, percent):
    sizes = align_pages(BlockSizes(16, 16), token, state, 16, "all", chunk)
    assert (sizes.block_size, sizes.mamba_block_size) == (block, block)
    assert sizes.mamba_page_size_padded == block * token
    assert f"Padding mamba page size by {percent}% " in sizes.log_lines[-1]


def test_mode_all_needs_a_multiple_of_kernel_and_chunk():
    # lcm(24, 16) = 48 tokens; 100 tokens of state need 144
    assert align_pages(BlockSizes(16, 16), 10, 1000, 16, "all", 24).block_size == 144


@pytest.mark.parametrize(
    ("token", "block", "shared", "is_logged"),
    [(1152, 64, 73728, True), (2048, 32, 65536, True), (4096, 16, None, False)],
    ids=["nvfp4", "fp8", "the model's own"],
)
def test_a_quantised_page_covers_a_wide_one(token, block, shared, is_logged):
    # 8 heads of 128 (spec/layout.md 3.3)
    sizes = cover_wide_pages(BlockSizes(16, 16), token, 4096, 16)
    assert (sizes.block_size, sizes.window_page_size_padded) == (block, shared)
    line = (
        f"Setting attention block size to {block} tokens so the quantized primary KV page covers "
        "the higher-precision padded-spec page."
    )
    assert sizes.log_lines == ((line,) if is_logged else ())


def test_a_quantised_page_covers_the_state_too_and_its_padding_follows():
    # need max(4096 * 16, 200000); 16 * ceil(200000 / (16 * 2048)) = 112 tokens of 2048 bytes
    sizes = cover_wide_pages(BlockSizes(16, 999, 200_000), 2048, 4096, 16)
    assert (sizes.block_size, sizes.mamba_page_size_padded) == (112, 229376)
    assert sizes.mamba_block_size == 999  # not refreshed (appendix C10)


def test_a_wide_page_that_is_smaller_is_refused():
    with pytest.raises(ConfigError, match="kv_cache_dtype_skip_layers"):
        cover_wide_pages(BlockSizes(16, 16), 4096, 2048, 16)


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


def test_ranks_that_share_a_sequence_multiply_one_group_s_block():
    one = groups(full())
    assert scheduler_and_hash_block_size(
        one, enable_prefix_caching=True, context_parallel_size=4
    ) == (64, 64)
    with pytest.raises(ConfigError) as caught:
        scheduler_and_hash_block_size(
            groups(full(), sliding()), enable_prefix_caching=True, context_parallel_size=2
        )
    assert caught.value.problems[0].allowed == (
        "Hybrid KV cache groups with multiple block sizes do not support context parallelism "
        "(dcp_world_size/pcp_world_size > 1)."
    )


def test_without_groups_the_cache_block_size_counts():
    sizes = scheduler_and_hash_block_size([], enable_prefix_caching=True, default=32)
    assert sizes == (32, 32)


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

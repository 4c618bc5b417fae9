"""DeepSeek-V4's grouping (spec/layout.md 6.3)."""

import pytest

from sim.errors import ConfigError
from sim.layout.groups import group_layers
from sim.layout.multi_bundle import group_latent_windows, tuples_per_group
from tests.unit.layout.layouts import (
    GIB,
    full,
    hidden,
    limits,
    mla,
    plan,
    pool,
    sliding,
    sliding_mla,
    stack,
)


@pytest.mark.parametrize(
    ("main", "others", "size"),
    [
        (21, [43, 21, 20], 22),
        (11, [21, 11, 10], 11),
        (3, [10, 4], 5),  # 4 and 5 both round up by 3: the larger
        (5, [12], 6),
        (4, [10], 5),
        (7, [5], 7),
    ],
)
def test_the_size_of_a_group_rounds_all_sets_up_least(main, others, size):
    assert tuples_per_group(main, others) == size


def small(**changes):
    """Two main pages of 1024 and 512 bytes, and windows of 1000 and 500 bytes."""
    specs = {
        "L0.swa": sliding_mla(block_size=4, head_size=125, sliding_window=8),
        "L0.attn": mla(block_size=8, head_size=64),
        "L0.idx": mla(block_size=8, head_size=32, cache_dtype_str=None),
        "L1.swa": sliding_mla(block_size=4, head_size=125, sliding_window=8),
        "L1.idxcomp": sliding_mla(block_size=2, head_size=125, sliding_window=4),
        "L2.swa": sliding_mla(block_size=4, head_size=125, sliding_window=8),
    }
    return specs | changes


def test_windows_are_split_by_block_size_and_window_in_strides():
    groups = group_latent_windows(small())
    # tuples: main 1, windows 3 and 1: size 3 rounds up 2 + 0 + 2, size 1 nothing
    assert [g.layer_names for g in groups] == [
        ("L0.attn", "L0.idx"),
        ("L0.swa",),
        ("L1.swa",),
        ("L2.swa",),
        ("L1.idxcomp",),
    ]
    pages = [g.kv_cache_spec.page_size_bytes for g in groups]
    assert pages == [1024 + 512, 1024, 1024, 1024, 512]  # the smallest main page that holds it


def test_tuples_zip_the_page_sizes_of_a_set():
    wide = {"block_size": 4, "head_size": 125}
    thin = {"block_size": 4, "head_size": 60}  # 480 bytes
    specs = {
        **stack("m", mla(block_size=8, head_size=64), 2),
        "i": mla(block_size=8, head_size=32),
        "a": sliding_mla(**wide),
        "b": sliding_mla(**wide),
        "x": sliding_mla(**thin),
        "y": sliding_mla(**thin),
        "c": sliding_mla(**wide),
        "z": sliding_mla(**thin),
    }
    groups = group_latent_windows(specs)
    # tuples 2 (main) and 3: size 2 rounds up 0 + 1, size 3 rounds up 1 + 0: 3, all in one group
    assert groups[1].layer_names == ("a", "x", "b", "y", "c", "z")


def test_every_page_size_of_a_set_needs_as_many_layers():
    specs = small(
        **{"L3.swa": sliding_mla(block_size=4, head_size=60, sliding_window=8)},
    )
    with pytest.raises(ConfigError, match="as many windowed layers of each page size"):
        group_latent_windows(specs)


def test_a_window_larger_than_every_latent_page_is_refused():
    specs = small(**{"L3.swa": sliding_mla(block_size=4, head_size=129, sliding_window=8)})
    with pytest.raises(ConfigError, match="at most the largest latent page of 1024 bytes"):
        group_latent_windows(specs)


def test_latent_windows_need_a_latent_cache():
    specs = {"a": sliding_mla(), "b": sliding_mla(sliding_window=4)}
    with pytest.raises(ConfigError, match="at least one latent cache"):
        group_latent_windows(specs)


def test_other_kinds_have_no_group():
    with pytest.raises(ConfigError) as caught:
        group_latent_windows(small(**{"L9": full(), "L10": sliding(sliding_window=8)}))
    problem = caught.value.problems[0]
    assert problem.allowed == "Some layers are not assigned to any group."
    assert problem.value == "L9, L10"


def test_a_hidden_state_counts_as_latent_if_its_block_size_is_equal():
    groups = group_latent_windows(small(**{"h": hidden(block_size=8, num_kv_heads=1)}))
    assert groups[0].layer_names == ("L0.attn", "L0.idx", "h")
    with pytest.raises(ConfigError):
        group_latent_windows(small(**{"h": hidden(block_size=16)}))


def test_only_drafting_flags_the_group_of_the_last_layer_in_that_version():
    versioned = small(**{"L0.attn": mla(block_size=8, head_size=64, model_version="deepseek_v4")})
    plain = [g.is_eagle_group for g in group_layers(versioned, None)[0]]
    assert not any(plain)
    groups, _ = group_layers(versioned, None, is_eagle=True)
    assert [g.layer_names for g in groups if g.is_eagle_group] == [("L2.swa",)]
    assert not any(g.is_eagle_group for g in group_layers(small(), None, is_eagle=True)[0])


def test_admission_charges_a_whole_tuple_of_the_first_group_s_pages():
    # pages 118 + 131 + 131 + 2051 + 1041 = 3472 blocks; 22 * 47808 bytes each (real cases, B19)
    layout = plan(
        "deepseek-ai--DeepSeek-V4-Flash",
        kv_cache_memory_bytes=60 * GIB,
        max_model_len=30_000,
        kv_cache_dtype="fp8_ds_mla",
    )
    held = [g.kv_cache_spec.max_blocks(layout.limits) for g in layout.groups]
    assert held == [118, 131, 131, 2051, 1041]
    assert layout.capacity.admission_bytes == 3472 * 22 * 47808
    assert layout.bytes_per_block == 1039680
    # and at 5.44 GiB: 5618 blocks, logged 1.82x although 5618 / 3472 = 1.62
    tight = plan(
        "deepseek-ai--DeepSeek-V4-Flash",
        kv_cache_memory_bytes=int(5.44 * GIB),
        max_model_len=30_000,
        kv_cache_dtype="fp8_ds_mla",
    )
    assert tight.kv_cache_config.num_blocks == 5618
    assert tight.log_lines[-1].endswith("1.82x")
    assert f"{5618 / 3472:.2f} {5.44 * GIB / layout.capacity.admission_bytes:.2f}" == "1.62 1.60"


def test_the_logged_tokens_fall_with_the_batch_although_the_pool_is_the_same():
    # 7.70 GiB, L 121344: 280,257 / 490,059 / 783,220 tokens (real cases, B18)
    tokens = [
        plan(
            "deepseek-ai--DeepSeek-V4-Flash",
            kv_cache_memory_bytes=int(7.70 * GIB),
            max_model_len=121_344,
            max_num_batched_tokens=batch,
            kv_cache_dtype="fp8_ds_mla",
        ).capacity.tokens
        for batch in (8192, 4096, 2048)
    ]
    assert tokens == [280_257, 490_059, 783_220]


def test_a_bundle_of_one_window_set_is_not_packed():
    # all latent windows alike: one merged group (appendix C17)
    planned = pool(stack("w", sliding_mla(), 3), limits(4096))
    assert len(planned.groups) == 1
    assert planned.workers[0].kv_cache_config.kv_cache_tensors[0].block_stride == 0

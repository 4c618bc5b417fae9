import pytest

from sim.errors import ConfigError
from sim.layout.backends import ATTENTION_BACKENDS, kernel_block_size
from tests.unit.layout.layouts import GIB, plan

LLAMA = "meta-llama--Llama-3.1-8B"


def backends(*names):
    return [ATTENTION_BACKENDS[name] for name in names]


def refused(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("names", "block", "kernel"),
    [
        (["FLASHINFER"], 544, 32),  # 544 = 17 * 32 (spec/layout.md 11)
        (["FLASHINFER"], 528, 16),
        (["FLASHINFER"], 64, 64),
        (["FLASHMLA"], 1920, 64),
        (["FLASH_ATTN"], 1040, 1040),
        (["FLASH_ATTN", "FLASHINFER"], 1040, 16),
        (["FLASHINFER_MLA", "FLASHMLA"], 128, 64),
        (["DEEPSEEK_V4_COMPRESSOR"], 7, 7),
        ([], 5, 5),
    ],
)
def test_kernels_see_the_block_or_the_largest_listed_part_of_it(names, block, kernel):
    assert kernel_block_size(backends(*names), block) == kernel


@pytest.mark.parametrize(
    ("names", "block"),
    [(["FLASH_ATTN"], 24), (["FLASHMLA"], 96), (["FLASHINFER", "CUTLASS_MLA"], 128)],
)
def test_a_block_that_no_kernel_divides_is_refused(names, block):
    problem = refused(lambda: kernel_block_size(backends(*names), block))
    assert problem.key == "cache.block_size"
    assert f"No common block size for {block}. " in problem.allowed


@pytest.mark.parametrize(
    ("name", "preferred", "smallest"),
    [
        ("FLASH_ATTN", 16, 16),
        ("FLASHINFER", 16, 16),
        ("FLASHMLA", 64, 64),
        ("FLASHINFER_MLA", 32, 32),
        ("CUTLASS_MLA", 128, 128),
        ("DEEPSEEK_SPARSE_SWA", 256, 64),
        ("TURBOQUANT", 16, 16),
    ],
)
def test_backends_prefer_the_default_or_their_smallest_size(name, preferred, smallest):
    backend = ATTENTION_BACKENDS[name]
    assert (backend.preferred(16), backend.smallest_size) == (preferred, smallest)


def test_latent_models_say_which_block_size_they_take():
    layout = plan("deepseek-ai--DeepSeek-V3", kv_cache_memory_bytes=40 * GIB)
    assert layout.log_lines[0] == "Setting kv cache block size to 64 for FLASHMLA backend."
    assert layout.block_size == 64


def test_the_user_s_backend_and_block_size_count():
    v3 = {"model": "deepseek-ai--DeepSeek-V3", "kv_cache_memory_bytes": 40 * GIB}
    assert plan(**v3, attention_backend="FLASH_ATTN_MLA").block_size == 16
    assert plan(**v3, attention_backend="CUTLASS_MLA").block_size == 128
    assert plan(**v3, block_size=128).block_size == 128  # 128 = 2 * 64
    assert refused(lambda: plan(**v3, block_size=32)).key == "cache.block_size"
    assert refused(lambda: plan(LLAMA, block_size=24)).value == 24


def test_deepseek_v4_takes_blocks_of_256():
    layout = plan(
        "deepseek-ai--DeepSeek-V4-Flash",
        kv_cache_memory_bytes=60 * GIB,
        max_model_len=131072,
        kv_cache_dtype="fp8_ds_mla",
    )
    assert layout.settings.block_size == 256
    assert (layout.block_size, layout.scheduler_block_size, layout.hash_block_size) == (4, 256, 4)


def test_a_backend_without_the_stride_flag_marks_the_specs():
    layout = plan(LLAMA, attention_backend="ROCM_ATTN")
    assert not layout.groups[0].kv_cache_spec.indexes_kv_by_block_stride
    assert plan(LLAMA).groups[0].kv_cache_spec.indexes_kv_by_block_stride


def test_an_unknown_or_unfitting_backend_lists_those_that_fit():
    problem = refused(lambda: plan(LLAMA, attention_backend="FLASH_ATN"))
    assert problem.suggestion == "FLASH_ATTN"
    problem = refused(lambda: plan(LLAMA, attention_backend="FLASHMLA"))
    assert problem.allowed.startswith("for meta-llama--Llama-3.1-8B: FLASH_ATTN, FLASHINFER, ")
    problem = refused(lambda: plan("tiiuae--falcon-mamba-7b", attention_backend="FLASH_ATTN"))
    assert problem.allowed.endswith("none, it has no attention")


def test_a_window_takes_the_smallest_size_of_its_backend():
    layout = plan("mistralai--Mistral-7B-v0.1", attention_backend="FLASHINFER", block_size=64)
    assert layout.groups[0].kv_cache_spec.block_size == 16

"""Whether a log agrees with a layout, and which changes would make it agree."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import ConfigError
from sim.layout.from_log import blocks_in_rounded_memory, explain_log
from sim.layout.specs_file import specs_from
from sim.layout.startup_log import read_startup_log
from sim.layout_scenario import LayoutRequest

GEMMA, QWEN = "google/gemma-3-27b-it", "Qwen/Qwen3.5-27B"


def log_of(**values):
    """Lines of a log; Gemma-3-27b's at 20 GiB and 131072 tokens (spec/layout.md 14)."""
    given = {"gib": "20.0", "tokens": "184,270", "length": "131,072", "concurrency": "1.41"}
    given |= values
    return read_startup_log(
        "{more}\nAvailable KV cache memory: {gib} GiB\nGPU KV cache size: {tokens} tokens\n"
        "Maximum concurrency for {length} tokens per request: {concurrency}x".format(
            **{"more": "", **given}
        )
    )


def explain(model, log, **keys):
    return LayoutRequest.of(
        model, None, {k.replace("__", "."): v for k, v in keys.items()}
    ).explain(log)


def test_layout_that_agrees_is_said_to_agree_and_nothing_is_tried():
    found = explain(GEMMA, log_of())
    assert found.comparison.agrees
    assert found.changes == ()
    # 20.0 +- 0.005 GiB over 1310720 bytes: 16379.9 and 16388.1
    assert found.comparison.blocks_in_memory == (16379, 16388)
    assert found.comparison.num_blocks == 16384


def test_rounded_memory_holds_the_blocks_of_both_ends():
    # 1 GiB +- 0.005 GiB, blocks of 16 MiB: 63.68 and 64.32
    assert blocks_in_rounded_memory("1.0", 2**24) == (63, 64)
    assert blocks_in_rounded_memory("0.0", 2**24) == (0, 0)


def test_older_formula_is_found():
    # 16384 // 7 groups x 16 tokens = 37440; a version would have told
    found = explain(GEMMA, log_of(tokens="37,440"))
    assert found.changes[0] == ("token formula of releases before 0.21",)
    with_version = explain(GEMMA, log_of(tokens="37,440", more="vLLM version 0.20.0"))
    assert with_version.comparison.agrees


def test_hybrid_manager_that_was_off_is_found():
    # spec/layout.md 5.2: 42,272 tokens and 1.29x at 32768 without the manager
    found = explain(GEMMA, log_of(tokens="42,272", length="32,768", concurrency="1.29"))
    assert ("--disable-hybrid-kv-cache-manager",) in found.changes


def test_batch_size_that_was_another_is_found():
    # at 2048 batched tokens a window needs ceil(3071 / 16) + 1 = 193 blocks: 8192 + 6 x 193 = 9350;
    # 16384 x 131072 / 9350 = 229,677.4
    found = explain(GEMMA, log_of(tokens="229,677", concurrency="1.75"))
    assert found.changes == (("--max-num-batched-tokens 2048",),)


def test_dtype_and_formula_are_found_as_a_pair():
    # A1 of spec/real_logs.json, without version, dtype and mode: fp8, align, old formula
    log = log_of(
        gib="6.67", tokens="53,312", length="32,768", concurrency="5.15",
        more="Setting attention block size to 1568 tokens to ensure that\nvLLM version 0.20.0",
    )  # fmt: skip
    found = explain(QWEN, log)
    assert not found.comparison.agrees
    assert ("--kv-cache-dtype fp8", "--mamba-cache-mode align") in found.changes
    assert all(len(pair) == 2 for pair in found.changes)


def test_speculation_is_found():
    # A5: one MTP layer, one speculated token, no prefix caching
    found = explain(
        QWEN, log_of(gib="17.25", tokens="255,975", length="131,072", concurrency="1.95")
    )
    assert ("--num-speculative-tokens 1",) in found.changes


def test_tensor_parallel_is_found():
    # A4: two GPUs, concurrency of 123399 / 122633
    found = explain(
        QWEN, log_of(gib="3.86", tokens="123,399", length="122,633", concurrency="1.01")
    )
    assert ("--tensor-parallel-size 2",) in found.changes


def test_what_the_log_states_is_not_changed():
    log = log_of(tokens="229,677", concurrency="1.75", more="max_num_batched_tokens=8192")
    assert explain(GEMMA, log).changes == ()


def test_stated_settings_count_unless_the_request_says_otherwise():
    log = log_of(tokens="229,677", concurrency="1.75", more="max_num_batched_tokens=2048")
    assert explain(GEMMA, log).comparison.agrees
    other = explain(GEMMA, log, scheduler__max_num_batched_tokens=8192)
    assert not other.comparison.agrees


def test_log_without_memory_tests_the_whole_numbers_only():
    log = read_startup_log(
        "GPU KV cache size: 184,270 tokens\nMaximum concurrency for 131,072 tokens per request: "
        "1.41x"
    )
    found = explain(GEMMA, log)
    assert found.comparison.agrees
    assert found.comparison.num_blocks == 16384
    assert found.comparison.blocks_in_memory is None


def test_tiny_pages_are_no_reason_to_count_long():
    # 0.01 GiB are 335,544 pages of 32 bytes
    entry = {"kind": "full", "block_size": 16, "page_bytes": 32}
    request = LayoutRequest("x", {}, specs=specs_from([entry], "x"))
    log = log_of(tokens="5", length="16", concurrency="9.99")
    assert not request.explain(log).comparison.agrees


def test_concurrency_alone_is_compared_too():
    text = "Maximum concurrency for 131,072 tokens per request: {}x"
    assert explain(GEMMA, read_startup_log(text.format("1.41"))).comparison.agrees
    # one block is 1 / 11654 of a request: every hundredth can be reached, so memory must tell
    more = "Available KV cache memory: 20.0 GiB\n"
    assert not explain(GEMMA, read_startup_log(more + text.format("1.42"))).comparison.agrees


LINES = st.sampled_from(
    [
        "GPU KV cache size: {} tokens",
        "Available KV cache memory: {} GiB",
        "Maximum concurrency for {} tokens per request: 1.41x",
        "Setting attention block size to {} tokens",
        "Add {} padding layers, may waste at most 1.00% KV cache memory",
        "Overriding num_gpu_blocks=1 with num_gpu_blocks_override={}",
        "tensor_parallel_size={}",
        "kv_cache_dtype={}",
        "max_num_batched_tokens={}",
        "num_speculative_tokens={}",
        "vLLM version {}",
    ]
)
VALUES = st.sampled_from(["0", "1", "7", "20.0", "131,072", "9" * 24, "-1", "fp8", "x", ""])


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(LINES, VALUES), min_size=1, max_size=6))
def test_any_log_gives_an_answer_or_the_error_form(lines):
    text = "\n".join(line.format(value) for line, value in lines)
    try:
        explain("meta-llama/Llama-3.1-8B", read_startup_log(text))
    except ConfigError as error:
        assert str(error)


def test_overridden_pool_is_compared_by_its_blocks():
    # spec/layout.md 14: Llama-3.1-8B with 100 blocks, 1024 tokens: 1,600 tokens, 1.56x
    log = log_of(
        tokens="1,600", length="1,024", concurrency="1.56",
        more="Overriding num_gpu_blocks=10240 with num_gpu_blocks_override=100",
    )  # fmt: skip
    found = explain("meta-llama/Llama-3.1-8B", log)
    assert found.comparison.agrees
    assert found.comparison.num_blocks == 100


def test_nothing_that_is_tried_fits_nonsense():
    assert explain(GEMMA, log_of(tokens="7")).changes == ()


@pytest.mark.parametrize("num_layers", [0, 62])
def test_order_of_what_is_tried_is_the_documented_one(num_layers):
    from sim.layout.from_log import NEW, Trial, changes_of

    stages = [
        [label for label, _ in stage] for stage in changes_of(Trial({}), log_of(), num_layers)
    ]
    assert Trial({}).token_formula == NEW
    first = [stage[0] for stage in stages]
    assert first == [
        "token formula of releases before 0.21",
        "--max-num-batched-tokens 2048",
        "--disable-hybrid-kv-cache-manager",
        "--kv-cache-dtype auto",
        "--mamba-cache-mode none",
        "--num-speculative-tokens 0",
        "--tensor-parallel-size 1",
    ]
    assert ("--pipeline-parallel-size 2" in stages[-1]) is (num_layers > 0)


def test_settings_without_a_layout_are_no_answer():
    def refuse(settings):
        if settings.keys() - {"kv_cache_memory_bytes", "max_model_len"}:
            raise ConfigError.one("x", 1, "never")
        return LayoutRequest.of(GEMMA, None, {}).plan(settings)

    assert explain_log(log_of(tokens="7"), refuse).changes == ()

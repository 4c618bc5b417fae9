"""What the lines of a start-up log say."""

import pytest

from sim.errors import ConfigError
from sim.layout.startup_log import load_startup_log, read_startup_log

# Shapes of lines as the engine prints them; names and numbers of A1 in spec/real_logs.json.
A1 = """\
(APIServer pid=7) INFO 05-01 10:00:00 [utils.py:1] vLLM API server version 0.20.0
(APIServer pid=7) INFO 05-01 10:00:00 [utils.py:2] non-default args: {'model': 'Qwen/Qwen3.6-27B', \
'max_model_len': 32768, 'kv_cache_dtype': 'fp8', 'max_num_batched_tokens': 8192}
(EngineCore pid=9) INFO 05-01 10:00:01 [core.py:3] Initializing a V1 LLM engine (v0.20.0) with \
config: model='Qwen/Qwen3.6-27B', speculative_config=None, dtype=torch.bfloat16, \
max_seq_len=32768, tensor_parallel_size=1, pipeline_parallel_size=1, kv_cache_dtype=fp8, \
enable_prefix_caching=True
WARNING Mamba cache mode is set to 'align' for Qwen3_5 by default when prefix caching is enabled
\x1b[32mINFO\x1b[0m Setting attention block size to 1568 tokens to ensure that attention page size \
is >= mamba page size.
INFO Padding mamba page size by 0.13% to ensure that mamba page size and attention page size are \
exactly equal.
INFO Available KV cache memory: 6.67 GiB
INFO GPU KV cache size: 53,312 tokens
INFO Maximum concurrency for 32,768 tokens per request: 5.15x
"""


def test_all_lines_of_a_start_up_are_read():
    log = read_startup_log(A1)
    assert (log.version, log.model) == ("0.20.0", "Qwen/Qwen3.6-27B")
    assert (log.memory_gib, log.block_size, log.page_padding_percent) == (("6.67",), 1568, "0.13")
    assert (log.tokens, log.concurrency, log.max_model_len) == (53312, "5.15", 32768)
    assert log.is_before_0_21 is True
    assert log.settings == {
        "kv_cache_dtype": "fp8",
        "max_num_batched_tokens": 8192,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "enable_prefix_caching": True,
        "mamba_cache_mode": "align",
    }


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("vllm serve m --tensor-parallel-size 4", "tensor_parallel_size", 4),
        ("vllm serve m --tensor-parallel-size=4", "tensor_parallel_size", 4),
        ("{'tensor_parallel_size': 2}", "tensor_parallel_size", 2),
        ("tensor_parallel_size=8,", "tensor_parallel_size", 8),
        ("SpeculativeConfig(method='mtp', num_spec_tokens=3)", "num_speculative_tokens", 3),
        ("'speculative_config': {'num_speculative_tokens': 2}", "num_speculative_tokens", 2),
        ('{"num_speculative_tokens": 2}', "num_speculative_tokens", 2),
        ("Chunked prefill is enabled with max_num_batched_tokens=2048.",
         "max_num_batched_tokens", 2048),
        ("--no-enable-prefix-caching", "enable_prefix_caching", False),
        ("--enable-prefix-caching --port 1", "enable_prefix_caching", True),
        ("enable_prefix_caching=False", "enable_prefix_caching", False),
        ("--disable-hybrid-kv-cache-manager", "disable_hybrid_kv_cache_manager", True),
        ("--no-disable-hybrid-kv-cache-manager", "disable_hybrid_kv_cache_manager", False),
        ("--kv-cache-dtype fp8_e4m3", "kv_cache_dtype", "fp8_e4m3"),
        ("Mamba cache mode is set to 'none' when prefix caching is disabled",
         "mamba_cache_mode", "none"),
    ],
)  # fmt: skip
def test_settings_are_read_in_every_spelling(line, name, value):
    log = read_startup_log(f"{line}\nGPU KV cache size: 1 tokens")
    assert log.settings[name] == value


@pytest.mark.parametrize(
    "line",
    [
        "max_num_batched_tokens=None",
        "my_tensor_parallel_size=4",
        "enable_prefix_caching=None",
        "kv_cache_dtype_skip_layers=[]",
    ],
)
def test_what_only_looks_like_a_setting_is_not_read(line):
    assert read_startup_log(f"{line}\nGPU KV cache size: 1 tokens").settings == {}


@pytest.mark.parametrize(
    ("version", "before"),
    [("0.20.1rc1.dev16", True), ("0.21.0", False), ("0.25.1", False), ("1.0", False), ("x", None)],
)
def test_version_tells_the_formula(version, before):
    text = f"vLLM version {version}\nGPU KV cache size: 1 tokens"
    assert read_startup_log(text).is_before_0_21 is before


def test_last_start_up_of_a_log_counts():
    first = "Available KV cache memory: 1.0 GiB\nGPU KV cache size: 16 tokens\n"
    second = "Available KV cache memory: 2.0 GiB\nAvailable KV cache memory: 1.9 GiB\n"
    log = read_startup_log(first + second + "GPU KV cache size: 32 tokens")
    assert (log.memory_gib, log.tokens) == (("2.0", "1.9"), 32)


def test_padding_warning_that_is_printed_twice_counts_once():
    line = "Add 3 padding layers, may waste at most 10.00% KV cache memory\n"
    assert read_startup_log(line * 2).padding_lines == ((3, "10.00"),)


@pytest.mark.parametrize("text", ["", "hello", "Available KV cache memory: 6.67 GiB", "\x00" * 9])
def test_text_without_capacity_lines_is_refused(text):
    with pytest.raises(ConfigError, match=r"--from-log: x\.log: a vLLM start-up log"):
        read_startup_log(text, "x.log")


def test_file_that_is_not_there_is_the_users_error(tmp_path):
    with pytest.raises(ConfigError, match="--from-log"):
        load_startup_log(tmp_path / "none.log")


def test_bytes_that_are_no_text_do_not_hurt(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"\xff\xfe GPU KV cache size: 1,024 tokens \xff\n")
    assert load_startup_log(path).tokens == 1024

"""The compiled server answers what the manager answers, on pools of every size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.curve.compiled_server import CompiledServer, has_compiled_half
from sim.curve.groups import model_groups
from sim.curve.reading import request_batches
from sim.curve.serial import NOT_SERVED, ManagerServer, serve
from sim.errors import ConfigError
from tests.curve.made_traces import made_rows, write_trace
from workloads.mooncake import MooncakeParams

ROOT = Path(__file__).parents[2]
RECURRENT = {"cache.enable_prefix_caching": True, "cache.mamba_cache_mode": "align"}
MODELS = {
    "meta-llama/Llama-3.1-8B": {},
    "google/gemma-3-1b-it": {},
    "google/gemma-3-27b-it": {"cache.prefix_cache_retention_interval": 64},
    "openai/gpt-oss-20b": {"scheduler.long_prefill_token_threshold": 500},
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": {},
    "ai21labs/Jamba-v0.1": RECURRENT,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": RECURRENT,
    "deepseek-ai/DeepSeek-V2-Lite": {},
}
POOLS = (0.3, 1.01, 1.3, 2.0, 3.0, 50.0)


def differences(model: str, folder: Path, num_requests: int, size: int, pools=POOLS) -> list[str]:
    """Serve a made trace both ways; return what differs, and say if the pools were of no use.

    size : tokens of a block of the trace; a request has at most 30 of them and its output
    """
    path = write_trace(made_rows(7, num_requests, size), folder / "made.jsonl")
    trace = MooncakeParams(path=path, block_size=size)
    limits = {"scheduler.max_model_len": 35 * size, "scheduler.max_num_batched_tokens": 2048}
    groups = model_groups(model, limits | MODELS[model])
    assert has_compiled_half(groups.manager(1))
    whole = list(request_batches(trace, groups.layout.hash_block_size))
    found, sums, num_refused = [], [], []
    for part in pools:
        num_blocks = groups.num_blocks(int(part * groups.layout.capacity.admission_bytes))
        compiled = CompiledServer(
            groups.manager(1), num_blocks, groups.limits, groups.align_block_size
        )
        plain = ManagerServer(
            lambda n=num_blocks: groups.manager(n), groups.limits, groups.align_block_size
        )
        own, theirs = serve(compiled, whole), serve(plain, whole)
        if own.tolist() != theirs.tolist():
            found.append(f"{model}, {num_blocks} blocks: {(own != theirs).nonzero()[0][:5]}")
        sums.append(int(own[own > 0].sum()))
        num_refused.append(int((own == NOT_SERVED).sum()))
    assert num_refused[0] > num_refused[-1] == 0
    assert sums[1] < sums[-1], "the pools must be small enough to evict"
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("model", MODELS)
def test_both_serve_the_same(model, tmp_path):
    assert differences(model, tmp_path, 70, 256) == []


def test_both_serve_the_same_where_the_loops_are_plain_python(tmp_path):
    """Nothing is compiled, so it takes no minute; and indices out of range would be seen."""
    code = (
        "import json, pathlib, sys\n"
        "from tests.curve.test_compiled_server import differences\n"
        "pools, folder = (0.3, 1.05, 20.0), pathlib.Path(sys.argv[1])\n"
        "print(json.dumps(differences('google/gemma-3-1b-it', folder, 25, 64, pools)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == []


def test_a_kind_without_a_compiled_half_is_served_by_the_manager():
    groups = model_groups("google/gemma-3-1b-it", {"engine.core": "python"})
    assert not groups.is_compiled
    assert isinstance(groups.server(2**30), ManagerServer)
    assert model_groups("google/gemma-3-1b-it", {"engine.core": "compiled"}).is_compiled
    with pytest.raises(ConfigError, match="core"):
        model_groups("google/gemma-3-1b-it", {"engine.core": "fast"})

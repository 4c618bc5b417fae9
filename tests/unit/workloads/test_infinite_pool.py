"""Hit tokens of public traces with a pool that never evicts, one request at a time.

One full-attention group. A request hits the leading run of known blocks among its first
(I - 1) // block (at least one prompt token is computed); afterwards the blocks of prompt and
output are known whose tokens are all computed: (I + O - 1) // block, since the last sampled token
is never computed. The expected numbers were given with the task; at 512 the conversation's equals
"at least one token computed" of the traces' own oracle report.
"""

from pathlib import Path

import numpy as np
import pytest

from sim.prefix_ids import PrefixIds
from workloads.mooncake import MooncakeParams, requests

TRACES = Path(__file__).parents[3] / ".." / "shared" / "traces"
CONVERSATION = "mooncake_conversation_trace.jsonl.gz"
SYNTHETIC = "mooncake_synthetic_trace.jsonl.gz"
FIRST_1000 = "dynamo_mooncake_trace_1000.jsonl"


def hit_tokens(trace: str, block: int, **params) -> int:
    path = TRACES / trace
    if not path.is_file():
        pytest.skip(f"{trace} is not there")
    prefix_ids = PrefixIds(block)
    known = np.zeros(1024, dtype=bool)
    hits = 0
    for _, spec in requests(MooncakeParams(path=path, **params)):
        ids = prefix_ids.of(spec)
        if len(prefix_ids) > len(known):
            known = np.concatenate([known, np.zeros(len(prefix_ids), dtype=bool)])
        num_input, num_output = spec.num_prompt_tokens, spec.num_output_tokens
        found = known[ids[: (num_input - 1) // block]]
        hits += len(found) if found.all() else int(found.argmin())
        known[ids[: (num_input + num_output - 1) // block]] = True
    return hits * block


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.traces
@pytest.mark.parametrize(
    ("trace", "block", "expected"),
    [
        slow(CONVERSATION, 16, 54_063_104),
        slow(CONVERSATION, 32, 54_063_104),
        slow(CONVERSATION, 64, 54_063_104),
        slow(CONVERSATION, 512, 54_063_104),
        (CONVERSATION, 80, 53_665_920),
        slow(CONVERSATION, 528, 48_683_184),
        slow(CONVERSATION, 544, 48_870_784),
        slow(CONVERSATION, 784, 48_382_208),
        slow(SYNTHETIC, 16, 39_802_880),
        slow(SYNTHETIC, 32, 39_802_880),
        slow(SYNTHETIC, 64, 39_802_880),
        slow(SYNTHETIC, 512, 39_802_880),
        slow(SYNTHETIC, 80, 39_750_320),
        (SYNTHETIC, 528, 39_283_728),
        (FIRST_1000, 16, 3_823_616),
        (FIRST_1000, 80, 3_785_280),
    ],
)
def test_hit_tokens_of_an_infinite_pool_are_the_known_ones(trace, block, expected):
    assert hit_tokens(trace, block) == expected


@pytest.mark.traces
@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("derived_lmcache_agent_miniswe_cl100k_blk16.jsonl.gz", 2_316_944),
        ("derived_lmcache_agent_magagent_cl100k_blk16.jsonl.gz", 1_247_040),
        ("derived_lmcache_agent_taubench_cl100k_blk16.jsonl.gz", 63_536),
        ("derived_llmservingsim_sharegpt-llama-3.1-8b-300-sps10_blk16.jsonl.gz", 19_520),
    ],
)
def test_hit_tokens_of_16_token_traces_equal_the_oracle_report(trace, expected):
    # traces/oracle.md, "at least one token computed": sum of 16 x min(m, floor((I - 1) / 16)).
    assert hit_tokens(trace, 16, block_size=16, skip_empty=True) == expected

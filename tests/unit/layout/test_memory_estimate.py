import pytest

from sim.errors import ConfigError
from sim.layout.memory_estimate import (
    GRAPH_BYTES,
    OTHER_BYTES,
    WEIGHT_BYTES,
    estimate_kv_memory,
    estimate_rows,
)
from tests.unit.layout.layouts import GIB

LLAMA = {"num_parameters": 8_030_261_248, "hidden_size": 4096}


def estimate(**changes):
    return estimate_kv_memory(**({"total_bytes": 80 * GIB} | LLAMA | changes))


def test_the_parts_are_what_they_say():
    parts = estimate()
    assert parts.requested == -(-80 * GIB * 92 // 100)  # ceil of 0.92
    assert parts.weights == 2 * 8_030_261_248
    assert parts.activations == 8192 * 16 * 4096 * 2  # 1 GiB
    whole = parts.weights + parts.activations + GRAPH_BYTES + OTHER_BYTES + parts.kv
    assert whole == parts.requested


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("fp32", 32), ("bf16", 16), ("fp8", 8), ("nvfp4", 4.5), ("mxfp4", 4.25), ("int4", 4.125)],
)
def test_weights_by_dtype(dtype, bits):
    assert estimate(num_parameters=16_000, weight_dtype=dtype).weights == 16_000 * bits / 8
    assert WEIGHT_BYTES[dtype] == bits / 8


def test_ranks_share_weights_and_activations():
    one, four = estimate(), estimate(num_ranks=4)
    assert (four.weights * 4, four.activations * 4) == (one.weights, one.activations)
    assert four.graphs == one.graphs


def test_activations_grow_with_the_batch():
    assert estimate(max_num_batched_tokens=16384).activations == 2 * estimate().activations


def test_nothing_left_is_an_error_with_the_parts():
    with pytest.raises(ConfigError) as caught:
        estimate(total_bytes=16 * GIB)
    text = str(caught.value)
    assert "14.72 GiB requested per rank, 14.96 GiB of weights and 2.12 GiB of allowances" in text


@pytest.mark.parametrize("share", [0, -1, 1.01])
def test_a_share_of_the_memory_is_needed(share):
    with pytest.raises(ConfigError, match="above 0, at most 1"):
        estimate(utilization=share)


def test_an_unknown_dtype_lists_the_known_ones():
    with pytest.raises(ConfigError, match="weight_dtype: bf61: known: bf16"):
        estimate(weight_dtype="bf61")


def test_the_rows_name_every_part():
    rows = estimate_rows(estimate())
    assert len(rows) == 7
    assert rows[-1][0] == "left for the KV cache"

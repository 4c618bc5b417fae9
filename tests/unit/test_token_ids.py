"""Token ids against PrefixIds, and against the same mix written in plain integers."""

import hashlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.prefix_ids import PrefixIds
from sim.request import Span
from sim.token_ids import token_ids

SPANS = st.lists(
    st.builds(Span, st.sampled_from("ab"), st.integers(0, 6), st.integers(0, 7)), max_size=7
)
MASK = 2**64 - 1


def slow(source: str, position: int) -> int:
    """SplitMix64 of its definition: state = seed + position * gamma, then the finaliser."""
    seed = int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest(), "big")
    z = (seed + position * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z >> 33


@given(spans=SPANS, bounds=st.tuples(st.integers(0, 49), st.integers(0, 49)))
def test_ids_are_the_written_out_mix_of_each_token(spans, bounds):
    expected = [slow(s.source, s.start + i) for s in spans for i in range(s.length)]
    assert token_ids(spans) == expected
    first, last = sorted(min(b, len(expected)) for b in bounds)
    assert token_ids(spans, first, last) == expected[first:last]


@given(left=SPANS, right=SPANS, size=st.integers(1, 5))
@settings(max_examples=300)
def test_prefixes_are_equal_exactly_when_their_tokens_are(left, right, size):
    names = PrefixIds(size)
    mine, other = names.of_spans(left).tolist(), names.of_spans(right).tolist()
    left_ids, right_ids = token_ids(left), token_ids(right)
    for block, (a, b) in enumerate(zip(mine, other, strict=False), 1):
        assert (a == b) == (left_ids[: block * size] == right_ids[: block * size])


def test_ids_fit_31_bits_and_rarely_meet():
    """Of 2**17 ids, expected pairs that agree: 2**34 / 2 / 2**31 = 4; above 20 would be a flaw."""
    ids = token_ids([Span("x", 0, 2**16), Span("y", 10**12, 2**16)])
    assert all(0 <= i < 2**31 for i in ids)
    assert len(ids) - len(set(ids)) <= 20


def test_ids_do_not_depend_on_the_hash_seed_of_the_process():
    code = "from sim.token_ids import token_ids; from sim.request import Span; "
    code += "print(token_ids([Span('t', 3, 4)]))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert outputs == {f"{token_ids([Span('t', 3, 4)])}\n"}


@pytest.mark.parametrize("bounds", [(-1, 2), (0, 6), (3, 2), (6, None)])
def test_a_range_outside_the_spans_is_refused(bounds):
    with pytest.raises(ValueError, match="of 5"):
        token_ids([Span("a", 0, 5)], *bounds)

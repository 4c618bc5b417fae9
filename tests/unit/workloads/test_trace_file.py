"""Lines of JSON: the fast reader against Python's own, and that no file sits in memory."""

import gzip
import json
import lzma
import tracemalloc
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.errors import TraceFormatError
from workloads.mooncake import MooncakeParams, _ns_per_unit, _rounded, count, requests
from workloads.trace_file import _checked_json_object, _json_object, rows

ROW = b'{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}'
LINES = rb"""
 {}
[{}]
{} {}
{"a": 1, "a": 2}
{"a": 1,}
{"a": [1,]}
{'a': 1}
{"a" 1}
{1: 2}
{"a": NaN}
{"a": -Infinity}
{"a": 1e400}
{"a": 01}
{"a": 1.}
{"a": .5}
{"a": +1}
{"a": -0}
{"a": -0.0}
{"a": 1E5}
{"a": 1.0}
{"a": 5e-324}
{"a": 18446744073709551616}
{"a": -9223372036854775809}
{"a": "\ud800"}
{"a": "\ude00\ud800"}
{"a": "\ud83d\ude00"}
{"a": "\x"}
{"a": "\/"}
{"\u0000": 1}
{"a": true, "b": nul}
""".split(b"\n")
ODD = [
    *LINES,
    *(b"{}\n", b"\x0c{}", b"{}\x0b", b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"a": ' * 100_000),
    *(b'{"a": "%c"}' % byte for byte in (0x01, 0x7F, 0xFF)),
    *(b'{"a": "\xc3\xa4"}', b'{"a": %s}' % (b"9" * 4300), b'{"a": %s}' % (b"9" * 4301)),
]


def outcome(read, content: bytes) -> str:
    """What is read, with types, or the error."""
    try:
        return repr(read(Path("trace"), 7, content))
    except TraceFormatError as error:
        return f"error: {error}"


@pytest.mark.parametrize("content", [ROW, *ODD], ids=lambda content: repr(content[:24]))
def test_the_fast_reader_says_what_pythons_own_says(content):
    assert outcome(_json_object, content) == outcome(_checked_json_object, content)


@settings(max_examples=300)
@given(data=st.data(), content=st.sampled_from([ROW, *ODD]))
def test_damaged_lines_are_read_alike_by_both(data, content):
    damaged = bytearray(content[:200])
    for _ in range(5):
        at = data.draw(st.integers(0, len(damaged)))
        until = at + data.draw(st.integers(0, 2))
        piece = st.sampled_from([*b'{}[]":,-+.eE0129 \\ud8nNI', 0xC3, 0x00])
        damaged[at:until] = data.draw(st.lists(piece, max_size=3))
        assert outcome(_json_object, bytes(damaged)) == outcome(
            _checked_json_object, bytes(damaged)
        )


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)


@settings(max_examples=300)
@given(
    value=NUMBERS.map(abs),
    time_unit=st.sampled_from(["s", "ms", "us", "ns"]),
    scale=st.floats(1e-3, 1e6) | st.sampled_from([0.2, 0.5, 1.0, 2.0, 3.0]),
)
def test_instants_are_those_of_exact_fractions(value, time_unit, scale):
    unit_ns = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[time_unit]
    units, per_ns = _ns_per_unit(time_unit, scale)
    numerator, denominator = value.as_integer_ratio()
    exact = round(Fraction(value) * unit_ns / Fraction(scale))
    assert _rounded(numerator * units, denominator * per_ns) == exact


def small_window(content: bytes) -> bytes:
    """The preset 6 of xz has a window of 8 MiB, which its reader keeps in memory."""
    return lzma.compress(content, preset=0)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, small_window])
@pytest.mark.parametrize("read", [lambda p: sum(1 for _ in requests(p)), count])
def test_a_trace_is_read_in_the_memory_of_a_few_lines(tmp_path, pack, read):
    """The trace has 2 MB."""
    line = {"timestamp": 1, "input_length": 81_920, "output_length": 9, "hash_ids": [10**6] * 160}
    path = tmp_path / "t"
    path.write_bytes(pack((json.dumps(line) + "\n").encode() * 1500))
    params = MooncakeParams(path=path)
    read(params)
    tracemalloc.start()
    try:
        assert read(params) == 1500
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400_000


@pytest.mark.traces
@pytest.mark.parametrize(
    "name", ["mooncake_conversation_trace.jsonl.gz", "rtpllm_trace_30min.jsonl.gz"]
)
def test_public_traces_are_read_alike_by_both(name):
    path = Path(__file__).parents[3] / ".." / "shared" / "traces" / name
    if not path.is_file():
        pytest.skip(f"{name} is not there")
    with gzip.open(path) as stream:
        for row, content in zip(rows(path), stream, strict=True):
            assert row.fields == _checked_json_object(path, row.line, content)

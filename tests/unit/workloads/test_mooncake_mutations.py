"""Damaged trace files: each gives requests or a TraceFormatError, nothing else, never a hang."""

import gzip
import itertools
import json
import lzma

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.errors import TraceFormatError
from workloads.mooncake import MooncakeParams, requests

ROWS = [
    {"timestamp": 0, "input_length": 9, "output_length": 3, "hash_ids": [0, 1, 2]},
    {"timestamp": 2.5, "input_length": 8, "output_length": 0, "hash_ids": [0, 1]},
    {"ts": 7, "il": 3, "ol": 1, "bh": ["5"], "session_id": "a"},
    {"timestamp": 7, "input_length": 4, "output_length": 1, "hash_ids": [3], "line": 8},
]
KEYS = sorted({key for row in ROWS for key in row})
SOURCE = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
PACKED = [SOURCE, gzip.compress(SOURCE, mtime=0), lzma.compress(SOURCE)]

ODD_VALUES = [
    *(None, True, False, -1, 0, 1, 2, 3, 4, 9, 2**31, 2**63, 10**400),
    *(0.0, -0.5, 4.0, 1e308, 5e-324, float("nan"), float("inf")),
    *("", "1", "x", "\ud800", "\u0663", [], {}, [[]], [None], [0, "1"], [0.0, 1], [True]),
    *([0, 1, 2], [-1, 10**30], {"a": [1]}),
]
JSON_VALUES = st.sampled_from(ODD_VALUES) | st.integers() | st.floats() | st.text(max_size=3)
SETTINGS = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def read(path, content: bytes) -> int | TraceFormatError:
    """Return the number of requests, or the error; anything else fails the test."""
    path.write_bytes(content)
    try:
        found = list(requests(MooncakeParams(path=path, block_size=4)))
    except TraceFormatError as error:
        assert str(error).startswith(str(path))
        assert len(str(error)) < len(str(path)) + 300
        return error
    assert found
    for before, after in itertools.pairwise(found):
        assert before[0] <= after[0]
    for at, spec in found:
        assert type(at) is int
        assert at >= 0
        assert spec.num_output_tokens >= 1
        assert all(span.length >= 1 for span in spec.prompt)
        assert spec.prompt
    return len(found)


@pytest.mark.parametrize("source", PACKED, ids=["plain", "gzip", "xz"])
def test_the_undamaged_file_is_read(tmp_path, source):
    assert read(tmp_path / "t", source) == len(ROWS)


@SETTINGS
@given(data=st.data(), source=st.sampled_from(PACKED))
def test_changed_dropped_and_added_bytes(tmp_path, data, source):
    # six damaged files an example, each with one damage more than the one before
    content = bytearray(source)
    for _ in range(6):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        until = at + data.draw(st.integers(0, 3))
        content[at:until] = data.draw(st.binary(max_size=3))
        read(tmp_path / "t", bytes(content))


@SETTINGS
@given(data=st.data())
def test_changed_values_and_keys(tmp_path, data):
    rows = [dict(row) for row in ROWS]
    for _ in range(6):
        row = data.draw(st.sampled_from(rows))
        key = data.draw(st.sampled_from(KEYS) | st.text(max_size=2))
        if data.draw(st.booleans()):
            row[key] = data.draw(JSON_VALUES)
        else:
            row.pop(key, None)
        read(tmp_path / "t", "\n".join(map(json.dumps, rows)).encode())


@SETTINGS
@given(
    lines=st.lists(
        st.sampled_from(SOURCE.splitlines()) | st.binary(max_size=6) | st.just(b"{}"), max_size=6
    )
)
def test_lines_in_another_order_repeated_dropped_or_of_something_else(tmp_path, lines):
    read(tmp_path / "t", b"\n".join(lines))


@pytest.mark.parametrize("source", PACKED[1:], ids=["gzip", "xz"])
def test_every_cut_of_a_compressed_file_is_an_error(tmp_path, source):
    for keep in range(len(source)):
        assert isinstance(read(tmp_path / "t", source[:keep]), TraceFormatError)


def test_a_cut_of_a_plain_file_is_an_error_unless_it_falls_between_lines(tmp_path):
    for keep in range(len(SOURCE)):
        head = SOURCE[:keep]
        between = head.strip().endswith(b"}")  # no object of the source holds another
        assert isinstance(read(tmp_path / "t", head), TraceFormatError) != between

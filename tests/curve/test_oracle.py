"""The tables of the public traces' oracle, cell by cell: hits, tokens and digests.

The oracle is a program independent of this project (traces/oracle.md, definitions A to D).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from sim.curve.hit_curve import HitCurve, leading_hits
from sim.curve.numbering import Numbering
from sim.curve.reading import listed_batches
from sim.curve.stack_distances import DEFINITIONS
from tests.curve.made_traces import write_trace
from tests.curve.slow_lru import slow_hits
from workloads.mooncake import MooncakeParams

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"
ORACLE = TRACES / "oracle.md"
PI = "dynamo_pi_request_trace.jsonl.gz"
INFINITE = 2**40

pytestmark = pytest.mark.traces


def sections() -> dict[str, str]:
    if not ORACLE.is_file():
        return {}
    parts = re.split(r"^### ", ORACLE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {part.splitlines()[0].strip(): part for part in parts}


SECTIONS = sections()


def tables(text: str) -> list[list[dict[str, str]]]:
    """Each table as rows by column: the trace's own lists first, then full blocks only."""
    found = []
    for lines in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = [
            [c.strip() for c in line.strip("|\n").split("|")] for line in lines.splitlines()
        ]
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def params(name: str, folder: Path) -> MooncakeParams:
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"the public trace {name} is not beside the checkout")
    if name == PI:
        path = write_trace(pi_rows(path), folder / "pi.jsonl")
    size = int(re.search(r"^block (\d+) tokens", SECTIONS[name], re.MULTILINE)[1])
    return MooncakeParams(path=path, block_size=size)


def pi_rows(path: Path) -> list[dict]:
    """Dynamo's recorded events, in order of arrival, in Mooncake's form."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        events = [json.loads(line)["event"] for line in lines]
    requests = [e["request"] for e in events if e["event_type"] == "request_end"]
    requests.sort(key=lambda r: r["request_received_ms"])
    return [
        {
            "timestamp": r["request_received_ms"],
            "input_length": r["input_tokens"],
            "output_length": r["output_tokens"],
            "hash_ids": r["replay"]["input_sequence_hashes"],
        }
        for r in requests
    ]


class Served:
    """A trace under one definition: its curve, and the hits of each request at any capacity."""

    def __init__(self, trace: MooncakeParams, definition: str, *, full_blocks: bool):
        numbering = Numbering()
        self.curve = HitCurve(DEFINITIONS[definition], trace.block_size)
        self.batches = [
            batch._replace(ids=numbering.of(batch.ids))
            for batch in listed_batches(trace, full_blocks=full_blocks)
        ]
        self.depths = [self.curve.add(batch) for batch in self.batches]

    def by_request(self, capacity: int) -> list[int]:
        pairs = zip(self.batches, self.depths, strict=True)
        return np.concatenate([leading_hits(b, d, capacity) for b, d in pairs]).tolist()

    def digest(self, capacity: int) -> str:
        text = ",".join(map(str, self.by_request(capacity)))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def capacity_of(row: dict[str, str]) -> int:
    return INFINITE if row["capacity"] == "infinite" else int(row["capacity"])


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("letter", ["B", "C"])
def test_every_cell_of_the_tables(name, letter, tmp_path):
    trace = params(name, tmp_path)
    definition = {"B": "root_first", "C": "leaf_first"}[letter]
    for full_blocks, table in enumerate(tables(SECTIONS[name])):
        served = Served(trace, definition, full_blocks=bool(full_blocks))
        for row in table:
            capacity = capacity_of(row)
            hits = row.get(f"{letter} hits") or row["A/B hits"]
            rate = row.get(f"{letter} rate") or row["A/B rate"]
            assert served.curve.hits([capacity]) == int(hits)
            assert f"{int(hits) / served.curve.totals.num_lookups:.6f}" == rate
            assert served.digest(capacity) == row[f"digest {letter}"]
            if letter == "B" and "B token hits" in row:
                assert served.curve.hit_tokens([capacity]) == int(row["B token hits"])


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_hits_per_access_and_the_totals(name, tmp_path):
    trace = params(name, tmp_path)
    served = Served(trace, "per_access", full_blocks=False)
    head = re.search(
        r"requests (\d+); block accesses (\d+); distinct blocks (\d+); longest request (\d+) "
        r"blocks; input tokens (\d+)",
        SECTIONS[name],
    )
    totals = served.curve.totals
    assert [int(number) for number in head.groups()] == [
        totals.num_requests,
        totals.num_lookups,
        served.curve.num_distinct,
        totals.longest_request,
        totals.num_prompt_tokens,
    ]
    for row in tables(SECTIONS[name])[0]:
        assert served.curve.hits([capacity_of(row)]) == int(row["A/B hits"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mooncake_conversation_trace.jsonl.gz", marks=pytest.mark.slow),
        "dynamo_mooncake_trace_1000.jsonl",
    ],
)
@pytest.mark.parametrize("definition", list(DEFINITIONS))
def test_fifteen_capacities_against_the_slow_lru(name, definition, tmp_path):
    trace = params(name, tmp_path)
    served = Served(trace, definition, full_blocks=False)
    requests = [
        batch.ids[a:b].tolist()
        for batch in served.batches
        for a, b in zip(batch.starts[:-1], batch.starts[1:], strict=True)
    ]
    lengths = list(map(len, requests))
    for capacity in np.geomspace(20, served.curve.num_distinct, 15).astype(int).tolist():
        assert served.by_request(capacity) == slow_hits(definition, requests, lengths, capacity)

"""A run that is longer than a row group: the same files, little memory, nothing left behind."""

import gc
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from sim.metrics import compute_metrics
from sim.records import Recorder
from sim.request import Request
from sim.results import RunResult
from sim.tables import FileTable
from tests.unit.latency.fakes import FULL, make_layout
from tests.unit.test_records import make_recorder, make_state
from tests.unit.test_results import FILES, assert_equal_results, contents, make_result

ROOT = Path(__file__).parents[3]


def long_recorder(num_requests, *, row_group_rows):
    """A recorder that saw requests overlap, eight steps each."""
    layout = make_layout((FULL, 1), (FULL, 1))
    layout.bytes_per_block, layout.waste = 512, {"kv_memory_bytes": 5200}
    recorder = Recorder(layout, waste_samples=4, row_group_rows=row_group_rows)
    rng, waiting = np.random.default_rng(5), []
    for number in range(num_requests):
        recorder.request_added(number * 10)
        waiting.append(some_request(number, rng))
        if len(waiting) == 20 or number == num_requests - 1:
            for idx in rng.permutation(len(waiting)).tolist():
                recorder.request_done(waiting[idx], "finished", None)
            waiting.clear()
        add_steps(recorder, rng, 8)
    return recorder


def some_request(number, rng):
    request = Request(f"r{number}", 50, 3, arrival_ns=number * 10, tags=("x",))
    request.num_tokens, request.num_cached_tokens = 53, 16
    times = np.cumsum(rng.integers(1, 100, 3)).tolist()
    request.first_scheduled_ns, request.first_token_ns, request.finish_ns = (
        number * 10 + time for time in times
    )
    return request


def add_steps(recorder, rng, num):
    first = recorder.num_steps
    rows = rng.integers(0, 50, (num, 12))
    rows[:, 0] = np.arange(first, first + num)
    rows[:, 1], rows[:, 2] = 10 * rows[:, 0], 10 * rows[:, 0] + 10
    while recorder.next_sample < first + num:
        step = recorder.next_sample
        recorder.waste_row(step, 10 * step, range(10))
    recorder.steps(rows)


def result_of(num_requests, row_group_rows):
    recorder = long_recorder(num_requests, row_group_rows=row_group_rows)
    return make_result(recorder.tables(make_state()[1]))


def test_a_spooled_run_writes_the_files_of_one_in_memory(tmp_path):
    spooled, whole = result_of(100, 16), result_of(100, 10**6)
    for table in (whole.tables.request_table, whole.tables.step_table):
        table.row_group_rows = 16
    assert isinstance(spooled.tables.request_table, FileTable)
    assert isinstance(spooled.tables.step_table, FileTable)
    assert_equal_results(spooled, whole)
    for name, result in {"spooled": spooled, "whole": whole}.items():
        assert result.save(tmp_path / name, figures=False) == FILES
    left, right = contents(tmp_path / "spooled"), contents(tmp_path / "whole")
    del left["provenance.json"], right["provenance.json"]
    assert left == right
    assert_equal_results(spooled, whole)  # read from the folder now


def test_a_long_result_loads_saves_and_replaces_itself(tmp_path, monkeypatch):
    result_of(100, 16).save(tmp_path / "run", figures=False)
    before = contents(tmp_path / "run")
    monkeypatch.setattr("sim.tables.parquet.ROW_GROUP_ROWS", 16)
    loaded = RunResult.load(tmp_path / "run")
    assert isinstance(loaded.tables.step_table, FileTable)
    make_result().save(tmp_path / "run", figures=False)  # another result takes the place
    loaded.save(tmp_path / "run", figures=False)
    assert contents(tmp_path / "run") == before


def test_figures_of_many_requests_show_every_kth(monkeypatch):
    monkeypatch.setattr("sim.results.FIGURE_REQUESTS", 30)
    drawn = result_of(100, 16).for_figures()
    assert drawn.requests["request_id"].tolist() == [f"r{n}" for n in range(0, 100, 4)]
    assert len(result_of(30, 16).for_figures().requests) == 30


def peak_bytes(num_requests):
    """Most bytes of Python and numpy at once, while rows come and while metrics are computed."""
    gc.collect()
    tracemalloc.start()
    recorder = long_recorder(num_requests, row_group_rows=256)
    recording = tracemalloc.get_traced_memory()[1]
    tables = recorder.tables(make_state()[1])
    tracemalloc.reset_peak()
    compute_metrics(tables)
    metrics = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return recording, metrics


def test_memory_does_not_grow_with_the_run(monkeypatch):
    monkeypatch.setattr("sim.metrics.metric._CHUNK", 256)
    peak_bytes(500)  # what is imported and remembered once
    short, long = peak_bytes(1000), peak_bytes(3000)
    assert long[0] < 1.3 * short[0]
    assert long[1] - short[1] < 2 * 8 * 2000  # a duration of each request is 8 bytes


@pytest.mark.parametrize("limit", [2, 3, 4, 7])
def test_samples_of_blocks_are_those_of_single_steps(limit):
    scheduler, manager = make_state()
    work = type("Work", (), {"num_prefill_tokens": 0, "num_decode_tokens": 1})
    for num_steps in range(1, 60):
        single, blocks = make_recorder(waste_samples=limit), make_recorder(waste_samples=limit)
        for step in range(num_steps):
            single.step(10 * step, 10 * step + 10, work, scheduler, manager, 0)
        rng = np.random.default_rng(num_steps)
        while blocks.num_steps < num_steps:
            add_steps(blocks, rng, min(int(rng.integers(1, 7)), num_steps - blocks.num_steps))
        samples = [recorder.tables(manager).waste["step"].tolist() for recorder in (single, blocks)]
        assert samples[0] == samples[1]
        assert single.next_sample == blocks.next_sample


ENDINGS = """
import os, signal, sys
from tests.unit.tables.test_long_runs import long_recorder, make_state

# A process that was started in the background is born deaf to it.
signal.signal(signal.SIGINT, signal.default_int_handler)
recorder = long_recorder(200, row_group_rows=16)
if sys.argv[1] == "table":
    tables = recorder.tables(make_state()[1])
if sys.argv[2] == "end":
    sys.exit()
os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["recorder", "table"])
@pytest.mark.parametrize("ending", ["end", "SIGINT", "SIGTERM", "SIGKILL"])
def test_no_ending_leaves_a_file(tmp_path, moment, ending):
    command = [sys.executable, "-c", ENDINGS, moment, ending]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    expected = {"end": 0, "SIGINT": -signal.SIGINT}.get(ending)
    assert done.returncode == (-getattr(signal, ending) if expected is None else expected)
    assert "Exception ignored" not in done.stderr
    assert list(tmp_path.iterdir()) == []

"""Tables in memory and in files: one content, one set of bytes."""

import gc
import os

import numpy as np
import pandas as pd
import pytest

from sim.errors import ConfigError, InvariantError
from sim.tables import (
    ROW_GROUP_ROWS,
    FileTable,
    IntegerRows,
    MemoryTable,
    RequestRows,
    open_table,
    write_parquet,
)

COLUMNS = ("x", "y", "z")


def some_rows(num_rows):
    return np.random.default_rng(num_rows).integers(-(10**12), 10**12, (num_rows, len(COLUMNS)))


def grown(rows, row_group_rows, block):
    table = IntegerRows(COLUMNS, row_group_rows)
    for start in range(0, len(rows), block):
        table.append_block(rows[start : start + block])
    return table.finish()


def in_memory(rows, row_group_rows):
    whole = grown(rows, ROW_GROUP_ROWS, block=1000)
    assert isinstance(whole, MemoryTable)
    whole.row_group_rows = row_group_rows
    return whole


@pytest.mark.parametrize("num_rows", [0, 1, 7, 8, 9, 16, 100])
@pytest.mark.parametrize("block", [1, 5, 64])
def test_a_spooled_table_has_the_bytes_of_one_in_memory(tmp_path, num_rows, block):
    rows = some_rows(num_rows)
    spooled, whole = grown(rows, 8, block), in_memory(rows, 8)
    assert isinstance(spooled, FileTable if num_rows >= 8 else MemoryTable)
    spooled.write(tmp_path / "a")
    whole.write(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    pd.testing.assert_frame_equal(spooled.frame(), whole.frame())
    assert spooled.num_rows == num_rows


def test_rows_one_by_one_are_the_rows_of_a_block():
    rows = some_rows(50)
    table = IntegerRows(COLUMNS, 8)
    for row in rows.tolist():
        table.append(tuple(row))
    pd.testing.assert_frame_equal(table.finish().frame(), grown(rows, 8, block=50).frame())


def test_the_block_of_a_caller_is_copied_and_checked():
    table, rows = IntegerRows(COLUMNS), some_rows(3)
    table.append_block(rows)
    table.append_block(rows[:0])
    table.append_block(rows[:, ::-1].astype(np.int32).T.copy().T)  # neither int64 nor in C's order
    expected = [*rows.tolist(), *rows[:, ::-1].astype(np.int32).tolist()]
    rows[:] = 0
    assert table.finish().frame().to_numpy().tolist() == expected
    with pytest.raises(ValueError, match=r"rows of shape \(3, 2\), must be \(n, 3\)"):
        table.append_block(rows[:, :2])


def test_nothing_follows_a_spooled_table_that_is_finished():
    table = IntegerRows(COLUMNS, 8)
    table.append_block(some_rows(20))
    assert table.finish() is table.finish()
    with pytest.raises(InvariantError, match="finished"):
        table.append_block(some_rows(8))


def test_a_file_of_many_rows_is_read_when_asked_for(tmp_path, monkeypatch):
    rows = some_rows(20)
    grown(rows, 8, block=20).write(tmp_path / "t")
    small = open_table(tmp_path / "t", {})
    monkeypatch.setattr("sim.tables.parquet.ROW_GROUP_ROWS", 19)
    large = open_table(tmp_path / "t", {})
    assert (type(small), type(large)) == (MemoryTable, FileTable)
    (tmp_path / "t").unlink()  # the open file is still there
    assert large.frame().to_numpy().tolist() == rows.tolist()
    assert [len(part) for part in large.rows(["y"])] == [8, 8, 4]


def test_a_table_reads_from_where_it_was_saved_and_gives_up_the_temporary_file(tmp_path):
    gc.collect()
    before = num_open_files()
    table = grown(some_rows(20), 8, block=20)
    for name in "abc":
        table.write(tmp_path / name)
        assert num_open_files() == before + 1
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1
    del table
    gc.collect()
    assert num_open_files() == before


def num_open_files():
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


def test_a_table_that_is_dropped_before_its_end_closes_its_file():
    gc.collect()
    before = num_open_files()
    table, requests = IntegerRows(COLUMNS, 8), RequestRows(2)
    table.append_block(some_rows(20))
    for arrival in range(9):
        requests.added(arrival)
        requests.ended((arrival, *[0] * 7), ("a", None, None, "finished", None))
    assert num_open_files() == before + 2
    del table, requests
    gc.collect()
    assert num_open_files() == before


def test_a_full_disk_is_an_error_that_names_the_folder(monkeypatch):
    table = IntegerRows(COLUMNS, 8)
    table.append_block(some_rows(9))

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(table._spool._writer), "write_table", full)
    with pytest.raises(ConfigError, match=r"TMPDIR: .*No space left on device"):
        table.append_block(some_rows(9))


@pytest.mark.parametrize("stride", [1, 3, 8, 11, 50])
def test_every_kth_row_across_row_groups(stride):
    rows = some_rows(40)
    thinned = grown(rows, 8, block=40).every(stride)
    assert thinned.frame().to_numpy().tolist() == rows[::stride].tolist()
    assert len(grown(rows[:0], 8, block=1).every(stride).frame()) == 0


def test_columns_that_differ_are_named_whatever_the_row_groups():
    rows = some_rows(40)
    changed = rows.copy()
    changed[17, 1] += 1
    left, right = grown(rows, 8, block=40), grown(changed, 11, block=40)
    assert left.differing_columns(right) == ["y"]
    assert left.differing_columns(in_memory(rows, 7)) == []


def test_rows_that_hold_a_text():
    names = ["ok", "bad", None, "ok", "bad"]
    frame = pd.DataFrame(
        {"n": pd.array(range(5), dtype="int64"), "t": pd.array(names, dtype="string")}
    )
    table = MemoryTable.of(frame)
    assert table.that("t", "bad", ["n"]).to_dict("list") == {"n": [1, 4]}
    assert len(table.that("t", "none", ["n", "t"])) == 0
    assert table.counts("t") == {"ok": 2, "bad": 2, None: 1}
    assert len(MemoryTable.of(frame[:0]).that("t", "bad", ["n"])) == 0


def test_a_frame_of_a_table_may_be_changed(tmp_path):
    frame = in_memory(some_rows(3), 8).frame()
    frame.loc[0, "x"] = 5
    write_parquet(frame, tmp_path / "t")
    assert open_table(tmp_path / "t", {}).frame()["x"][0] == 5


def test_frames_come_in_row_groups_and_an_empty_table_has_one():
    assert [len(frame) for frame in grown(some_rows(20), 8, block=20).frames()] == [8, 8, 4]
    (frame,) = grown(some_rows(0), 8, block=1).frames()
    assert list(frame.columns) == list(COLUMNS)

"""Tables that are read a row group at a time: exported, compared."""

import pytest

from sim.cli.export import export_csv
from sim.results import RunResult
from sim.verification import differences
from tests.unit.tables.test_long_runs import result_of


@pytest.fixture(name="folder")
def folder_fixture(tmp_path):
    result_of(100, 16).save(tmp_path / "run", figures=False)
    return tmp_path / "run"


def test_a_long_table_is_exported_as_one_in_memory_would_be(folder, tmp_path, monkeypatch):
    whole = RunResult.load(folder)
    monkeypatch.setattr("sim.tables.parquet.ROW_GROUP_ROWS", 16)
    files = export_csv(folder, tmp_path / "csv")
    assert [path.name for path in files] == ["requests.csv", "steps.csv", "waste.csv"]
    for path, frame in zip(files, [whole.requests, whole.steps, whole.waste], strict=True):
        assert path.read_text() == frame.to_csv(index=False, lineterminator="\n")


def test_a_long_result_is_compared_row_group_by_row_group(folder, monkeypatch):
    monkeypatch.setattr("sim.tables.parquet.ROW_GROUP_ROWS", 16)
    stored = RunResult.load(folder)
    assert differences(stored, result_of(100, 16)) == []
    assert differences(stored, result_of(100, 23)) == []
    assert differences(stored, result_of(99, 16))[:2] == [
        "requests: 100 rows, now 99",
        "steps: 800 rows, now 792",
    ]

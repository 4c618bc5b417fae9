"""The reorder buffer against sorted(): order, what stays in memory, what is refused."""

import random
from dataclasses import dataclass, field

import pytest

from sim.errors import InvariantError
from sim.tables import RequestRows
from sim.tables.request_rows import INTEGER_COLUMNS, TEXT_COLUMNS


def row(name, arrival):
    return (arrival, *range(len(INTEGER_COLUMNS) - 1)), (name, *[None] * (len(TEXT_COLUMNS) - 1))


@dataclass
class World:
    """Requests that arrive and end at random; most end soon, some much later."""

    seed: int
    row_group_rows: int
    ended: list = field(default_factory=list)  # (arrival, name), as they ended
    live: list = field(default_factory=list)
    most_in_memory: int = 0

    def run(self, num_requests, longest_life):
        rng, now = random.Random(self.seed), 0
        rows = RequestRows(self.row_group_rows)
        for number in range(num_requests):
            now += rng.choice([0, 0, 1, 5])
            rows.added(now)
            self.live.append((number + rng.expovariate(3 / longest_life), now, f"r{number}"))
            self.end_those_before(number, rows)
        self.end_those_before(float("inf"), rows)
        return rows.finish()

    def end_those_before(self, moment, rows):
        for entry in sorted(e for e in self.live if e[0] <= moment):
            self.live.remove(entry)
            self.ended.append(entry[1:])
            rows.ended(*row(entry[2], entry[1]))
            self.most_in_memory = max(self.most_in_memory, len(rows))


@pytest.mark.parametrize("row_group_rows", [1, 3, 16, 10_000])
@pytest.mark.parametrize("seed", range(2))
def test_rows_are_sorted_by_arrival_and_then_by_end(seed, row_group_rows):
    world = World(seed, row_group_rows)
    frame = world.run(num_requests=400, longest_life=40).frame()
    expected = sorted(world.ended, key=lambda entry: entry[0])
    assert list(zip(frame["arrival_ns"], frame["request_id"], strict=True)) == expected


def test_memory_holds_no_more_than_the_unfinished_and_two_row_groups():
    world = World(seed=1, row_group_rows=16)
    world.run(num_requests=3000, longest_life=10)
    assert world.most_in_memory < 100


def test_an_old_request_holds_back_those_that_came_after_it():
    rows = RequestRows(row_group_rows=4)
    rows.added(0)
    for arrival in range(1, 20):
        rows.added(arrival)
        rows.ended(*row(f"r{arrival}", arrival))
    assert len(rows) == 19
    rows.ended(*row("old", 0))
    frame = rows.finish().frame()
    assert frame["request_id"].tolist() == ["old", *(f"r{n}" for n in range(1, 20))]


def test_requests_of_one_instant_do_not_hold_back_each_other():
    rows = RequestRows(row_group_rows=2)
    for _ in range(9):
        rows.added(7)
    for name in "hgfedcb":
        rows.ended(*row(name, 7))
    assert len(rows) < 3
    rows.added(7)  # as one is resubmitted at the instant at which it was aborted
    for name in "aZY":
        rows.ended(*row(name, 7))
    assert rows.finish().frame()["request_id"].tolist() == list("hgfedcbaZY")


def test_without_arrivals_every_row_waits_for_the_end():
    rows = RequestRows(row_group_rows=2)
    for name, arrival in [("c", 5), ("a", 9), ("b", 5), ("d", 1)]:
        rows.ended(*row(name, arrival))
    assert len(rows) == 4
    assert rows.finish().frame()["request_id"].tolist() == ["d", "c", "b", "a"]


def test_the_end_of_a_request_that_never_came_is_a_broken_invariant():
    rows = RequestRows()
    rows.added(3)
    rows.ended(*row("a", 3))
    with pytest.raises(InvariantError, match="no such arrival"):
        rows.ended(*row("b", 3))


def test_arrivals_out_of_order_are_found_when_rows_are_written():
    rows = RequestRows(row_group_rows=1)
    rows.added(9)
    rows.ended(*row("a", 9))
    rows.added(3)
    with pytest.raises(InvariantError, match="a request of 3 ns follows one of 9 ns"):
        rows.ended(*row("b", 3))


def test_moments_that_never_came_are_missing():
    rows = RequestRows()
    rows.ended((0, -1, -1, 4, 5, 6, -1, 7), ("a", None, "x,y", "aborted", None))
    (record,) = rows.finish().frame().to_dict("records")
    known = {name: value for name, value in record.items() if value == value and value is not None}
    assert {str(value) for value in known.values() if str(value) != "<NA>"} == {
        "a", "x,y", "0", "4", "5", "6", "7", "aborted",
    }  # fmt: skip

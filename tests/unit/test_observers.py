"""Several observers behind one."""

from __future__ import annotations

from sim.observer import NULL_OBSERVER, Observer
from sim.observers import together


class Notes(Observer):
    def __init__(self, notes, name):
        self.notes, self.name = notes, name

    def freed(self, block_ids):
        self.notes.append((self.name, "freed", list(block_ids)))


class Clearings(Observer):
    def __init__(self, notes):
        self.notes = notes
        self.cleared = lambda: notes.append("cleared")


def test_each_is_told_in_order_what_it_listens_to():
    notes: list = []
    both = together([Notes(notes, "a"), NULL_OBSERVER, Clearings(notes), Notes(notes, "b")])
    both.freed([1, 2])
    both.cleared()
    both.allocated([3], 0)
    assert notes == [("a", "freed", [1, 2]), ("b", "freed", [1, 2]), "cleared"]


def test_one_stands_for_itself_and_none_for_the_null_observer():
    alone = Notes([], "a")
    assert together([NULL_OBSERVER, alone]) is alone
    assert together([]) is together([NULL_OBSERVER]) is NULL_OBSERVER

"""Plays one world on both engines, call by call, and stops at the first difference."""

from __future__ import annotations

from tests.compiled.compiled_manager import CompiledManager
from tests.compiled.compiled_scheduler import CompiledScheduler
from tests.compiled.python_sides import (
    MANAGER_FIELDS,
    SCHEDULER_FIELDS,
    PythonManager,
    PythonScheduler,
)
from tests.differential import ours
from tests.differential.compare import Difference, check, is_error
from tests.differential.manager_play import ManagerPlay, Record
from tests.differential.play import Refused
from tests.differential.scheduler_play import SchedulerPlay
from tests.differential.world import Content, World

SIDES = {
    "manager": (ManagerPlay, CompiledManager, PythonManager, MANAGER_FIELDS),
    "scheduler": (SchedulerPlay, CompiledScheduler, PythonScheduler, SCHEDULER_FIELDS),
}
NAMES = ("compiled", "python")


def compare(world: World) -> list[Record]:
    """Return the Python engine's records of all calls; raise the first Difference.

    Where that one stops with an error, the compiled engine, which checks less, is asked no more.
    An error of the compiled side alone is a difference, so it is not caught.
    """
    play, compiled_side, python_side, fields = SIDES[world.level]
    content = Content(world)
    try:
        python = play(world, content, python_side(world, content), ours.ERRORS)
    except ours.ERRORS as error:
        return list(Refused(error).records())
    compiled = play(world, content, compiled_side(world, content), ()).records()
    records: list[Record] = []
    for number, other in enumerate(python.records()):
        records.append(other)
        if is_error(other):
            return records
        mine = next(compiled, None)
        if mine != other:
            _raise(number, mine, other, fields)
    if (more := next(compiled, None)) is not None:
        _raise(len(records), more, None, fields)
    return records


def _raise(number: int, mine: Record | None, other: Record | None, names: tuple) -> None:
    try:
        check(number, mine, other, names)
    except Difference as difference:
        difference.sides = NAMES
        raise
    raise AssertionError(f"call {number}: {mine} and {other} differ, but not in {names}")

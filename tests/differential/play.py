"""A world and a side, ready to be played. vLLM is imported only where its side is asked for."""

from __future__ import annotations

from collections.abc import Iterator

from tests.differential import ours
from tests.differential.manager_play import ManagerPlay, Record
from tests.differential.our_scheduler import OurScheduler
from tests.differential.scheduler_play import SchedulerPlay
from tests.differential.world import Content, World

Play = ManagerPlay | SchedulerPlay


class Refused:
    """Takes the place of a world that could not even be built: one record, an error."""

    def __init__(self, error: Exception):
        self.error = error

    def records(self) -> Iterator[Record]:
        yield Record(("build",), ("error", type(self.error).__name__, str(self.error)), None)


def our_play(world: World, fixes: frozenset[str] = frozenset()) -> Play | Refused:
    """Return the world on our side, with these defects of the reference mended."""
    content = Content(world)
    try:
        if world.level == "scheduler":
            scheduler = OurScheduler(world, content, fixes)
            return SchedulerPlay(world, content, scheduler, ours.ERRORS)
        return ManagerPlay(world, content, ours.OurManager(world, content, fixes), ours.ERRORS)
    except ours.ERRORS as error:
        return Refused(error)


def their_play(world: World) -> Play | Refused:
    """Return the world on vLLM's side."""
    from tests.differential import theirs
    from tests.differential.their_scheduler import TheirScheduler

    content = Content(world)
    try:
        if world.level == "scheduler":
            scheduler = TheirScheduler(world, content)
            return SchedulerPlay(world, content, scheduler, theirs.ERRORS)
        manager = theirs.TheirManager(world, content)
        return ManagerPlay(world, content, manager, theirs.ERRORS)
    except theirs.ERRORS as error:
        return Refused(error)

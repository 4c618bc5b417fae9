"""How far a run is: what ``simulate`` reports, and the bar that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from sim.units import NS_PER_S


class Progress(Protocol):
    """Told from time to time how far a run is; returns nothing and changes nothing."""

    def update(self, done: int, total: int | None, now_ns: int) -> None:
        """Take the number of requests that ended, of all (None: unknown), and simulated time."""


class NullProgress:
    """Shows nothing."""

    def update(self, done: int, total: int | None, now_ns: int) -> None:
        """Do nothing."""


class Bar:
    """A line on the terminal: requests done, simulated time, simulated seconds per second.

    ``update`` only stores its arguments; the display's own thread draws ten times a second, so a
    simulation may report every step.
    """

    def __init__(self, display: Any):
        self._display = display
        self._task_id = display.add_task("requests", total=None, now_s=0.0)
        self._task = display.tasks[-1]

    def update(self, done: int, total: int | None, now_ns: int) -> None:
        """Take over the numbers for the next drawing."""
        self._task.completed = done
        self._task.total = total
        self._task.fields["now_s"] = now_ns / NS_PER_S


@contextmanager
def progress_on(console: Any) -> Iterator[Progress]:
    """Give a bar while the block runs if ``console`` (rich) is a terminal, else a null progress."""
    if not console.is_terminal:
        yield NullProgress()
        return
    with _display(console) as display:
        yield Bar(display)


def _display(console: Any) -> Any:
    from rich.progress import BarColumn, ProgressColumn
    from rich.progress import Progress as Display
    from rich.text import Text

    class Numbers(ProgressColumn):
        """The three numbers of a run."""

        def render(self, task: Any) -> Text:
            now_s, wall_s = task.fields["now_s"], task.elapsed
            text = numbers(task.completed, task.total, now_s, wall_s)
            return Text(text, no_wrap=True, overflow="crop")

    return Display(BarColumn(bar_width=12), Numbers(), console=console, transient=True)


def numbers(done: float, total: float | None, now_s: float, wall_s: float | None) -> str:
    """Return the text beside the bar.

    >>> numbers(120, 12031, 35.4, 0.5)
    '120/12,031 requests  35.4 s simulated  71 x real time'
    """
    of = f"/{total:,.0f}" if total is not None else ""
    speed = f"{now_s / wall_s:,.0f} x real time" if wall_s else "starting"
    return f"{done:,.0f}{of} requests  {now_s:,.1f} s simulated  {speed}"

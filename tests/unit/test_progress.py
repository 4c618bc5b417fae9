"""The bar: only on a terminal, with the last numbers it was told."""

from __future__ import annotations

import io

from rich.console import Console

from sim.progress import NullProgress, numbers, progress_on


def test_numbers_are_requests_time_and_speed() -> None:
    # 35.4 simulated seconds in half a second: 70.8 times as fast
    shown = numbers(120, 12031, 35.4, 0.5)
    assert shown == "120/12,031 requests  35.4 s simulated  71 x real time"
    assert len(numbers(12031, 12031, 3537.0, 0.5)) + 14 < 80


def test_unknown_total_and_a_start_without_wall_time_are_told() -> None:
    assert numbers(0, None, 0.0, 0.0) == "0 requests  0.0 s simulated  starting"
    assert numbers(0, None, 0.0, None) == "0 requests  0.0 s simulated  starting"


def test_without_a_terminal_nothing_is_shown() -> None:
    stream = io.StringIO()
    with progress_on(Console(file=stream)) as progress:
        assert isinstance(progress, NullProgress)
        progress.update(1, 2, 3)
    assert stream.getvalue() == ""


def test_bar_on_a_terminal_shows_the_last_numbers_and_is_cleared() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with progress_on(console) as progress:
        progress.update(7, 20, 1_500_000_000)
        progress.update(8, 20, 2_500_000_000)
    assert "8/20 requests  2.5 s simulated" in stream.getvalue()
    assert stream.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))

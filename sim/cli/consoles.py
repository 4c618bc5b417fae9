"""The two streams: what was asked for goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

PLAIN_WIDTH = 160


def console(stderr: bool = False) -> Any:
    """Return a rich console; one that is no terminal is 160 columns wide and has no colours."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False)


def show(renderables: Iterable[Any]) -> None:
    """Print for people, on stdout, without blanks at the ends of lines.

    Text is not wrapped: log lines stay what they are.
    """
    from rich.text import Text

    out = console()
    with out.capture() as printed:
        for renderable in renderables:
            out.print(renderable, soft_wrap=isinstance(renderable, Text))
    show_text("".join(f"{line.rstrip(' ')}\n" for line in printed.get().splitlines()))


def show_json(data: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def show_text(text: str) -> None:
    """Print text on stdout as it is."""
    sys.stdout.write(text)


def note(text: str) -> None:
    """Print one line for people on stderr."""
    sys.stderr.write(f"kvsim: {text}\n")

"""The ``kvsim`` command. Thin: every command is a function of the library first.

Nothing is imported here: ``main`` must be there at once, so that Ctrl-C is never a traceback.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Interrupted", "main"]

EXIT_INTERRUPTED = 130


class Interrupted(Exception):
    """Ctrl-C after something was written; the text says what."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code.

    0: done. 1: a run ended stuck, or a check failed. 2: wrong input, one line per problem on
    stderr. 130: interrupted, and one line on stderr says what was written. 141: the reader of
    stdout went away.
    """
    try:
        from sim.cli.program import run_program

        return run_program(arguments)
    except KeyboardInterrupt:
        return _interrupted("nothing written")
    except Interrupted as interrupt:
        return _interrupted(str(interrupt))


def _interrupted(text: str) -> int:
    sys.stderr.write(f"kvsim: interrupted, {text}\n")
    return EXIT_INTERRUPTED

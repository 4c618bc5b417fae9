"""The ``kvsim`` command. Thin: every command is a function of the library first."""

from sim.cli.program import main

__all__ = ["main"]

"""Several observers of one run behind one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sim.observer import NULL_OBSERVER, Observer

_VERBS = [name for name in vars(Observer) if not name.startswith("_")]


def together(observers: Sequence[Observer]) -> Observer:
    """Return an observer that tells all of these, in their order; null observers are left out."""
    real = [observer for observer in observers if observer is not NULL_OBSERVER]
    if not real:
        return NULL_OBSERVER
    return real[0] if len(real) == 1 else _Several(real)


class _Several(Observer):
    """Passes each verb on to those observers that do something with it."""

    def __init__(self, observers: Sequence[Observer]):
        for verb in _VERBS:
            listening = [getattr(o, verb) for o in observers if _listens(o, verb)]
            if listening:
                setattr(self, verb, _teller(listening))


def _listens(observer: Observer, verb: str) -> bool:
    own = verb in getattr(observer, "__dict__", {})
    return own or getattr(type(observer), verb) is not getattr(Observer, verb)


def _teller(listening: Sequence[Callable[..., None]]) -> Callable[..., None]:
    if len(listening) == 1:
        return listening[0]

    def tell(*arguments: Any) -> None:
        for listen in listening:
            listen(*arguments)

    return tell

"""Request generators and trace readers, as SimPy processes. Of ``sim`` they know ``sim.request``.

A workload is one module with a parameter model and three functions, and one line in ``WORKLOADS``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import mooncake, multi_turn, round_robin, shared_prefix
from .errors import TraceFormatError
from .params import Params
from .streams import Streams


@dataclass(frozen=True)
class Workload:
    """One entry of the table.

    name, summary : for people
    params : pydantic model class of the parameters, with defaults where there can be any
    process : ``process(env, submit, streams, params)``, a SimPy generator that submits requests.
        What it submits depends on ``streams`` and ``params`` only, never on when the engine is
        done with anything; when it submits may.
    files : the files that the requests depend on, for provenance
    count : expected number of requests, None if unknown. May read ``files`` and find what is
        wrong with them (``TraceFormatError``), before a run starts.
    """

    name: str
    summary: str
    params: type[Params]
    process: Callable[..., Generator[Any, Any, None]]
    files: Callable[[Any], tuple[Path, ...]]
    count: Callable[[Any], int | None]


def _workload(name: str, summary: str, params: type[Params], module: Any) -> Workload:
    return Workload(name, summary, params, module.process, module.files, module.count)


WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        _workload(
            "multi_turn",
            "sessions that grow: a later turn contains the earlier output and can hit it",
            multi_turn.MultiTurnParams,
            multi_turn,
        ),
        _workload(
            "shared_prefix",
            "tenants with system prompts of their own, Zipf popularity",
            shared_prefix.SharedPrefixParams,
            shared_prefix,
        ),
        _workload(
            "round_robin",
            "conversations sent again and again in turn, one at a time: what a cache can hold",
            round_robin.RoundRobinParams,
            round_robin,
        ),
        _workload(
            "mooncake",
            "a request trace in Mooncake's JSONL form (plain, gzip, xz)",
            mooncake.MooncakeParams,
            mooncake,
        ),
    )
}

__all__ = ["WORKLOADS", "Streams", "TraceFormatError", "Workload"]

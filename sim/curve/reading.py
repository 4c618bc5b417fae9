"""Requests of a trace file: the blocks that it lists, or those of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config import validated
from sim.curve.blocks import Batch, Requests, batches
from sim.errors import TraceError
from sim.prefix_ids import PrefixIds
from workloads import TraceFormatError, mooncake
from workloads.listed_ids import listed_ids

if TYPE_CHECKING:
    from workloads.mooncake import MooncakeParams

Ticker = Callable[[int], None]
"""Told the number of requests read so far."""


def trace_params(path: Path, given: Mapping[str, Any]) -> MooncakeParams:
    """Return what says how a trace is read; given : fields of ``MooncakeParams`` by name.

    Raises ConfigError for a file that is not there, with the nearest one, and for wrong values.
    """
    if not path.exists():
        from sim.scenario_file import missing_file

        raise missing_file("TRACE", path)
    data = {"path": str(path), **given}
    own: Any = mooncake.MooncakeParams
    params: MooncakeParams = validated(own, data, "workload.params")
    return params


def listed_batches(
    params: MooncakeParams, *, full_blocks: bool = False, tick: Ticker | None = None
) -> Iterator[Batch]:
    """Yield the blocks as the trace lists them, with the trace's own ids.

    full_blocks : leave out a listed last block that is not full
    """
    with _as_trace_errors():
        for columns in batches(_ticked(_listed_rows(params, full_blocks), tick)):
            yield Batch(*columns)


def _listed_rows(
    params: MooncakeParams, full_blocks: bool
) -> Iterator[tuple[Sequence[int], int, int]]:
    size = params.block_size
    for line in listed_ids(params):
        ids = line.ids[: line.num_prompt_tokens // size] if full_blocks else line.ids
        yield ids, len(ids), line.num_prompt_tokens


def request_batches(
    params: MooncakeParams, hash_block_size: int, *, tick: Ticker | None = None
) -> Iterator[Requests]:
    """Yield the requests as an engine gets them, prefixes named every ``hash_block_size`` tokens.

    Identities are dense and never forgotten: 1 node for each piece of text, 16 bytes for a run of
    blocks (``PrefixIds``).
    """
    names = PrefixIds(hash_block_size)
    rows = (
        (names.of(spec), spec.num_prompt_tokens, spec.num_output_tokens)
        for _, spec in mooncake.requests(params)
    )
    with _as_trace_errors():
        for columns in batches(_ticked(rows, tick)):
            yield Requests(*columns)


def _ticked(
    rows: Iterable[tuple[Sequence[int], int, int]], tick: Ticker | None
) -> Iterator[tuple[Sequence[int], int, int]]:
    for number, row in enumerate(rows, 1):
        yield row
        if tick is not None:
            tick(number)


@contextmanager
def _as_trace_errors() -> Iterator[None]:
    try:
        yield
    except TraceFormatError as error:
        raise TraceError.one(error.key, error.value, error.allowed) from None

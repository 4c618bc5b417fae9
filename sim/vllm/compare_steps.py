"""What a step decided, on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.core.manager_protocol import Rows
from sim.request import Request, RequestStatus
from sim.scheduler.output import SchedulerOutput
from sim.vllm.difference import Difference, first_of, of_mappings, of_sequences

_REASONS = {
    RequestStatus.FINISHED_STOPPED: "stop",
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
}


def of_outputs(ours: SchedulerOutput, theirs: Any) -> Difference | None:
    """Compare two ``SchedulerOutput``: requests in order, tokens, blocks, drafts, who left."""
    return first_of(_of_outputs(ours, theirs))


def _of_outputs(ours: SchedulerOutput, theirs: Any) -> Iterator[Difference | None]:
    mine, other = ours.num_scheduled_tokens, theirs.num_scheduled_tokens
    yield of_sequences("scheduled requests", list(mine), list(other))
    yield of_mappings("scheduled tokens", mine, other, _at_request("scheduled tokens"))
    yield of_mappings("computed tokens", _our_computed(ours), _their_computed(theirs))
    yield _of_sets("admitted", {r.request_id for r in ours.admitted}, _new_ids(theirs))
    resumed = set(theirs.scheduled_cached_reqs.resumed_req_ids)
    yield _of_sets("resumed", {r.request_id for r in ours.resumed}, resumed)
    yield _of_sets("preempted", set(ours.preempted_req_ids), theirs.preempted_req_ids or set())
    yield _of_sets("finished", set(ours.finished_req_ids), theirs.finished_req_ids)
    yield of_mappings("new blocks", _our_blocks(ours), _their_blocks(theirs), _of_rows)
    drafts = {i: len(ids) for i, ids in theirs.scheduled_spec_decode_tokens.items()}
    yield of_mappings("drafts to verify", ours.scheduled_spec_decode_tokens, drafts)
    common = list(theirs.num_common_prefix_blocks)
    yield of_sequences("common prefix blocks by group", ours.num_common_prefix_blocks, common)


def _at_request(what: str) -> Any:
    return lambda key, ours, theirs: Difference(what, ours, theirs, request_id=key)


def _of_sets(what: str, ours: set[str], theirs: set[str]) -> Difference | None:
    name = f"requests that are {what} here"
    return None if ours == theirs else Difference(name, sorted(ours), sorted(theirs))


def _new_ids(theirs: Any) -> set[str]:
    return {new.req_id for new in theirs.scheduled_new_reqs}


def _our_computed(ours: SchedulerOutput) -> dict[str, int]:
    return {request.request_id: computed for request, computed, _ in ours.scheduled}


def _their_computed(theirs: Any) -> dict[str, int]:
    cached = theirs.scheduled_cached_reqs
    new = {n.req_id: n.num_computed_tokens for n in theirs.scheduled_new_reqs}
    return new | dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))


def _our_blocks(ours: SchedulerOutput) -> dict[str, Rows]:
    return {i: rows for i, rows in ours.new_block_ids.items() if any(rows)}


def _their_blocks(theirs: Any) -> dict[str, Rows]:
    cached = theirs.scheduled_cached_reqs
    found = {n.req_id: _plain(n.block_ids) for n in theirs.scheduled_new_reqs}
    for request_id, rows in zip(cached.req_ids, cached.new_block_ids, strict=True):
        if rows is not None:
            found[request_id] = _plain(rows)
    return {i: rows for i, rows in found.items() if any(rows)}


def _plain(rows: Any) -> Rows:
    return tuple(list(row) for row in rows)


def _of_rows(request_id: str, ours: Rows, theirs: Rows) -> Difference | None:
    pairs = enumerate(zip(ours, theirs, strict=True))
    return first_of(
        of_sequences("new blocks", mine, other, True, request_id=request_id, group_id=group_id)
        for group_id, (mine, other) in pairs
    )


def of_ended(ours: list[Request], theirs: Mapping[str, str]) -> Difference | None:
    """Compare who ended in a step, in order, and why."""
    mine = [(r.request_id, _REASONS.get(r.status, r.status.name)) for r in ours]
    return of_sequences("requests that ended", mine, list(theirs.items()))

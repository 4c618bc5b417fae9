"""A step while it is being scheduled."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.scheduler.output import SchedulerOutput


@dataclass(slots=True)
class Step:
    """A step in the making.

    place : the running request that comes next
    has_prefill : a request in the step came out of the last one as a prefill chunk
    is_decode_only : running requests are in the step, and none of them is a prefill
    padding : placeholder drafts of the request that is being admitted
    adapters : those of the requests in the step
    last_chunk_req_ids : requests whose prefill the step completes
    """

    output: SchedulerOutput
    budget: int
    defers_prefills: bool
    place: int = 0
    has_prefill: bool = False
    is_decode_only: bool = False
    padding: int = 0
    adapters: set[str] = field(default_factory=set)
    last_chunk_req_ids: set[str] = field(default_factory=set)

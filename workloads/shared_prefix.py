"""Tenants with system prompts of their own; which tenant asks follows Zipf's law.

Request i belongs to tenant k (k = 1 is the most popular) with probability k^-s / sum over all j
of j^-s, s being ``zipf_exponent``. Its prompt is the tenant's system prompt and a user part that
nobody else has. A tenant's system prompt has one length, drawn once.

Draws: tenant k from the stream ("shared_prefix.tenant", k), request i from
("shared_prefix.request", i), in the order tenant, user part, output, pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
import simpy
from pydantic import Field

from sim.request import RequestSpec, Span, Submission

from .arrivals import Arrival, Process, closed_loop, instants_ns, pause_ns, submitted
from .lengths import Lengths
from .params import Count, Params
from .streams import Streams

KEPT_LENGTHS = 100_000  # of system prompts; those beyond are drawn again


class RequestArrival(Arrival):
    """Arrival of requests."""

    DEFAULTS: ClassVar[dict[str, float | int]] = {**Arrival.DEFAULTS, "rate_per_s": 4.0}


class SharedPrefixParams(Params):
    """Parameters of the workload ``shared_prefix``.

    num_requests : requests in all; scales the duration, not the load
    num_tenants : distinct system prompts
    zipf_exponent : 0 makes all tenants equally popular
    system_prompt : tokens, drawn once per tenant
    user : tokens of a request's own part
    output : tokens of each output
    arrival : when requests arrive: rates count requests
    """

    num_requests: Count = 1000
    num_tenants: Annotated[int, Field(ge=1, le=1_000_000)] = 50
    zipf_exponent: Annotated[float, Field(ge=0, le=10)] = 1.0
    system_prompt: Lengths = Lengths(mean=2000, cv=0.5, maximum=8000)
    user: Lengths = Lengths(mean=500, cv=1.0, maximum=8000)
    output: Lengths = Lengths(mean=200, cv=0.7, maximum=2000)
    arrival: RequestArrival = RequestArrival()


def files(params: SharedPrefixParams) -> tuple[()]:
    """Return the files that the requests depend on: none."""
    return ()


def count(params: SharedPrefixParams) -> int:
    """Return how many requests there are."""
    return params.num_requests


def process(
    env: simpy.Environment,
    submit: Callable[[RequestSpec], Submission],
    streams: Streams,
    params: SharedPrefixParams,
) -> Process:
    """Submit the requests of all tenants; a SimPy process."""
    arrival = params.arrival
    if arrival.kind != "closed":
        specs = (spec for spec, _ in requests(streams, params))
        instants = instants_ns(arrival, streams.child("shared_prefix.arrivals"))
        return submitted(env, zip(instants, specs, strict=False), submit)

    def work(job: tuple[RequestSpec, int]) -> Process:
        spec, pause = job
        yield submit(spec).done
        if pause:
            yield env.timeout(pause)

    return closed_loop(env, requests(streams, params), arrival.concurrency, work)


def requests(streams: Streams, params: SharedPrefixParams) -> Iterator[tuple[RequestSpec, int]]:
    """Yield (request, pause of a closed-loop client after it in ns)."""
    shares = popularity(params.num_tenants, params.zipf_exponent)
    bounds = np.cumsum(shares)

    @lru_cache(KEPT_LENGTHS)
    def system_length(tenant: int) -> int:
        return params.system_prompt.draw(streams.child("shared_prefix.tenant", tenant))

    for number in range(params.num_requests):
        rng = streams.child("shared_prefix.request", number)
        # Rounding may leave the last bound just below 1.
        place = int(np.searchsorted(bounds, rng.random(), side="right"))
        tenant = min(place + 1, params.num_tenants)
        spec = _spec(number, tenant, system_length(tenant), rng, params)
        yield spec, pause_ns(params.arrival.think_time_s or 0.0, rng)


def popularity(num_tenants: int, exponent: float) -> np.ndarray:
    """Return the share of requests of each tenant, shape (num_tenants,), falling, sum 1."""
    weights = np.arange(1, num_tenants + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def _spec(
    number: int,
    tenant: int,
    num_system: int,
    rng: np.random.Generator,
    params: SharedPrefixParams,
) -> RequestSpec:
    request_id = f"r{number}"
    system = Span(f"tenant{tenant}.system", 0, num_system)
    user = Span(f"{request_id}.user", 0, params.user.draw(rng))
    output = Span(f"{request_id}.output", 0, params.output.draw(rng))
    return RequestSpec(request_id, (system, user), output, tags=(f"tenant{tenant}",))

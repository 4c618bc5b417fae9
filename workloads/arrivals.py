"""When requests or sessions arrive: open loop and closed loop, one section of parameters."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import simpy
from pydantic import Field, ValidationInfo, field_validator

from sim.request import OpenLoop, RequestSpec, Submission

from .params import NS_PER_S, Count, Params, Seconds

Job = TypeVar("Job")
Process = Generator[simpy.Event, Any, None]

_USED_BY = {
    "rate_per_s": ("poisson", "gamma"),
    "burstiness": ("gamma",),
    "concurrency": ("closed",),
    "think_time_s": ("closed",),
}


class Arrival(Params):
    """How jobs (requests, or sessions of them) arrive.

    kind
        ``poisson``: open loop, independent exponential gaps.
        ``gamma``: open loop, independent gamma gaps.
        ``closed``: ``concurrency`` clients; each starts its next job when the one before is done
        and it has thought.
    rate_per_s : jobs per second
        mean rate of ``poisson`` and ``gamma``
    burstiness : ratio
        shape of the gamma distribution, as ``--burstiness`` of vLLM's serving benchmark: 1 is
        ``poisson``, less comes in bursts, more comes evenly. The mean gap stays 1 / rate.
    arrival_scale : ratio
        the arrival rate of any open loop is multiplied by it: 0.2 is five times slower
    concurrency : clients
    think_time_s : seconds
        mean of the exponential pause of a ``closed`` client after each job; 0 = none

    A field that the kind does not use must be left out (None); one that it uses and that is left
    out takes the workload's default.
    """

    DEFAULTS: ClassVar[dict[str, float | int]] = {
        "rate_per_s": 1.0,
        "burstiness": 1.0,
        "concurrency": 16,
        "think_time_s": 0.0,
    }

    kind: Literal["poisson", "gamma", "closed"] = "poisson"
    rate_per_s: Annotated[float, Field(ge=1e-3, le=1e9)] | None = Field(None, validate_default=True)
    burstiness: Annotated[float, Field(ge=1e-3, le=1e3)] | None = Field(None, validate_default=True)
    arrival_scale: Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    concurrency: Count | None = Field(None, validate_default=True)
    think_time_s: Seconds | None = Field(None, validate_default=True)

    @field_validator(*_USED_BY)
    @classmethod
    def _fits_the_kind(cls, value: float | None, info: ValidationInfo) -> float | None:
        kinds = _USED_BY[info.field_name]
        kind = info.data.get("kind")
        if kind in kinds:
            return cls.DEFAULTS[info.field_name] if value is None else value
        if value is not None and kind is not None:
            raise ValueError(f"nothing with kind {kind}, only with {' or '.join(kinds)}")
        return value

    @field_validator("arrival_scale")
    @classmethod
    def _not_closed(cls, value: float, info: ValidationInfo) -> float:
        if info.data.get("kind") == "closed" and value != 1:
            raise ValueError("1 with kind closed: it has no arrival rate")
        return value


def instants_ns(arrival: Arrival, rng: np.random.Generator) -> Iterator[int]:
    """Yield arrival instants of ``poisson`` or ``gamma`` without end, non-decreasing.

    Gaps are drawn for a rate of 1 and stretched, so that the same seed at another rate gives the
    same pattern. Each instant is rounded once, not each gap.
    """
    shape = arrival.burstiness if arrival.kind == "gamma" else 1.0
    ns_per_gap = NS_PER_S / (arrival.rate_per_s * arrival.arrival_scale)
    gaps = 0.0
    while True:
        gaps += rng.standard_gamma(shape) / shape
        yield round(gaps * ns_per_gap)


def pause_ns(mean_s: float, rng: np.random.Generator) -> int:
    """Return an exponential pause in nanoseconds. Takes exactly one variate from ``rng``."""
    return round(rng.standard_exponential() * mean_s * NS_PER_S)


def open_loop(
    env: simpy.Environment,
    arrivals: Iterable[tuple[int, Job]],
    start: Callable[[Job], object],
) -> Process:
    """Start each job at its instant, whatever became of the others.

    Takes the next job when the one before has started, never earlier. Jobs of one instant start
    in their order, with no event between them.
    """
    for at_ns, job in arrivals:
        if at_ns > env.now:
            yield env.timeout(at_ns - env.now)
        start(job)


def submitted(
    env: simpy.Environment,
    arrivals: Iterable[tuple[int, RequestSpec]],
    submit: Callable[[RequestSpec], Submission],
) -> OpenLoop:
    """Submit each request at its instant: ``open_loop`` that an engine may take ahead of time."""
    pairs = iter(arrivals)
    return OpenLoop(pairs, submit, open_loop(env, pairs, submit))


def closed_loop(
    env: simpy.Environment,
    jobs: Iterator[Job],
    concurrency: int,
    work: Callable[[Job], Process],
) -> Process:
    """Keep ``concurrency`` jobs going until there are no more; ends with the last of them.

    The job at hand goes to the client that is free first: which client does a job depends on the
    engine, what the jobs are does not.
    """
    clients = []
    for _ in range(concurrency):
        first = next(jobs, None)
        if first is None:
            break
        clients.append(env.process(_client(first, jobs, work)))
    yield env.all_of(clients)


def _client(job: Job | None, jobs: Iterator[Job], work: Callable[[Job], Process]) -> Process:
    while job is not None:
        yield from work(job)
        job = next(jobs, None)

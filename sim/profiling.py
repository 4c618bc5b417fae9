"""Where the time of a run goes, by kind of work. Wall-clock time: no part of the result tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from sim.units import NS_PER_S

if TYPE_CHECKING:
    from sim.engine_core import EngineCore
    from sim.engine_core_compiled import CompiledEngineCore

REST = "workload and clock"
PARTS = {
    "lookup": "what of a request is cached",
    "allocation": "tables grow and shrink, blocks are taken, registered and given back",
    "eviction": "taken blocks lose what they cached",
    "scheduling": "which request computes how many tokens, and what its outputs change",
    "step time": "how long a step takes",
    "records": "rows of steps and requests, samples of memory",
    "naming": "identities of the prefixes of new requests",
    "compiled engine": "lookup to step time together, and what goes in and comes out",
    REST: "arrivals, SimPy, reading a trace: everything else",
}
"""The kinds of work, and what each is."""
_NUM_TRIALS = 20_000


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of work: its own time [s], without what it calls of another kind, and its calls."""

    name: str
    seconds: float
    calls: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Where ``total_s`` went.

    The parts add up to the total. ``overhead_s`` of it is the measuring itself, estimated: an
    unmeasured run is so much faster.
    """

    total_s: float
    parts: tuple[Part, ...]
    overhead_s: float

    @classmethod
    def of(
        cls,
        total_s: float,
        seconds: Mapping[str, float],
        calls: Mapping[str, int],
        overhead_s: float,
    ) -> Profile:
        """Return the profile of a run; what is in no part is the rest."""
        known = {name: seconds.get(name, 0.0) for name in PARTS if name != REST}
        known[REST] = total_s - sum(known.values())
        parts = tuple(Part(name, value, calls.get(name, 0)) for name, value in known.items())
        return cls(total_s, parts, overhead_s)

    def as_json(self) -> dict[str, Any]:
        """Return what ``provenance.json`` says."""
        parts = {p.name: {"seconds": p.seconds, "calls": p.calls} for p in self.parts}
        return {"total_s": self.total_s, "overhead_s": self.overhead_s, "parts": parts}


class Profiler:
    """Measures the calls of a core by wrapping methods of its objects.

    A call's own time leaves out the measured calls within it. What is wrapped does the same work
    and gives the same answers. ``clock`` returns nanoseconds.
    """

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._clock = clock
        self.calls = dict.fromkeys(PARTS, 0)
        self._ns = dict.fromkeys(PARTS, 0)
        self._inner_ns = 0  # of measured calls within the one that runs

    def attach(self, core: EngineCore | CompiledEngineCore) -> None:
        """Measure a core from now on. Mutates its objects, each of which gets methods of its own.

        Cost: one measured call takes about half a microsecond (``call_s``).
        """
        if hasattr(core, "step_time"):
            self._attach_python(core)
        else:
            self._attach_compiled(core)

    def _attach_python(self, core: Any) -> None:
        scheduler, manager, recorder = core.scheduler, core.manager, core.recorder
        self._wrap("scheduling", scheduler, "schedule", "update_from_output")
        self._wrap("lookup", manager, "get_computed_blocks")
        self._wrap("allocation", manager, "allocate_slots", "free")
        self._wrap("step time", core, "step_time")
        self._wrap("records", recorder, "step", "request_done")
        if hasattr(manager.block_pool, "_drop_keys"):  # vLLM's own pool is a black box
            self._wrap("eviction", manager.block_pool, "_drop_keys")

    def _attach_compiled(self, core: Any) -> None:
        self._wrap("compiled engine", core, "add", "advance", "complete", "abort")
        self._wrap("records", core.recorder, "steps", "waste_row", "request_done")
        self._wrap("records", core._waste, "sample")

    def _wrap(self, part: str, owner: Any, *names: str) -> None:
        for name in names:
            setattr(owner, name, self.timed(part, getattr(owner, name)))

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and is measured as ``part``."""
        ns, calls, clock = self._ns, self.calls, self._clock

        def measured(*args: Any, **kwargs: Any) -> Any:
            outer_ns, self._inner_ns = self._inner_ns, 0
            begin = clock()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed_ns = clock() - begin
                ns[part] += elapsed_ns - self._inner_ns
                calls[part] += 1
                self._inner_ns = outer_ns + elapsed_ns

        return measured

    def profile(self, total_s: float) -> Profile:
        """Return what was measured so far of a run that took ``total_s``."""
        seconds = {name: value / NS_PER_S for name, value in self._ns.items()}
        overhead_s = sum(self.calls.values()) * call_s()
        return Profile.of(total_s, seconds, self.calls, overhead_s)


def call_s() -> float:
    """Return what measuring one call costs here and now [s]: the least of five trials."""
    plain, measured = _nothing, Profiler().timed(REST, _nothing)
    return max(0.0, min(_trial_ns(measured) - _trial_ns(plain) for _ in range(5))) / NS_PER_S


def _trial_ns(function: Callable[[], None]) -> float:
    begin = perf_counter_ns()
    for _ in range(_NUM_TRIALS):
        function()
    return (perf_counter_ns() - begin) / _NUM_TRIALS


def _nothing() -> None:
    """Do nothing."""

"""Random clients before a whole engine: they wait, ask late, time out, abort, or do not care.

Pool, groups, limits and requests are those of a random scheduler world; the steps' times come from
a step-time model, so both engines have to agree on every nanosecond.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sim import engine_core_compiled
from sim.engine import Engine
from sim.engine_core import EngineCore
from sim.engine_core_compiled import CompiledEngineCore
from sim.latency import affine
from sim.metrics.waste import WastePartition
from sim.prefix_ids import Identities
from sim.request import RequestSpec, Span
from tests.compiled.compare import NAMES
from tests.compiled.python_sides import PythonScheduler
from tests.differential.compare import Difference
from tests.differential.ours import ERRORS
from tests.differential.world import Content, World

SAMPLE_EVERY = 5
LAST_NS = 20_000  # requests may take each other's blocks in turns for ever
SWEEP_AFTER = 10  # names of prefixes
ROWS = 7  # of steps that are kept before Python takes them: few, so that the buffer runs full


@dataclass
class Diary:
    """Stands for the recorder: rows of steps, samples of the memory, and how requests ended."""

    partition: WastePartition
    rows: list[tuple[int, ...]] = field(default_factory=list)
    samples: list[tuple[int, ...]] = field(default_factory=list)
    ended: list[tuple[Any, ...]] = field(default_factory=list)

    def step(self, start_ns, end_ns, work, scheduler, manager, num_preempted) -> None:
        """Take down what ``sim.records.Recorder.step`` does."""
        pool, step = manager.block_pool, len(self.rows)
        if step % SAMPLE_EVERY == 0:
            parts = self.partition.sample(manager, scheduler.requests)
            self.samples.append((step, start_ns, *parts))
        tokens = (work.num_prefill_tokens, work.num_decode_tokens)
        queues = (len(scheduler.running), len(scheduler.waiting) + len(scheduler.skipped_waiting))
        free = (pool.get_num_free_blocks(), pool.num_cached_free)
        row = (step, start_ns, end_ns, *tokens, *queues, num_preempted, *free)
        self.rows.append((*row, *pool.held_by_group))

    def steps(self, rows) -> None:
        self.rows += map(tuple, rows.tolist())

    @property
    def next_sample(self) -> int:
        return -(-len(self.rows) // SAMPLE_EVERY) * SAMPLE_EVERY

    def waste_row(self, step, start_ns, parts) -> None:
        self.samples.append((step, start_ns, *parts))

    def request_done(self, request, outcome, reason) -> None:
        times = (request.first_scheduled_ns, request.first_token_ns, request.finish_ns)
        counts = (request.num_tokens, request.num_cached_tokens, request.num_preemptions)
        self.ended.append((request.request_id, outcome, reason, *times, *counts))


@dataclass
class History:
    """All that a run leaves behind."""

    log: list[tuple[Any, ...]]
    ended: list[str]
    diary: Diary
    num_steps: int
    lookups: tuple[int, ...]
    blocks: tuple[Any, ...]

    def told(self) -> dict[str, Any]:
        """Return its parts by name, those that show the most first."""
        diary = {"rows of steps": self.diary.rows, "requests": self.diary.ended}
        others = {"log": self.log, "order of ends": self.ended, "samples": self.diary.samples}
        last = {"steps": self.num_steps, "lookups": self.lookups, "blocks": self.blocks}
        return {**diary, **others, **last}


def compare_runs(world: World, seed: int) -> History | None:
    """Return what the Python engine leaves behind; raise the first Difference.

    None if no engine can be built for the world.
    """
    expected = history(world, seed, is_compiled=False)
    if expected is None:
        return None
    found = history(world, seed, is_compiled=True).told()
    for part, theirs in expected.told().items():
        if found[part] != theirs:
            _raise(part, found[part], theirs)
    return expected


def _raise(part: str, mine: Any, other: Any) -> None:
    """Raise the Difference, of lists the first entries that differ."""
    place = 0
    if isinstance(mine, list | tuple) and isinstance(other, list | tuple):
        pairs = zip_longest(mine, other)
        place, (mine, other) = next((i, p) for i, p in enumerate(pairs) if p[0] != p[1])
    raise Difference(place, ("run",), part, mine, other, NAMES)


def history(world: World, seed: int, is_compiled: bool) -> History | None:
    """Run a world's clients to the end on one engine; None if such an engine cannot be built."""
    try:
        side = PythonScheduler(world, Content(world))
    except ERRORS:
        return None
    core = _core(side, seed, is_compiled)
    run = _Run(world, core)
    for number, mine in enumerate(_shares(world, seed)):
        run.env.process(run.client(random.Random(seed * 1000 + number), mine))
    run.env.run(until=LAST_NS)
    core.give_up_all()
    core.check()
    stats = core.prefix_cache_stats
    lookups = (stats.requests, stats.queries, stats.hits)
    assert core.manager is side.manager  # the compiled engine gives it its state when asked
    side.manager.coordinator.num_uncached_common_prefix_tokens = 0  # not part of that
    blocks = side.ours.snapshot()
    return History(run.log, run.ended, core.recorder, core.num_steps, lookups, blocks)


def _core(side: PythonScheduler, seed: int, is_compiled: bool) -> Any:
    rng = random.Random(seed)
    rejects, layout = rng.random() < 0.6, _layout(side)
    params = affine.AffineParams(
        step_us=rng.choice([0.01, 0.02]),
        prefill_token_us=rng.choice([0.0, 0.001]),
        decode_request_us=rng.choice([0.0, 0.0005]),
        context_token_ns=rng.choice([0.0, 0.3]),
        kv_group_us=0.0,
    )
    diary = Diary(_partition(side))
    if not is_compiled:
        step_time = affine.build(params, None, None, layout)
        return EngineCore(side.scheduler, step_time, diary, rejects)
    step_time = affine.compiled(params, None, None, layout)
    with patch.object(engine_core_compiled, "_ROWS_OF_STEPS", ROWS):
        return CompiledEngineCore(side.manager, side.scheduler, step_time, diary, rejects)


def _layout(side: PythonScheduler) -> Any:
    limits = side.scheduler.limits
    config = SimpleNamespace(kv_cache_groups=side.world.groups)
    return SimpleNamespace(kv_cache_config=config, limits=limits)


def _partition(side: PythonScheduler) -> WastePartition:
    world, size = side.world, 960  # bytes of a block
    groups = [
        SimpleNamespace(
            layer_padding=100,
            page_padding=60,
            content=800,
            block_size=block_size,
            is_state=group["kind"] == "mamba",
        )
        for group, block_size in zip(world.groups, world.block_sizes, strict=True)
    ]
    return WastePartition(groups, world.num_blocks, size, world.num_blocks * size + 17)


def _shares(world: World, seed: int) -> list[list[int]]:
    """Return which requests each client asks for, one after the other."""
    rng = random.Random(seed)
    shares: list[list[int]] = [[] for _ in range(rng.randrange(2, 8))]
    for number in range(len(world.requests)):
        rng.choice(shares).append(number)
    return shares


class _Run:
    """An engine, its clients, and what they tell."""

    def __init__(self, world: World, core: Any):
        self.world, self.log, self.ended = world, [], []
        # Names are forgotten, and given again, as early as may be.
        self.names = Identities(world.hash_size, core.cached_prefix_ids, SWEEP_AFTER)
        is_compiled = isinstance(core, CompiledEngineCore)
        names = self.names.make_runs if is_compiled else self.names.make
        names = names if world.enable_caching else lambda spec: ()
        self.engine = Engine(core, names, self.on_end)
        self.env = self.engine.env

    def on_end(self, request: Any) -> None:
        self.ended.append(request.request_id)
        self.names.ended(request.request_id)

    def submit(self, number: int) -> Any:
        told = self.world.requests[number]
        length = min(told.get("stop_after") or told["max_tokens"], told["max_tokens"])
        spec = RequestSpec(
            f"r{number}",
            tuple(Span(*span) for span in told["prompt"]),
            Span(f"out{number}", 0, length),
            priority=told.get("priority", 0),
            cache_salt=told.get("salt"),
            max_tokens=told["max_tokens"],
        )
        return self.engine.submit(spec)

    def client(self, rng: random.Random, numbers: list[int]) -> Iterator[Any]:
        yield self.env.timeout(rng.randrange(200) * rng.randrange(2))
        for number in numbers:
            yield from self.ask(rng, self.submit(number), WAYS[rng.randrange(len(WAYS))])
            yield self.env.timeout(rng.randrange(3) * rng.randrange(60))

    def ask(self, rng: random.Random, submission: Any, way: str) -> Iterator[Any]:
        name, env = submission.spec.request_id, self.env
        if way == "waits":
            self.log.append((name, (yield submission.done).status, env.now))
        elif way == "times out":
            first = yield submission.first_token | env.timeout(rng.randrange(200))
            self.log.append((name, len(first.todict()), env.now))
        elif way == "asks late":
            yield env.timeout(rng.randrange(300))
            self.log.append((name, submission.done.triggered, env.now))
        elif way == "aborts":
            yield env.timeout(rng.randrange(100))
            submission.abort()
            self.log.append((name, (yield submission.done).status, env.now))


WAYS = ("waits", "times out", "asks late", "aborts", "does not care", "does not care")

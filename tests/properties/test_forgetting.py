"""Forgetting old identities changes no decision: two managers, one whose names are forgotten.

The names may differ, what they stand for may not: after every call the same blocks are held, free
and cached, in the same order, and the names of both are a renaming of each other.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.core.integrity import check_integrity
from sim.observer import NULL_OBSERVER
from sim.prefix_ids import Identities, PrefixIds
from sim.request import Request, RequestSpec, RequestStatus, Span
from tests.conftest import load_implementation
from tests.helpers import full, sliding
from tests.properties.worlds import Choices, World, choose_prompt, plain, random_world

MAX_OUTPUT = 12
MAX_REQUESTS = 6


@dataclass
class Twins:
    """One request as both managers know it: the first one's names are never forgotten."""

    spec: RequestSpec
    records: tuple[Request, Request]


class Pair:
    """The same calls to two managers; one names requests for ever, one forgets when it is due."""

    def __init__(self, world: World, rng: random.Random):
        self.world, self.rng = world, rng
        self.managers = [world.manager(load_implementation("sim"), NULL_OBSERVER) for _ in "ab"]
        self.for_ever = PrefixIds(world.hash_block_size)
        self.forgetful = Identities(
            world.hash_block_size, self.cached_ids, sweep_after=rng.choice([0, 5, 30])
        )
        self.waiting: list[Twins] = []
        self.running: list[Twins] = []
        self.past: list[RequestSpec] = []
        self.seen: Counter[str] = Counter()

    def both(self, call):
        one, two = (plain(call(manager, k)) for k, manager in enumerate(self.managers))
        assert one == two
        return one

    # -- what happens ------------------------------------------------------------------------
    def act(self):
        if not self.waiting and not self.running:
            return self.a_request_comes()
        action = self.rng.choice(ACTIONS)
        if action in ("a_request_comes", "a_step_starts", "evict"):
            return getattr(self, action)()
        twins = self.waiting if action == "admit" else self.running
        return getattr(self, action)(self.rng.choice(twins)) if twins else None

    def a_request_comes(self):
        if len(self.waiting) + len(self.running) >= MAX_REQUESTS:
            return
        number = self.seen["request"]
        self.seen["request"] += 1
        prompt = self.prompt(number)
        if sum(span.length for span in prompt) + MAX_OUTPUT > self.world.max_model_len:
            return
        spec = RequestSpec(f"r{number}", prompt, Span(f"out{number}", 0, MAX_OUTPUT))
        names = self.for_ever.of(spec), self.forgetful.make(spec)
        assert names[0].dtype == names[1].dtype == np.int64
        records = (
            Request(spec.request_id, spec.num_prompt_tokens, MAX_OUTPUT, ids.tolist())
            for ids in names
        )
        self.waiting.append(Twins(spec, tuple(records)))

    def prompt(self, number: int) -> tuple[Span, ...]:
        """Something new, or what a request of the recent or distant past ended with."""
        if self.past and self.rng.random() < 0.5:
            near = self.past[-5:]
            spec = self.rng.choice(near if self.rng.random() < 0.5 else self.past)
            again = self.rng.random() < 0.3
            tail = () if again else (spec.output, Span(f"user{number}", 0, self.rng.randint(1, 6)))
            return (*spec.prompt, *tail)
        return choose_prompt(Choices(self.rng.randbytes(8)), 40, number)

    def admit(self, twins: Twins):
        answers = [m.get_computed_blocks(twins.records[k]) for k, m in enumerate(self.managers)]
        rows, hit = plain(answers[0])
        assert plain(answers[1]) == (rows, hit)
        self.seen["hit"] += hit > 0
        left = twins.records[0].num_tokens - hit
        num_new = max(1, left // self.rng.choice([1, 1, 2, 3]))
        new = self.both(
            lambda manager, k: manager.allocate_slots(
                twins.records[k],
                num_new,
                num_new_computed_tokens=hit,
                new_computed_blocks=answers[k][0],
                full_sequence_must_fit=True,
            )
        )
        if new is None:
            self.seen["full"] += 1
            return
        self.waiting.remove(twins)
        self.running.append(twins)
        self.advance(twins, hit + num_new)

    def go_on(self, twins: Twins):
        request = twins.records[0]
        if request.num_computed_tokens == request.num_tokens:
            if request.num_tokens == request.num_prompt_tokens + MAX_OUTPUT:
                return self.end(twins)
            for record in twins.records:
                record.num_tokens += 1
        num_new = request.num_tokens - request.num_computed_tokens
        new = self.both(lambda manager, k: manager.allocate_slots(twins.records[k], num_new))
        if new is not None:
            self.advance(twins, request.num_computed_tokens + num_new)

    def advance(self, twins: Twins, num_computed: int):
        for record in twins.records:
            record.status = RequestStatus.RUNNING
            record.num_computed_tokens = num_computed

    def end(self, twins: Twins):
        self.both(lambda manager, k: manager.free(twins.records[k]))
        self.running.remove(twins)
        self.past.append(twins.spec)
        self.forgetful.ended(twins.spec.request_id)

    def preempt(self, twins: Twins):
        self.both(lambda manager, k: manager.free(twins.records[k]))
        self.running.remove(twins)
        self.waiting.append(twins)
        for record in twins.records:
            record.status = RequestStatus.PREEMPTED
            record.num_computed_tokens = 0

    def a_step_starts(self):
        self.both(lambda manager, _: manager.new_step_starts())

    def evict(self):
        blocks = self.rng.sample(range(1, self.world.num_blocks), 1)
        self.both(lambda manager, _: manager.evict_blocks(blocks))

    def cached_ids(self) -> np.ndarray:
        self.seen["sweep"] += 1
        return np.array([i for i in self.managers[1].block_pool.prefix_id if i >= 0], np.int64)

    # -- what must hold ----------------------------------------------------------------------
    def compare(self):
        one, two = (manager.block_pool for manager in self.managers)
        lists = [[*pool.free_block_queue.get_all_free_blocks()] for pool in (one, two)]
        assert lists[0] == lists[1]
        assert (one.ref_cnt, one.group_id) == (two.ref_cnt, two.group_id)
        for twins in self.running:
            name = twins.spec.request_id
            assert plain(self.managers[0].get_block_ids(name)) == plain(
                self.managers[1].get_block_ids(name)
            )
        pairs = {*zip(one.prefix_id, two.prefix_id, strict=True)}
        for twins in self.waiting + self.running:
            pairs |= {*zip(*(record.prefix_ids for record in twins.records), strict=True)}
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        assert max(two.prefix_id) < self.forgetful.high_water or max(two.prefix_id) < 0
        for group, index in enumerate(one.cached_blocks):
            assert [*index.values()] == [*two.cached_blocks[group].values()]


ACTIONS = (
    ["admit"] * 10
    + ["go_on"] * 20
    + ["a_request_comes"] * 5
    + ["a_step_starts"] * 4
    + ["end", "end", "preempt", "evict"]
)


def played(world: World, seed: int, num_actions: int) -> Pair:
    pair = Pair(world, random.Random(seed))
    for _ in range(num_actions):
        pair.act()
        pair.compare()
    assert pair.forgetful.names.collisions() == []
    pair.seen["forgotten"] = len(pair.for_ever) - len(pair.forgetful.names)
    for manager in pair.managers:
        check_integrity(manager)
    return pair


@pytest.mark.parametrize("part", range(4))
def test_forgetting_changes_no_hit_and_no_block(part):
    seen: Counter[str] = Counter()
    for seed in range(part * 25, part * 25 + 25):
        seen += played(random_world(seed), seed, 200).seen
    assert min(seen["request"], seen["hit"], seen["forgotten"]) > 100
    assert seen["sweep"] > 50
    assert seen["full"] > 0


def test_what_is_kept_stays_small_while_requests_come_and_go():
    pair = played(World((full(4), sliding(4, 8)), num_blocks=40), 1, 4000)
    assert len(pair.for_ever) > 4 * pair.forgetful.high_water
    while pair.waiting:
        pair.forgetful.ended(pair.waiting.pop().spec.request_id)
    for twins in [*pair.running]:
        pair.end(twins)
    for manager in pair.managers:
        assert manager.reset_prefix_cache()
    pair.forgetful.names.forget(pair.cached_ids())
    assert len(pair.forgetful.names) == 0
    assert pair.forgetful.names._roots == {}


# -- the names alone, against writing every prefix down ----------------------------------------
SPANS = st.lists(
    st.builds(Span, st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 6)), max_size=6
)


@settings(max_examples=150)
@given(data=st.data(), size=st.integers(1, 3))
def test_a_name_stays_while_a_request_or_the_cache_needs_it(data, size):
    """Held and cached prefixes keep their integer; no integer stands for two of them."""
    names = PrefixIds(size)
    held: list[tuple[tuple, list[int], object]] = []
    cached: dict[tuple, int] = {}
    for number in range(data.draw(st.integers(1, 8))):
        spans = (*data.draw(SPANS), Span(data.draw(st.sampled_from(["x", f"own{number}"])), 0, 4))
        salt = data.draw(st.sampled_from([None, "s"]))
        spec = RequestSpec("r", spans[:-1], spans[-1], cache_salt=salt) if valid(spans) else None
        if spec is not None:
            runs, node = names.hold(spec)
            ids = [number for first, end in runs for number in range(first, end)]
            written = [letter for span in spans for letter in letters(span)]
            ends = range(size, len(written) + 1, size)
            keys = [(salt, tuple(written[:end])) for end in ends]
            held.append((tuple(keys), ids, node))
            cached.update(p for p in zip(keys, ids, strict=True) if data.draw(CACHED))
        if held and data.draw(st.booleans()):
            names.release(held.pop(data.draw(st.integers(0, len(held) - 1)))[2])
        for key in data.draw(st.lists(st.sampled_from([*cached]), max_size=3) if cached else NONE):
            cached.pop(key, None)
        if data.draw(st.booleans()):
            names.forget(np.array([*cached.values()] * 2, np.int64))
        needed = {
            *cached.items(),
            *(p for keys, ids, _ in held for p in zip(keys, ids, strict=True)),
        }
        assert len(needed) == len({key for key, _ in needed}) == len({i for _, i in needed})
        assert names.collisions() == []


CACHED = st.sampled_from([False, False, True])
NONE = st.just([])


def valid(spans: tuple[Span, ...]) -> bool:
    return len(spans) > 1 and all(span.length > 0 for span in spans)


def letters(span: Span) -> list[tuple[str, int]]:
    return [(span.source, span.start + i) for i in range(span.length)]

"""Every step-time model: positive, monotone, deterministic, blind to order."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import Plugin, Strict
from sim.latency import LATENCY_MODELS, build_step_time
from sim.latency.work import StepWork
from tests.unit.latency.fakes import (
    FULL,
    SLIDING,
    STATE,
    make_hardware,
    make_layout,
    make_model,
)

LENGTHS = st.integers(0, 200_000)
CHUNKS = st.lists(st.tuples(LENGTHS, st.integers(1, 8192)), max_size=4)
WORK = st.builds(StepWork, prefill=CHUNKS, decode=st.lists(LENGTHS, max_size=6))
ALL = pytest.mark.parametrize("name", list(LATENCY_MODELS))


@cache
def step_time_of(name):
    model = make_model(total=10**9, active=10**8, heads=16)
    layout = make_layout((FULL, 2), (SLIDING, 5), (STATE, 3))
    hardware = make_hardware(flops=1e13, bandwidth=1e11)
    return build_step_time(Plugin(name=name), model, hardware, layout)


@ALL
def test_entry_is_complete(name):
    entry = LATENCY_MODELS[name]
    assert entry.name == name
    assert entry.summary
    assert issubclass(entry.params, Strict)
    entry.params()  # every parameter has a default


@ALL
@given(work=WORK)
@settings(max_examples=100, deadline=None)
def test_time_is_a_positive_whole_number_and_repeats(name, work):
    step_time = step_time_of(name)
    assert type(step_time(work)) is int
    assert step_time(work) >= 1
    assert step_time(work) == step_time(StepWork(list(work.prefill), list(work.decode)))


@ALL
@given(work=WORK, first=LENGTHS, count=st.integers(1, 8192))
@settings(max_examples=100, deadline=None)
def test_more_requests_do_not_take_less_time(name, work, first, count):
    step_time = step_time_of(name)
    more_prefill = StepWork([*work.prefill, (first, count)], work.decode)
    more_decode = StepWork(work.prefill, [*work.decode, first])
    assert step_time(more_prefill) >= step_time(work)
    assert step_time(more_decode) >= step_time(work)


@ALL
@given(work=WORK, first=LENGTHS, count=st.integers(1, 8192), more=st.integers(1, 5000))
@settings(max_examples=100, deadline=None)
def test_a_longer_chunk_or_context_does_not_take_less_time(name, work, first, count, more):
    step_time = step_time_of(name)

    def with_one(chunk, context):
        return step_time(StepWork([*work.prefill, chunk], [*work.decode, context]))

    base = with_one((first, count), first)
    assert with_one((first + more, count), first) >= base
    assert with_one((first, count + more), first) >= base
    assert with_one((first, count), first + more) >= base


@ALL
@given(work=WORK, rng=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_time_does_not_depend_on_the_order_of_requests(name, work, rng):
    prefill, decode = list(work.prefill), list(work.decode)
    rng.shuffle(prefill)
    rng.shuffle(decode)
    assert step_time_of(name)(StepWork(prefill, decode)) == step_time_of(name)(work)

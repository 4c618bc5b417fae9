"""``held``: compiled functions see the fields of the tuple, in the arrays where they are."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from sim.core.kv_cache_state_compiled import new_manager
from sim.jit import is_available
from sim.references import held
from sim.scheduler.scheduler import Scheduler, SchedulerLimits
from sim.scheduler.scheduler_state_compiled import new_scheduler
from tests.conftest import load_implementation
from tests.helpers import full, make_manager, mamba, sliding

needs_numba = pytest.mark.skipif(not is_available(), reason="Numba is missing or switched off")
PAIR = np.dtype([("a", "i8"), ("b", "f4")], align=True)


class Inner(NamedTuple):
    words: np.ndarray
    grid: np.ndarray


class Outer(NamedTuple):
    pairs: np.ndarray
    inner: Inner
    flags: np.ndarray


def outer() -> Outer:
    pairs = np.zeros(3, PAIR).view(np.recarray)
    pairs.a, pairs.b = [1, 2, 3], [0.5, 1.5, 2.5]
    grid = np.arange(12, dtype=np.int32).reshape(3, 4)
    return Outer(pairs, Inner(np.arange(5), grid), np.array([0, 1], np.uint8))


def read(s: Any) -> tuple[Any, ...]:
    pair = s.pairs[1]
    return pair.a, pair.b, s.inner.words[3], s.inner.grid[2, 1], s.inner.grid.shape[1], s.flags[1]


def write(s: Any) -> None:
    s.inner.grid[0, 2] = 77
    s.pairs[2].a = 78


def compiled(function: Any) -> Any:
    import numba

    return numba.njit(function)


def leaves(state: Any, path: str = "s") -> Iterator[tuple[str, np.ndarray]]:
    """Yield every array of nested NamedTuples with the text of the way to it."""
    for name, value in zip(state._fields, state, strict=True):
        if isinstance(value, tuple):
            yield from leaves(value, f"{path}.{name}")
        else:
            yield f"{path}.{name}", value


def addresses(paths: list[str]) -> Any:
    """Return a compiled function that writes the address and the size of each array to ``out``."""
    lines = ["def see(s, out):"]
    for place, path in enumerate(paths):
        lines.append(f"    out[{place}, 0] = {path}.ctypes.data")
        lines.append(f"    out[{place}, 1] = {path}.size")
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    return compiled(names["see"])


def test_where_nothing_is_compiled_a_state_is_its_own_reference():
    state = outer()
    assert (held(state) is state) == (not is_available())


@needs_numba
@pytest.mark.compiled
def test_fields_are_those_of_the_tuple():
    state = outer()
    assert compiled(read)(held(state)) == compiled(read)(state) == read(state)
    assert read(state) == (2, 1.5, 3, 9, 4, 1)


@needs_numba
@pytest.mark.compiled
def test_what_compiled_code_writes_is_seen_and_the_other_way_round():
    state = outer()
    reference = held(state)
    compiled(write)(reference)
    assert (state.inner.grid[0, 2], state.pairs.a[2]) == (77, 78)
    state.inner.words[3] = 99
    assert compiled(read)(reference)[2] == 99


@needs_numba
@pytest.mark.compiled
def test_a_reference_keeps_its_state_alive():
    reference = held(outer())
    gc.collect()
    garbage = [np.full(5, -1) for _ in range(1000)]
    assert compiled(read)(reference) == (2, 1.5, 3, 9, 4, 1)
    assert len(garbage) == 1000


@needs_numba
@pytest.mark.compiled
def test_a_replaced_field_wants_a_new_reference():
    state = outer()
    old, new = held(state), held(state._replace(flags=np.array([5, 6, 7], np.uint8)))
    assert (compiled(read)(old)[-1], compiled(read)(new)[-1]) == (1, 6)


@needs_numba
@pytest.mark.compiled
def test_every_array_of_the_scheduler_is_found_where_it_is():
    specs = [full(4), sliding(4, 8), mamba(4)]
    manager = make_manager(load_implementation("sim"), specs, num_blocks=20)
    scheduler = Scheduler(manager, SchedulerLimits(64, 8, 1000), 4)
    state = new_scheduler(scheduler, new_manager(manager))
    paths, arrays = zip(*leaves(state), strict=True)
    out = np.zeros((len(paths), 2), np.int64)
    addresses(list(paths))(held(state), out)
    assert out.tolist() == [[array.ctypes.data, array.size] for array in arrays]
    assert len(paths) > 20

import os
import subprocess
import sys

import numpy as np
import pytest

from workloads.streams import Streams, _name_words


def draws(streams: Streams, name: str, *index: int) -> list[float]:
    return streams.child(name, *index).random(4).tolist()


def test_same_arguments_give_the_same_fresh_generator():
    streams = Streams(7)
    first = streams.child("a", 1)
    first.random(100)
    assert draws(streams, "a", 1) == draws(Streams(7), "a", 1)
    assert draws(streams, "a", 1) != first.random(4).tolist()


def test_asking_for_others_between_changes_nothing():
    streams = Streams(7)
    before = draws(streams, "a", 5)
    for i in range(10):
        draws(streams, "b", i)
    assert draws(streams, "a", 5) == before


def test_seed_name_and_index_all_tell_streams_apart():
    seen = {
        tuple(draws(Streams(seed), name, *index))
        for seed in (0, 1, 2**32, 2**63 - 1)
        for name in ("a", "b", "", "ab")
        # an index that only lengthens the key with zeros, and one that looks like two
        for index in ((), (0,), (0, 0), (1,), (1, 0), (0, 1), (2**32 - 1,))
    }
    assert len(seen) == 4 * 4 * 7


def test_children_of_neighbouring_indices_are_not_correlated():
    # 2000 streams, one draw each: r of two independent columns has standard error 1 / sqrt(n).
    n = 2000
    first = np.array([Streams(3).child("s", i).random() for i in range(n)])
    r = np.corrcoef(first[:-1], first[1:])[0, 1]
    assert abs(r) < 5 / np.sqrt(n)
    # mean of uniform draws: standard error sqrt(1 / 12 n)
    assert abs(first.mean() - 0.5) < 5 / np.sqrt(12 * n)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**128 - 1, 2**200])
@pytest.mark.parametrize("index", [(), (0,), (2**32 - 1,), (0, 0), (3, 7)])
def test_a_child_is_the_spawned_child_of_a_seed_sequence(seed, index):
    sequence = np.random.SeedSequence(seed, spawn_key=(*_name_words("a name"), *index))
    expected = np.random.PCG64(sequence).state
    assert Streams(seed).child("a name", *index).bit_generator.state == expected


@pytest.mark.parametrize("index", [-1, 2**32])
def test_an_index_out_of_range_is_refused(index):
    with pytest.raises(ValueError, match="outside"):
        Streams(0).child("a", 3, index)


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="seed is -1"):
        Streams(-1)


def test_draws_do_not_depend_on_the_hash_seed():
    program = "from workloads.streams import Streams; print(Streams(5).child('x', 2).random(3))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1

"""Names of prefixes, against a model that writes every token down; and forgetting them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InvariantError
from sim.prefix_ids import Identities, PrefixIds
from sim.request import RequestSpec, Span
from tests.unit.test_request import SPANS, spec, tokens


class NaivePrefixIds:
    """Writes every prefix down, token for token; a dict numbers them in order of first use."""

    def __init__(self, size: int):
        self.size = size
        self.numbers: dict[tuple, int] = {}

    def of_spans(self, spans, salt=None) -> list[int]:
        written = tokens(spans)
        ends = range(self.size, len(written) + 1, self.size)
        keys = [(salt or None, tuple(written[:end])) for end in ends]
        return [self.numbers.setdefault(key, len(self.numbers)) for key in keys]


class TestPrefixIds:
    @settings(max_examples=300, deadline=None)
    @given(
        size=st.integers(1, 5),
        requests=st.lists(st.tuples(SPANS, st.sampled_from([None, "", "x", "y"])), max_size=8),
    )
    def test_same_numbers_as_writing_every_prefix_down(self, size, requests):
        ours, naive = PrefixIds(size), NaivePrefixIds(size)
        for spans, salt in requests:
            assert ours.of_spans(spans, salt).tolist() == naive.of_spans(spans, salt)
        assert len(ours) == len(naive.numbers)

    @settings(max_examples=100, deadline=None)
    @given(
        sizes=st.tuples(st.integers(1, 3), st.integers(1, 4)),
        requests=st.lists(SPANS, max_size=6),
    )
    def test_every_kth_fine_identity_tells_apart_what_coarse_ones_do(self, sizes, requests):
        size, factor = sizes
        fine, coarse = PrefixIds(size), PrefixIds(size * factor)
        pairs = set()
        for spans in requests:
            kth = fine.of_spans(spans)[factor - 1 :: factor].tolist()
            pairs.update(zip(kth, coarse.of_spans(spans).tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})

    @given(SPANS, st.data())
    def test_cutting_a_span_in_two_changes_nothing(self, spans, data):
        cut = []
        for span in spans:
            at = data.draw(st.integers(0, span.length))
            cut += [
                Span(span.source, span.start, at),
                Span(span.source, span.start + at, span.length - at),
            ]
        ids = PrefixIds(2)
        assert ids.of_spans(spans).tolist() == ids.of_spans(cut).tolist()

    def test_worked_example_with_a_block_across_two_spans(self):
        # Blocks of 4. First: aaaa aabb bbbb  -> 0 1 2. Second: aaaa aabb bbcc -> 0 1 3.
        # Third: aaaa aaaa, the longer span a: 0 again, then a new one.
        ids = PrefixIds(4)
        assert ids.of_spans([Span("a", 0, 6), Span("b", 0, 6)]).tolist() == [0, 1, 2]
        assert ids.of_spans([Span("a", 0, 6), Span("b", 0, 4), Span("c", 0, 2)]).tolist() == [
            0,
            1,
            3,
        ]
        assert ids.of_spans([Span("a", 0, 8)]).tolist() == [0, 4]
        assert len(ids) == 5

    def test_same_span_at_another_place_is_another_prefix(self):
        ids = PrefixIds(2)
        assert ids.of_spans([Span("b", 0, 4)]).tolist() == [0, 1]
        assert ids.of_spans([Span("a", 0, 2), Span("b", 0, 4)]).tolist() == [2, 3, 4]

    def test_another_start_of_the_same_source_is_another_prefix(self):
        ids = PrefixIds(2)
        assert ids.of_spans([Span("a", 0, 4)]).tolist() == [0, 1]
        assert ids.of_spans([Span("a", 2, 4)]).tolist() == [2, 3]

    def test_a_span_that_ends_at_a_block_boundary_names_that_block(self):
        ids = PrefixIds(4)
        alone = ids.of_spans([Span("a", 0, 4)]).tolist()
        assert ids.of_spans([Span("a", 0, 4), Span("b", 0, 3)]).tolist() == alone
        assert ids.of_spans([Span("a", 0, 4), Span("b", 0, 4)]).tolist() == [*alone, 1]

    def test_a_later_turn_repeats_the_ids_of_prompt_and_output(self):
        ids = PrefixIds(4)
        first = spec(Span("sys", 0, 5), Span("u0", 0, 2), output=Span("o0", 0, 6))
        second = spec(
            Span("sys", 0, 5),
            Span("u0", 0, 2),
            Span("o0", 0, 6),
            Span("u1", 0, 1),
            output=Span("o1", 0, 2),
        )
        before, after = ids.of(first).tolist(), ids.of(second).tolist()
        assert before == [0, 1, 2]  # 13 tokens
        assert after == [0, 1, 2, 3]  # 16 tokens

    def test_output_counts_as_content(self):
        ids = PrefixIds(4)
        one = ids.of(spec(Span("p", 0, 6), output=Span("x", 0, 2)))
        two = ids.of(spec(Span("p", 0, 6), output=Span("y", 0, 2)))
        assert (one.tolist(), two.tolist()) == ([0, 1], [0, 2])

    def test_salts_share_nothing_and_no_salt_equals_an_empty_one(self):
        ids = PrefixIds(4)

        def ids_with(salt):
            return ids.of(spec(Span("p", 0, 7), output=Span("o", 0, 1), salt=salt)).tolist()

        assert ids_with("x") == [0, 1]
        assert ids_with(None) == [2, 3]
        assert ids_with("y") == [4, 5]
        assert ids_with("") == [2, 3]
        assert ids_with("x") == [0, 1]

    def test_less_than_one_block_has_no_identity(self):
        ids = PrefixIds(16)
        found = ids.of(spec(Span("p", 0, 14), output=Span("o", 0, 1)))
        assert found.dtype == np.int64
        assert found.shape == (0,)
        assert len(ids) == 0

    def test_a_shorter_use_does_not_lose_ids_of_a_longer_one(self):
        ids = PrefixIds(1)
        assert ids.of_spans([Span("a", 0, 3)]).tolist() == [0, 1, 2]
        assert ids.of_spans([Span("a", 0, 1)]).tolist() == [0]
        assert ids.of_spans([Span("a", 0, 5)]).tolist() == [0, 1, 2, 3, 4]

    def test_the_array_is_the_callers_own(self):
        ids = PrefixIds(1)
        ids.of_spans([Span("a", 0, 3)])[:] = -7
        assert ids.of_spans([Span("a", 0, 3)]).tolist() == [0, 1, 2]

    def test_cost_is_per_block_not_per_token(self):
        # 2**60 tokens could not be written down; 3 blocks can.
        ids = PrefixIds(2**58)
        assert ids.of_spans([Span("a", 0, 2**58), Span("b", 5, 2**59)]).tolist() == [0, 1, 2]

    @pytest.mark.parametrize("size", [0, -1])
    def test_a_block_has_at_least_one_token(self, size):
        with pytest.raises(ValueError, match="at least 1"):
            PrefixIds(size)


def cached(*ids: int) -> np.ndarray:
    return np.array(ids, np.int64)


def written(runs) -> list[int]:
    return [number for first, end in runs for number in range(first, end)]


def request(name: str, *spans: Span) -> RequestSpec:
    return RequestSpec(name, spans[:-1], spans[-1])


class TestForget:
    """Blocks of 4 tokens: a span of 8 has two identities."""

    A, B, C = Span("a", 0, 8), Span("b", 0, 8), Span("c", 0, 8)

    def test_nothing_needed_nothing_kept_and_the_integers_come_again(self):
        names = PrefixIds(4)
        assert names.of_spans([self.A, self.B]).tolist() == [0, 1, 2, 3]
        names.forget(cached())
        assert len(names) == 0
        assert names.of_spans([self.C]).tolist() == [0, 1]
        assert names.high_water == 4

    def test_what_is_cached_keeps_its_name(self):
        names = PrefixIds(4)
        names.of_spans([self.A])
        names.of_spans([self.B])
        names.forget(cached(3, 3))
        assert names.of_spans([self.B]).tolist() == [2, 3]
        assert names.of_spans([self.C]).tolist() == [0, 1]

    def test_the_way_to_a_cached_identity_is_kept_though_nothing_on_it_is_cached(self):
        names = PrefixIds(4)
        names.of_spans([self.A, self.C])
        names.of_spans([self.A, self.B])  # cuts behind a: ids 4 and 5 are those of b
        names.forget(cached(5))
        assert len(names) == 4
        assert names.of_spans([self.A, self.B]).tolist() == [0, 1, 4, 5]

    def test_what_lies_behind_a_cached_identity_is_forgotten(self):
        names = PrefixIds(4)
        names.of_spans([self.A, self.C])
        names.of_spans([self.A, self.B])
        names.forget(cached(0))
        assert len(names) == 2
        assert names.of_spans([self.A, self.B, self.C]).tolist() == [0, 1, 2, 3, 4, 5]

    def test_the_lowest_free_integers_are_given_first_in_runs(self):
        names = PrefixIds(4)
        for source in "abcde":
            names.of_spans([Span(source, 0, 8)])
        names.forget(cached(3, 6))  # b and d stay: 0 1, 4 5 and all from 8 on are free
        assert names.of_spans([Span("f", 0, 4)]).tolist() == [0]
        assert names.of_spans([Span("g", 0, 16)]).tolist() == [1, 4, 5, 8]
        assert names.of_spans([Span("h", 0, 12)]).tolist() == [9, 10, 11]
        assert (len(names), names.high_water) == (12, 12)
        assert names.collisions() == []

    def test_a_held_request_keeps_its_names_until_it_is_released(self):
        names = PrefixIds(4)
        _, first = names.hold(request("r0", self.A, self.B))
        _, second = names.hold(request("r1", self.A, self.B))
        names.release(first)
        names.forget(cached())
        assert names.of_spans([self.A, self.B]).tolist() == [0, 1, 2, 3]
        names.release(second)
        names.forget(cached())
        assert len(names) == 0

    def test_a_held_request_is_safe_when_another_leaves_its_way_in_the_middle_of_a_span(self):
        names = PrefixIds(4)
        runs, node = names.hold(request("r0", Span("a", 0, 20), self.C))
        ids = written(runs)
        names.of_spans([Span("a", 0, 9), self.B])
        names.forget(cached())
        assert names.of_spans([Span("a", 0, 20), self.C]).tolist() == ids
        assert len(names) == len(ids)
        names.release(node)
        names.forget(cached())
        assert len(names) == 0

    def test_a_request_that_ends_within_a_longer_one_holds_it(self):
        names = PrefixIds(4)
        names.of_spans([Span("a", 0, 40)])
        runs, _ = names.hold(request("r0", Span("a", 0, 9), Span("a", 9, 5)))
        names.forget(cached())
        assert names.of_spans([Span("a", 0, 14)]).tolist() == written(runs) == [0, 1, 2]

    def test_roots_of_salts_are_forgotten(self):
        names = PrefixIds(4)
        for user in range(100):
            names.of_spans([self.A], salt=f"user{user}")
        _, node = names.hold(RequestSpec("r", (), Span("x", 0, 1), cache_salt="kept"))
        names.forget(cached(0))
        assert {salt for salt, _ in names._roots} == {"user0", "kept"}
        names.release(node)

    def test_it_is_due_when_as_much_came_as_was_left_but_not_for_little(self):
        names = PrefixIds(4, sweep_after=11)
        for number in range(3):
            assert not names.is_due
            names.of_spans([Span(f"s{number}", 0, 8)])  # two identities and one span
        assert not names.is_due  # nine, and the root
        names.of_spans([self.A])
        assert names.is_due
        names.forget(cached(*range(8)))
        assert not names.is_due
        for number in range(3):
            names.of_spans([Span(f"t{number}", 0, 8)])
        assert not names.is_due  # 12 were left, 9 have come
        names.of_spans([self.B])
        assert names.is_due

    def test_a_cached_identity_without_a_name_is_a_broken_state(self):
        names = PrefixIds(4)
        with pytest.raises(InvariantError, match=r"\[3\]"):
            names.forget(cached(3))
        names.of_spans([self.A])
        with pytest.raises(InvariantError, match=r"\[2, 7\]"):
            names.forget(cached(1, 7, 2, 7))
        assert names.of_spans([self.A]).tolist() == [0, 1]

    def test_spans_below_a_block_count_too(self):
        names = PrefixIds(1000, sweep_after=50)
        for number in range(60):
            names.of_spans([Span(f"s{number}", 0, 1)])
        assert len(names) == 0
        assert names.is_due


class TestIdentities:
    A, B = Span("a", 0, 8), Span("b", 0, 8)

    def test_a_request_is_held_from_make_to_ended(self):
        identities = Identities(4, cached, sweep_after=0)
        assert identities.make(request("r0", self.A, self.B)).tolist() == [0, 1, 2, 3]
        assert identities.make(request("r1", self.A, self.B)).tolist() == [0, 1, 2, 3]
        identities.ended("r0")
        assert identities.make(request("r2", self.B, self.A)).tolist() == [4, 5, 6, 7]
        identities.ended("r1")
        assert identities.make(request("r1", self.B, self.B)).tolist() == [4, 5, 0, 1]
        assert identities.high_water == 8

    def test_what_is_cached_when_it_is_due_stays(self):
        in_cache: list[int] = []
        identities = Identities(4, lambda: cached(*in_cache), sweep_after=0)
        identities.make(request("r0", self.A, self.B))
        identities.ended("r0")
        in_cache.append(1)
        more = request("r1", self.A, self.A, self.A)
        assert identities.make(more).tolist() == [0, 1, 4, 5, 6, 7]
        identities.ended("r1")
        in_cache.clear()
        assert identities.make(request("r2", self.B, self.A)).tolist() == [0, 1, 2, 3]

    def test_without_a_cache_to_ask_nothing_is_forgotten(self):
        identities = Identities(4, sweep_after=0)
        for name in ("r0", "r1"):
            assert identities.make(request(name, self.A, self.B)).tolist() == [0, 1, 2, 3]
            identities.ended(name)
        assert identities.make(request("r2", self.B, self.A)).tolist() == [4, 5, 6, 7]
        assert identities.high_water == 8

    def test_the_end_of_a_request_without_names_is_passed_over(self):
        Identities(4, cached).ended("rejected")

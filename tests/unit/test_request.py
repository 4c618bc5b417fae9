"""Spans and prefix identities, against a model that writes every token down."""

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.request import PrefixIds, Request, RequestSpec, RequestStatus, Span, merge_spans

# Few sources and positions, so that equal prefixes, joins and near misses are common.
SPANS = st.lists(
    st.builds(Span, st.sampled_from("ab"), st.integers(0, 6), st.integers(0, 7)), max_size=7
)


def tokens(spans) -> list[tuple[str, int]]:
    return [(s.source, s.start + i) for s in spans for i in range(s.length)]


def spec(*spans: Span, output: Span, salt: str | None = None) -> RequestSpec:
    return RequestSpec("r", spans, output, cache_salt=salt)


class TestMergeSpans:
    def test_neighbours_that_continue_each_other_join(self):
        spans = [Span("a", 0, 3), Span("a", 3, 4), Span("a", 7, 1), Span("b", 8, 2)]
        assert merge_spans(spans) == (Span("a", 0, 8), Span("b", 8, 2))

    @pytest.mark.parametrize(
        "right",
        [Span("a", 4, 2), Span("a", 2, 2), Span("a", 0, 3), Span("b", 3, 2)],
        ids=["gap", "overlap", "repeat", "other source"],
    )
    def test_neighbours_that_do_not_continue_stay_apart(self, right):
        spans = (Span("a", 0, 3), right)
        assert merge_spans(spans) == spans

    def test_an_empty_span_between_two_halves_does_not_keep_them_apart(self):
        assert merge_spans([Span("a", 0, 3), Span("b", 0, 0), Span("a", 3, 1)]) == (
            Span("a", 0, 4),
        )

    def test_nothing_gives_nothing(self):
        assert merge_spans([]) == ()
        assert merge_spans([Span("a", 5, 0)]) == ()

    def test_a_generator_is_enough(self):
        assert merge_spans(Span("a", i, 1) for i in range(4)) == (Span("a", 0, 4),)

    @given(SPANS)
    def test_normal_form_keeps_the_tokens_and_is_shortest(self, spans):
        merged = merge_spans(spans)
        written = tokens(spans)
        assert tokens(merged) == written
        breaks = sum(
            left[0] != right[0] or left[1] + 1 != right[1]
            for left, right in itertools.pairwise(written)
        )
        assert len(merged) == (breaks + 1 if written else 0)
        assert merge_spans(merged) == merged


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


class TestRequestSpec:
    def test_lengths_are_sums_over_spans(self):
        found = spec(Span("a", 3, 5), Span("b", 0, 2), output=Span("o", 0, 9))
        assert (found.num_prompt_tokens, found.num_output_tokens) == (7, 9)


class TestRequest:
    def test_coarse_identities_are_every_kth(self):
        request = Request("r", 10, 2, prefix_ids=[10, 11, 12, 13, 14, 15, 16])
        assert request.prefix_ids_by(1) == [10, 11, 12, 13, 14, 15, 16]
        assert request.prefix_ids_by(2) == [11, 13, 15]
        assert request.prefix_ids_by(3) == [12, 15]
        assert request.prefix_ids_by(8) == []
        assert request.prefix_ids_by(3) is request.prefix_ids_by(3)

    def test_known_tokens_start_with_the_prompt(self):
        request = Request("r", 10, 2)
        assert (request.num_tokens, request.num_output_tokens) == (10, 0)
        request.num_tokens += 1
        assert request.num_output_tokens == 1

    def test_requests_are_compared_by_identity(self):
        request = Request("r", 10, 2)
        assert request != copy.copy(request)
        assert len({request, copy.copy(request)}) == 2

    def test_states_that_a_request_does_not_leave(self):
        finished = {status.name for status in RequestStatus if status.is_finished}
        assert finished == {
            "FINISHED_STOPPED",
            "FINISHED_LENGTH_CAPPED",
            "FINISHED_ABORTED",
            "FINISHED_IGNORED",
            "FINISHED_ERROR",
            "FINISHED_REPETITION",
        }

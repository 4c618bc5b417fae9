"""Spans, specs and the record of a request."""

import copy
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.request import Request, RequestSpec, RequestStatus, Span, merge_spans

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

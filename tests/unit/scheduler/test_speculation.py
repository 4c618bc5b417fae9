"""Drafts: scheduled, verified, rejected. Source: spec/manager.md 6.1, 6.3, 6.6, 6.10."""

from __future__ import annotations

import pytest

from sim.core.integrity import check_integrity
from tests.helpers import tables as tables_of
from tests.spec.serving import Serving

SPEC = {"num_spec_tokens": 3, "num_lookahead_tokens": 3, "num_blocks": 100}


def test_the_budget_cuts_drafts():
    """Budget 6: a's token and three drafts, b's token and one of three."""
    serving = Serving(max_num_batched_tokens=6, max_num_seqs=4, **SPEC)
    a, b = serving.add("a", 3), serving.add("b", 3)
    serving.step()
    serving.scheduler.update_draft_token_ids({"a": 3, "b": 3})
    output = serving.schedule()
    assert output.num_scheduled_tokens == {"a": 4, "b": 2}
    assert output.scheduled_spec_decode_tokens == {"a": 3, "b": 1}
    assert (output.verify, output.decode, output.prefill) == ([(3, 4), (3, 2)], [], [])
    serving.accept = {"a": 4, "b": 1}
    serving.scheduler.update_from_output(output)
    # a: 3 + 1 + 4 known, all 7 before the last computed. b: its draft is rejected, 5 - 1 = 4.
    assert (a.num_tokens, a.num_computed_tokens) == (8, 7)
    assert (b.num_tokens, b.num_computed_tokens) == (5, 4)
    stats = serving.scheduler.spec_decode_stats
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (2, 4, 3)


def test_without_drafts_a_step_computes_one_token_and_the_rest_is_lookahead():
    serving = Serving(**SPEC)
    a = serving.add("a", 9)
    serving.step()
    assert tables_of(serving.manager, a) == [[1, 2, 3]]  # 9 + 3 slots
    assert serving.step().num_scheduled_tokens == {"a": 1}
    assert tables_of(serving.manager, a) == [[1, 2, 3, 4]]  # 10 + 3


def test_an_ngram_like_method_takes_no_lookahead():
    serving = Serving(num_spec_tokens=3, num_blocks=100)
    a = serving.add("a", 9)
    serving.step()
    serving.step()
    assert tables_of(serving.manager, a) == [[1, 2, 3]]  # 10 tokens


def test_drafts_of_a_request_in_prefill_are_not_taken():
    serving = Serving(max_num_batched_tokens=8, **SPEC)
    a = serving.add("a", 12)
    serving.step()
    serving.scheduler.update_draft_token_ids({"a": 3, "nobody": 3})
    assert a.num_draft_tokens == 0
    assert serving.step().num_scheduled_tokens == {"a": 4}


def test_a_whole_hit_that_joins_decodes_is_padded():
    """6.3 C5: n = 1 becomes 1 + 3 with placeholder drafts, if only decodes are in the step."""
    serving = Serving(**SPEC)
    serving.add("a", 9, shared=8)
    serving.step()
    b = serving.add("b", 9, shared=8)  # 8 of 9 tokens hit
    output = serving.schedule()
    assert output.num_scheduled_tokens == {"a": 1, "b": 4}
    assert output.scheduled_spec_decode_tokens == {"b": 3}
    assert b.has_placeholder_drafts
    serving.scheduler.update_from_output(output)
    assert (b.num_tokens, b.num_computed_tokens, b.has_placeholder_drafts) == (10, 9, False)


def test_a_padded_request_that_does_not_fit_the_budget_waits():
    serving = Serving(max_num_batched_tokens=4, max_num_seqs=4, **SPEC)
    a = serving.add("a", 4, shared=4)
    serving.step()
    serving.add("b", 5, shared=4)
    assert serving.step().num_scheduled_tokens == {"a": 1}
    assert a.num_tokens == 6


def test_a_whole_hit_alone_is_not_padded():
    serving = Serving(**SPEC)
    serving.add("a", 9, shared=8, max_tokens=1)
    serving.step()
    serving.add("b", 9, shared=8)
    assert serving.step().num_scheduled_tokens == {"b": 1}


def test_asynchronous_steps_hold_places_for_drafts():
    """Prompt 10, 3 drafts. computed and placeholders: 10, 1; then n = 4: 14, 1 + 4 = 5."""
    serving = Serving(async_scheduling=True, **SPEC)
    a = serving.add("a", 10)
    first = serving.schedule()
    assert (a.num_computed_tokens, a.num_output_placeholders, a.num_draft_tokens) == (10, 1, 3)
    second = serving.schedule()
    assert second.scheduled_spec_decode_tokens == {"a": 3}
    assert (a.num_computed_tokens, a.num_output_placeholders) == (14, 5)
    serving.scheduler.update_from_output(first)
    assert (a.num_tokens, a.num_output_placeholders) == (11, 4)
    serving.accept["a"] = 2
    serving.scheduler.update_from_output(second)
    # Two of four came, two were rejected: nothing is in flight, 12 of 13 are computed.
    assert (a.num_tokens, a.num_computed_tokens, a.num_output_placeholders) == (13, 12, 0)
    check_integrity(serving.manager)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("accepted", [1, 2, 4])
def test_every_request_gets_exactly_its_tokens(is_async, accepted):
    """20 tokens whatever is accepted; sync: 1 + ceil(19 / accepted) steps."""
    serving = Serving(async_scheduling=is_async, **SPEC)
    a = serving.add("a", 10, max_tokens=20)
    serving.accept["a"] = accepted
    num_steps = 0
    while "a" in serving.scheduler.requests:
        output = serving.step()
        num_steps += bool(output.scheduled)
        if not is_async:
            serving.scheduler.update_draft_token_ids({"a": 3})
    assert a.num_output_tokens == 20
    assert num_steps == 1 + -(-19 // accepted)
    assert serving.manager.block_pool.get_num_free_blocks() == 99

"""Identities of prefixes, where the reference has hashes. Source: spec/manager.md 2."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sim.prefix_ids import PrefixIds
from sim.request import Request, RequestSpec, RequestStatus, Span
from tests.helpers import Prefixes, full
from tests.spec.worlds import manager_of


def ids_of(identities, *spans, salt=None):
    return list(identities.of_spans([Span(*span) for span in spans], salt))


# -- 2.3 chaining -------------------------------------------------------------------------------
@pytest.mark.parametrize("changed", [0, 3, 4, 9, 15])
def test_another_token_changes_exactly_the_blocks_from_its_own_on(changed):
    """Invariant 15: token t changes the identities of blocks >= t // 4, and no others."""
    identities = PrefixIds(4)
    plain = ids_of(identities, ("a", 0, 16))
    spans = [("a", 0, changed), ("b", 0, 1), ("a", changed + 1, 15 - changed)]
    other = ids_of(identities, *[span for span in spans if span[2]])
    same = [x == y for x, y in zip(plain, other, strict=True)]
    assert same == [i < changed // 4 for i in range(4)]


def test_an_identity_stands_for_the_whole_prefix():
    """Equal blocks behind different beginnings are different."""
    identities = PrefixIds(4)
    first = ids_of(identities, ("a", 0, 4), ("c", 0, 4))
    second = ids_of(identities, ("b", 0, 4), ("c", 0, 4))
    assert first[1] != second[1]
    assert ids_of(identities, ("a", 0, 4), ("c", 0, 4)) == first


@pytest.mark.parametrize("num_tokens", [0, 3, 4, 7, 8, 70])
def test_length_law(num_tokens):
    """Invariant 15: num_tokens // hash_block_size identities; a partial tail has none."""
    spans = [("a", 0, num_tokens)] if num_tokens else []
    assert len(ids_of(PrefixIds(4), *spans)) == num_tokens // 4


def test_identities_are_append_only():
    identities = PrefixIds(4)
    rows = [ids_of(identities, ("a", 0, n)) for n in range(1, 30)]
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(rows))


# -- 2.4 extra keys -----------------------------------------------------------------------------
def test_a_salt_separates_every_block_of_a_prompt():
    """The salt enters the first block's hash; the chain carries it on."""
    identities = PrefixIds(4)
    plain = ids_of(identities, ("a", 0, 12))
    salted = ids_of(identities, ("a", 0, 12), salt="s")
    assert not set(plain) & set(salted)
    assert ids_of(identities, ("a", 0, 12), salt="s") == salted
    assert not set(salted) & set(ids_of(identities, ("a", 0, 12), salt="t"))


def test_an_empty_salt_is_no_salt():
    """2.4: only if truthy."""
    identities = PrefixIds(4)
    assert ids_of(identities, ("a", 0, 12), salt="") == ids_of(identities, ("a", 0, 12))


def test_salted_requests_share_with_their_own_kind_only():
    identities = PrefixIds(4)
    manager = manager_of(full(4))
    hits = []
    for number, salt in enumerate([None, "s", "s", None]):
        spec = RequestSpec(f"r{number}", (Span("a", 0, 12),), Span("o", 0, 1), cache_salt=salt)
        request = Request(spec.request_id, 12, 1, list(identities.of(spec)))
        rows, hit = manager.get_computed_blocks(request)
        manager.allocate_slots(request, 12 - hit, hit, rows)
        hits.append(hit)
    assert hits == [0, 0, 8, 8]


# -- 2.5 granularity ----------------------------------------------------------------------------
def test_the_coarse_view_is_every_kth_identity():
    """A, B, C, D, E at 16 are B, D at 32: no new identity."""
    request = Prefixes(16).request("a", range(80), max_tokens=0)
    a, b, c, d, e = request.prefix_ids
    assert list(request.prefix_ids_by(2)) == [b, d]
    assert list(request.prefix_ids_by(1)) == [a, b, c, d, e]
    assert list(request.prefix_ids_by(3)) == [c]
    assert list(request.prefix_ids_by(6)) == []


# -- 2.6 requests -------------------------------------------------------------------------------
def test_states_stand_in_the_order_of_the_reference():
    """Finished exactly if beyond PREEMPTED."""
    names = [status.name for status in RequestStatus]
    assert names == [
        "WAITING",
        "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        "WAITING_FOR_REMOTE_KVS",
        "WAITING_FOR_STREAMING_REQ",
        "RUNNING",
        "PREEMPTED",
        "FINISHED_STOPPED",
        "FINISHED_LENGTH_CAPPED",
        "FINISHED_ABORTED",
        "FINISHED_IGNORED",
        "FINISHED_ERROR",
        "FINISHED_REPETITION",
    ]
    assert [s.name for s in RequestStatus if s.is_finished] == names[6:]
    assert list(RequestStatus) == sorted(RequestStatus)


def test_a_new_request_begins_at_zero():
    request = Request("a", 10, 5)
    assert (request.num_tokens, request.num_computed_tokens, request.num_preemptions) == (10, 0, 0)
    assert (request.num_output_placeholders, request.async_tokens_to_discard) == (0, 0)
    assert (request.next_decode_eligible_step, request.is_prefill_chunk) == (0, False)
    assert request.status is RequestStatus.WAITING


def test_requests_are_equal_only_to_themselves():
    assert Request("a", 10, 5) != Request("a", 10, 5)

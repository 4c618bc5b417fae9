"""One situation for each cause, small enough to work out by hand."""

from __future__ import annotations

import pytest

from sim.core import kv_cache_manager
from sim.reasons.recording import Reasons
from tests.helpers import Prefixes, admit, full, make_manager, mamba, put_in_cache, sliding


class Case:
    """A manager, its reasons, and requests made of numbered tokens."""

    def __init__(self, specs, num_blocks, **settings):
        self.reasons = Reasons(len(specs))
        self.manager = make_manager(
            kv_cache_manager, specs, num_blocks=num_blocks, observer=self.reasons, **settings
        )
        self.reasons.attach(self.manager)
        self.prefixes = Prefixes(self.manager.coordinator.hash_block_size)

    def request(self, name, *parts):
        """A request whose prompt is made of (source, first, end) parts."""
        return self.prefixes.request(name, [(s, i) for s, a, b in parts for i in range(a, b)])

    def serve(self, name, *parts, chunk=None):
        """Look up, allocate everything (by chunks), give back; return the hit."""
        self.manager.new_step_starts()
        request = self.request(name, *parts)
        hit, new = admit(self.manager, request, chunk)
        assert new is not None
        while request.num_computed_tokens < request.num_tokens:
            count = min(chunk or 1 << 30, request.num_tokens - request.num_computed_tokens)
            assert self.manager.allocate_slots(request, count) is not None
            request.num_computed_tokens += count
        self.manager.free(request)
        return hit

    def rows(self, request_id, *columns):
        """Of a request's last lookup, the reason rows as tuples of these columns."""
        lookups, reasons = self.reasons.tables.lookups(), self.reasons.tables.reasons()
        number = lookups[lookups["request_id"] == request_id]["lookup"].iloc[-1]
        rows = reasons[reasons["lookup"] == number]
        plain = rows.astype(object).where(rows.notna(), None)
        return [tuple(row) for row in plain[list(columns)].itertuples(index=False)]

    def lookup(self, request_id):
        lookups = self.reasons.tables.lookups()
        return lookups[lookups["request_id"] == request_id].iloc[-1]


SHORT = ("group", "cause", "first_token", "end_token", "decides")


def test_content_that_nobody_has_seen_is_new_and_the_last_token_is_never_cached():
    case = Case([full(4)], 10)
    assert case.serve("a", ("x", 0, 10)) == 0
    assert case.rows("a", *SHORT) == [(-1, "new", 0, 9, 1), (-1, "last_token", 9, 10, 1)]


def test_an_equal_prompt_loses_what_lies_behind_the_last_boundary():
    # 8 tokens are 2 full blocks; the last token cannot hit, so only the first block can
    case = Case([full(4)], 10)
    case.serve("a", ("x", 0, 8))
    assert case.serve("b", ("x", 0, 8)) == 4
    assert case.rows("b", *SHORT) == [(-1, "unaligned", 4, 7, 1), (-1, "last_token", 7, 8, 1)]


def test_evicted_content_names_who_took_it_when_and_for_which_group():
    # 4 usable blocks: a stores 2, b needs 4 and takes all
    case = Case([full(4)], 5)
    case.reasons.at(100, 0)
    case.serve("a", ("x", 0, 8))
    case.reasons.at(250, 1)
    case.serve("b", ("y", 0, 16))
    case.reasons.at(1000, 7)
    assert case.serve("c", ("x", 0, 9)) == 0
    columns = ("cause", "tokens", "blocks", "event_request", "event_groups", "event_ns")
    assert case.rows("c", *columns)[0] == ("evicted", 8, 2, "b", "0", 250)
    columns = ("event_step", "stored_by", "stored_ns", "stored_step", "blocks_taken_since")
    assert case.rows("c", *columns)[0] == (1, "a", 100, 0, 4)
    assert tuple(case.lookup("c")[["step", "time_ns", "blocks_taken"]]) == (7, 1000, 6)


def test_blocks_evicted_by_order_name_nobody():
    case = Case([full(4)], 10)
    case.serve("a", ("x", 0, 8))
    case.manager.evict_blocks(list(range(1, 10)))
    case.serve("z", ("z", 0, 4))
    case.serve("b", ("x", 0, 9))
    columns = ("cause", "tokens", "event_request", "event_groups")
    assert case.rows("b", *columns)[0] == ("evicted", 8, None, None)


def test_one_group_vetoes_what_another_one_has():
    # window 8: a hit needs 2 sliding blocks; without block 2 it can end at 4 and 8, not at 12, 16
    case = Case([full(4), sliding(4, 8)], 20)
    request = case.request("a", ("x", 0, 17))
    admit(case.manager, request)
    case.manager.evict_blocks([case.manager.get_block_ids("a")[1][2]])
    case.manager.free(request)
    assert case.serve("b", ("x", 0, 17), ("new", 0, 3)) == 8
    assert case.rows("b", *SHORT, "by_group", "by_cause", "blocks") == [
        (0, "vetoed", 8, 16, 0, 1, "evicted", 0),
        (1, "evicted", 8, 16, 1, None, None, 1),
        (-1, "new", 16, 19, 1, None, None, 0),
        (-1, "last_token", 19, 20, 1, None, None, 0),
    ]
    lookup = case.lookup("b")
    assert (lookup["cuts"], lookup["alone_g0"], lookup["alone_g1"]) == ("g1:16>8", 16, 8)


def test_the_search_is_told_cut_by_cut():
    # the trace of spec/manager.md 4.4, all blocks 4: full 72; sw8 68; sw20 64; sw8 56; sw20 40
    case = Case([full(4), sliding(4, 8), sliding(4, 20)], 80)
    request = case.request("a", ("x", 0, 80))
    admit(case.manager, request)
    tables = case.manager.get_block_ids("a")
    # sw8 needs 2 blocks, sw20 needs 5
    gone = {0: [18, 19], 1: [17, 14], 2: [16, 13, 10]}
    case.manager.evict_blocks([tables[g][i] for g, ids in gone.items() for i in ids])
    case.manager.free(request)
    # edges: sw8 forbids 72, 76 (17) and 60, 64 (14); sw20 forbids 68..84 (16), 56..72 (13), 44..60
    assert case.serve("b", ("x", 0, 80), ("new", 0, 1)) == 40
    cuts = case.lookup("b")["cuts"]
    assert cuts == "g0:80>72 g1:72>68 g2:68>40"


def test_a_block_that_speculation_drops_is_lost_for_eagle():
    # 4 cached blocks, none behind them: the last is dropped
    case = Case([full(4)], 10, eagle_groups=[0])
    case.serve("a", ("x", 0, 17))
    assert case.serve("b", ("x", 0, 17), ("new", 0, 3)) == 12
    assert case.rows("b", *SHORT) == [
        (0, "eagle", 12, 16, 1),
        (-1, "new", 16, 19, 1),
        (-1, "last_token", 19, 20, 1),
    ]


def test_recurrent_states_are_kept_only_where_a_chunk_ended():
    # one chunk of 16: the state at 16 exists, those at 4, 8, 12 never did
    case = Case([full(4), mamba(4)], 20)
    case.serve("a", ("x", 0, 17), chunk=16)
    assert case.serve("b", ("x", 0, 12), ("new", 0, 8)) == 0
    assert case.rows("b", *SHORT, "by_cause", "blocks") == [
        (0, "vetoed", 0, 12, 0, "not_kept", 0),
        (1, "not_kept", 0, 12, 1, None, 3),
        (-1, "new", 12, 19, 1, None, 0),
        (-1, "last_token", 19, 20, 1, None, 0),
    ]
    assert case.serve("c", ("x", 0, 17), ("new", 0, 8)) == 16


def test_retention_masks_content_out():
    # retention 0 keeps what an exact replay of 33 tokens needs: the window before 32
    case = Case([full(16), sliding(4, 5)], 30, retention_interval=0)
    case.serve("a", ("x", 0, 33))
    assert case.serve("b", ("x", 0, 16), ("new", 0, 8)) == 0
    assert case.rows("b", "group", "cause", "tokens", "by_cause")[:2] == [
        (0, "vetoed", 16, "masked"),
        (1, "masked", 16, None),
    ]
    assert case.serve("c", ("x", 0, 33)) == 32


def test_a_reset_is_not_an_eviction():
    case = Case([full(4)], 10)
    case.serve("a", ("x", 0, 8))
    assert case.manager.reset_prefix_cache()
    assert case.serve("b", ("x", 0, 9)) == 0
    assert case.rows("b", "cause", "tokens") == [("reset", 8), ("last_token", 1)]
    assert case.serve("c", ("x", 0, 9)) == 8


def test_content_stored_again_and_lost_again_has_the_last_reason():
    case = Case([full(4)], 5)
    case.serve("a", ("x", 0, 8))
    assert case.manager.reset_prefix_cache()
    case.serve("b", ("x", 0, 8))
    case.serve("c", ("y", 0, 16))
    case.serve("d", ("x", 0, 9))
    assert case.rows("d", "cause", "event_request")[0] == ("evicted", "c")


def test_content_that_only_another_group_has_seen():
    case = Case([full(4), sliding(4, 8)], 20)
    request = case.request("b", ("x", 0, 9))
    names = request.prefix_ids[:2]
    blocks = put_in_cache(case.manager, 0, names)
    case.reasons.registered(0, "a", 0, 2, -1, list(blocks.values()), names)
    admit(case.manager, request)
    assert case.rows("b", "group", "cause", "tokens", "by_cause")[:2] == [
        (0, "vetoed", 8, "never_cached"),
        (1, "never_cached", 8, None),
    ]


def test_a_rule_of_the_reference_gives_up_what_every_group_has():
    # Q4: full 16 and sliding 4 (window 41) under EAGLE; sliding blocks 0..4 make 16 sound, yet 0
    case = Case([full(16), sliding(4, 41)], 40, eagle_groups=[1])
    request = case.request("b", ("x", 0, 20), ("new", 0, 20))
    coarse, fine = request.prefix_ids_by(4)[:1], request.prefix_ids[:5]
    for group_id, names in ((0, coarse), (1, fine)):
        blocks = put_in_cache(case.manager, group_id, names)
        case.reasons.registered(group_id, "a", 0, len(names), -1, list(blocks.values()), names)
    hit, _ = admit(case.manager, request)
    assert hit == 0
    assert case.rows("b", *SHORT) == [
        (-1, "rule", 0, 16, 1),
        (-1, "unaligned", 16, 20, 1),
        (-1, "new", 20, 39, 1),
        (-1, "last_token", 39, 40, 1),
    ]


def test_a_request_that_waits_keeps_its_last_lookup_and_the_number_of_them():
    case = Case([full(4)], 5)
    case.serve("a", ("x", 0, 8))
    holder = case.request("h", ("y", 0, 8))
    admit(case.manager, holder)
    waiting = case.request("w", ("x", 0, 16))
    case.reasons.at(10, 3)
    hit, new = admit(case.manager, waiting)
    assert (hit, new) == (8, None)
    more = case.request("m", ("z", 0, 4))
    admit(case.manager, more)  # takes the block of x[4:8]
    case.reasons.at(20, 4)
    assert case.manager.get_computed_blocks(waiting)[1] == 4
    case.manager.free(holder)
    case.manager.free(more)
    admit(case.manager, waiting)
    lookup = case.lookup("w")
    assert (lookup["hit_tokens"], lookup["admitted"]) == (4, 1)
    assert lookup["attempts"] >= 2
    assert case.rows("w", "cause", "event_request")[0] == ("evicted", "m")


def test_a_lookup_that_led_nowhere_is_marked():
    case = Case([full(4)], 3)
    waiting = case.request("w", ("x", 0, 16))
    assert admit(case.manager, waiting)[1] is None
    tables = case.reasons.finish()
    assert tables.lookups()[["request_id", "admitted"]].to_numpy().tolist() == [["w", 0]]


def test_a_lookup_before_the_manager_is_known_is_an_error():
    with pytest.raises(RuntimeError, match="attach"):
        Reasons(1).looked_up(Prefixes(4).request("a", range(4)), 3, 0)

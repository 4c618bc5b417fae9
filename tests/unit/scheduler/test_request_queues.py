"""Queues of waiting requests. Source: spec/manager.md 2.6, 6.2."""

from __future__ import annotations

import pytest

from sim.request import Request
from sim.scheduler.policies import SCHEDULING_POLICIES


def request(name, priority=0, arrival_ns=0):
    return Request(name, 4, 4, priority=priority, arrival_ns=arrival_ns)


def filled(policy, requests):
    queue = SCHEDULING_POLICIES[policy].make_queue()
    for one in requests:
        queue.add_request(one)
    return queue


def names(queue):
    return [one.request_id for one in queue]


@pytest.mark.parametrize("policy", list(SCHEDULING_POLICIES))
def test_an_empty_queue_has_no_first(policy):
    queue = filled(policy, [])
    assert not queue
    with pytest.raises(IndexError):
        queue.peek_request()
    with pytest.raises(IndexError):
        queue.pop_request()


def test_fcfs_keeps_arrivals_and_lets_others_before_them():
    queue = filled("fcfs", map(request, "abc"))
    queue.prepend_request(request("d"))
    assert names(queue) == ["d", "a", "b", "c"]
    # One by one to the front: the argument's order is reversed.
    queue.prepend_requests(filled("fcfs", map(request, "xy")))
    assert names(queue) == ["y", "x", "d", "a", "b", "c"]


def test_priority_orders_by_priority_arrival_and_id_whatever_is_done():
    late, early = request("a", 1, 9), request("b", 1, 3)
    twin, urgent = request("c", 1, 3), request("z", 0, 50)
    queue = filled("priority", [late, twin, early])
    queue.prepend_request(urgent)
    assert names(queue) == names(queue) == ["z", "b", "c", "a"]
    assert [queue.pop_request().request_id for _ in range(4)] == ["z", "b", "c", "a"]
    assert len(queue) == 0


@pytest.mark.parametrize("policy", list(SCHEDULING_POLICIES))
def test_removed_requests_are_gone_and_their_ids_may_come_back(policy):
    one, two, three = request("a", 0), request("b", 1), request("c", 2)
    queue = filled(policy, [one, two, three])
    queue.remove_requests([one, three, request("nobody")])
    again = request("a", 5)
    queue.add_request(again)
    assert names(queue) == ["b", "a"]
    assert (queue.pop_request(), queue.pop_request()) == (two, again)
    assert not queue


def test_removed_requests_do_not_pile_up_behind_one_that_waits():
    waits = request("first", -1)
    queue = filled("priority", [waits])
    for number in range(1000):
        away = request(f"away{number}", 1)
        queue.add_request(away)
        queue.remove_requests([away])
    assert len(queue._heap) < 100
    assert queue.pop_request() is waits


def test_victims():
    running = [request("a", 1, 1), request("b", 2, 5), request("c", 2, 5), request("d", 2, 4)]
    assert SCHEDULING_POLICIES["fcfs"].victim(running) == 3
    assert SCHEDULING_POLICIES["priority"].victim(running) == 1  # the first of equals

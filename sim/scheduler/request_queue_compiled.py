"""The compiled halves of both waiting queues: a list through the records, and a heap of them.

``s`` is the state (``scheduler_state_compiled.Scheduler``); an empty queue's head is -1.
"""

from __future__ import annotations

from sim.jit import compiled


# -- either --------------------------------------------------------------------------------------
@compiled
def add_request(s, r):
    """Put a request where it belongs."""
    if s.limits[0].is_priority:
        _push(s, r)
    else:
        _append(s, r)
    s.counters[0].num_waiting += 1


@compiled
def prepend_request(s, r):
    """Put a request before all others, if the policy lets it."""
    if s.limits[0].is_priority:
        _push(s, r)
    else:
        _prepend(s, r)
    s.counters[0].num_waiting += 1


@compiled
def peek_request(s):
    """Return the first request, -1 if none waits."""
    counters = s.counters[0]
    if not counters.num_waiting:
        return -1
    return s.heap[0] if s.limits[0].is_priority else counters.waiting_head


@compiled
def remove_request(s, r):
    """Take a request that waits out of the queue, wherever it stands."""
    if s.limits[0].is_priority:
        _pop_at(s, _find(s, r))
    else:
        _unlink(s, r)
    s.counters[0].num_waiting -= 1


# -- first come, first served ----------------------------------------------------------------------
@compiled
def _append(s, r):
    counters, requests = s.counters[0], s.manager.requests
    last = counters.waiting_tail
    requests[r].next, requests[r].previous = -1, last
    counters.waiting_tail = r
    if last >= 0:
        requests[last].next = r
    else:
        counters.waiting_head = r


@compiled
def _prepend(s, r):
    counters, requests = s.counters[0], s.manager.requests
    first = counters.waiting_head
    requests[r].next, requests[r].previous = first, -1
    counters.waiting_head = r
    if first >= 0:
        requests[first].previous = r
    else:
        counters.waiting_tail = r


@compiled
def _unlink(s, r):
    counters, requests = s.counters[0], s.manager.requests
    before, after = requests[r].previous, requests[r].next
    if before >= 0:
        requests[before].next = after
    else:
        counters.waiting_head = after
    if after >= 0:
        requests[after].previous = before
    else:
        counters.waiting_tail = before


# -- by priority -----------------------------------------------------------------------------------
@compiled
def is_before(requests, a, b):
    """Whether the smaller (priority, arrival, id) is that of ``a``."""
    if requests[a].priority != requests[b].priority:
        return requests[a].priority < requests[b].priority
    if requests[a].arrival_ns != requests[b].arrival_ns:
        return requests[a].arrival_ns < requests[b].arrival_ns
    return requests[a].tie < requests[b].tie


@compiled
def _push(s, r):
    place = s.counters[0].num_waiting
    s.heap[place] = r
    _rise(s, place)


@compiled
def _rise(s, place):
    heap, requests = s.heap, s.manager.requests
    r = heap[place]
    while place > 0 and is_before(requests, r, heap[(place - 1) // 2]):
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = r


@compiled
def _sink(s, place, length):
    heap, requests = s.heap, s.manager.requests
    r = heap[place]
    while 2 * place + 1 < length:
        child = 2 * place + 1
        if child + 1 < length and is_before(requests, heap[child + 1], heap[child]):
            child += 1
        if not is_before(requests, heap[child], r):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = r


@compiled
def _pop_at(s, place):
    length = s.counters[0].num_waiting - 1
    s.heap[place] = s.heap[length]
    if place < length:
        _rise(s, place)
        _sink(s, place, length)


@compiled
def _find(s, r):
    """Place of a request in the heap. Cost: O(waiting), O(1) for the first one."""
    place = 0
    while s.heap[place] != r:
        place += 1
    return place

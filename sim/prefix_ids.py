"""Names of prefixes: one small integer for the tokens up to each hash-block boundary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from sim.errors import InvariantError
from sim.request import ListedBlocks, RequestSpec, Run, Span, merge_spans

SWEEP_AFTER = 1_000_000
"""Identities and spans taken in before a sweep is worth its time; ours."""

Flat = tuple[Any, ...]
"""Source, start and length of one span after the other: one object for all, not one for each."""


class _Node:
    """Spans behind those of its parent, and the identities of the hash blocks that end in them.

    end : tokens up to its last one, those of its parents included
    num_holders : unfinished requests that end in it
    seen_in : number of the sweep that last found it needed
    """

    __slots__ = ("children", "end", "num_holders", "parent", "runs", "seen_in", "spans")

    def __init__(self, parent: _Node | None, end: int, spans: Flat, runs: list[Run]):
        self.parent = parent
        self.end = end
        self.spans = spans
        self.runs = runs
        self.children: dict[Flat, _Node] = {}
        self.num_holders = 0
        self.seen_in = 0


class PrefixIds:
    """Dense integers for prefixes: equal integers exactly for equal tokens up to the boundary.

    The sequences of spans form a radix tree: what several begin with is one chain of nodes, and
    a node is cut in two where a new sequence leaves it, also in the middle of a span. A node has
    one integer for each hash block that ends in it. So the cost is per node and per run of
    integers, a comparison per span, never per token.

    Nothing is forgotten unless ``forget`` is called. It drops each node that no unfinished request
    runs through, under whose identities nothing is cached, and behind which no node is left; its
    integers are handed out again. A node whose own blocks were evicted stays while a deeper one is
    needed, for the name of the deeper one depends on it: a sliding window loses its early blocks
    first.

    Invariants: an identity has one meaning from the call that gives it until it is forgotten. Each
    integer below the first that was never given is either in one node, once, or free. The lowest
    free ones are given first; so without ``forget`` they are given in order from 0.
    Source: ours; plays the part of vLLM's chained block hashes (spec/manager.md 2.3, 2.6).
    """

    def __init__(self, hash_block_size: int, sweep_after: int = SWEEP_AFTER):
        if hash_block_size < 1:
            raise ValueError(f"hash_block_size is {hash_block_size}, must be at least 1")
        self.hash_block_size = hash_block_size
        self.sweep_after = sweep_after
        self.high_water = 0
        """Every identity that was ever given is below it."""
        self._roots: dict[tuple[str | None, str | None], _Node] = {}
        self._num_sweeps = 0
        self._free: list[Run] = []  # below _next, the lowest last
        self._num_free = 0
        self._next = 0
        self._until_sweep = sweep_after

    def __len__(self) -> int:
        """Return how many identities have a meaning."""
        return self._next - self._num_free

    # -- naming ----------------------------------------------------------------------------------
    def of(self, spec: RequestSpec) -> np.ndarray:
        """Return int64 ids of each full hash block of prompt and output.

        Returns
        -------
        array, shape ((num_prompt_tokens + num_output_tokens) // hash_block_size,)
        """
        return _array(self._walk(_flat_of(spec), spec.cache_salt, spec.lora_name)[0])

    def of_spans(
        self, spans: Iterable[Span], salt: str | None = None, lora: str | None = None
    ) -> np.ndarray:
        """Return int64 ids of each full hash block of a sequence of spans.

        salt, lora : equal tokens under another salt or adapter are other prefixes.
        """
        return _array(self._walk(_flat(spans), salt, lora)[0])

    def hold(self, spec: RequestSpec) -> tuple[list[Run], _Node]:
        """Return the ids of ``of`` as runs, and what ``release`` takes when the request has ended.

        Until then its identities are not forgotten.
        """
        runs, node = self._walk(_flat_of(spec), spec.cache_salt, spec.lora_name)
        node.num_holders += 1
        return runs, node

    def release(self, node: _Node) -> None:
        """Say that a request has ended; its identities stay as long as something is cached."""
        node.num_holders -= 1

    def _walk(self, rest: Flat, salt: str | None, lora: str | None) -> tuple[list[Run], _Node]:
        """Return the ids as runs, and a node that the sequence ends in."""
        node = self._root(salt or None, lora or None)
        pieces: list[Run] = []
        at = 0
        while at < len(rest):
            child = node.children.get(rest[at : at + 2])
            if child is None:
                child = self._added(node, rest[at:])
                at = len(rest)
            elif rest[at : at + len(child.spans)] == child.spans:
                at += len(child.spans)
            else:
                common, rest = _parted(child.spans, rest[at:])
                at = 0
                if not rest:
                    pieces += _cut(child.runs, self._count(node.end, node.end + common))
                    return pieces, child
                child = self._upper(node, child, common)
            pieces += child.runs
            node = child
        return pieces, node

    def _root(self, salt: str | None, lora: str | None) -> _Node:
        root = self._roots.get((salt, lora))
        if root is None:
            root = self._roots[salt, lora] = _Node(None, 0, (), [])
            self._until_sweep -= 1
        return root

    def _added(self, parent: _Node, spans: Flat) -> _Node:
        """Return a new child with identities of its own."""
        end = parent.end + sum(spans[2::3])
        count = self._count(parent.end, end)
        child = parent.children[spans[:2]] = _Node(parent, end, spans, self._taken(count))
        self._until_sweep -= count + len(spans) // 3
        return child

    def _upper(self, parent: _Node, node: _Node, num_tokens: int) -> _Node:
        """Cut a node in two behind so many tokens, unless it ends there; return the first part.

        The second part is the old object: whoever holds it goes on to hold both.
        """
        first, second = _cut_spans(node.spans, num_tokens)
        if not second:
            return node
        end = parent.end + num_tokens
        count = self._count(parent.end, end)
        upper = _Node(parent, end, first, _cut(node.runs, count))
        parent.children[first[:2]] = upper
        node.parent, node.spans, node.runs = upper, second, _without(node.runs, count)
        upper.children[second[:2]] = node
        self._until_sweep -= 1
        return upper

    def _count(self, begin: int, end: int) -> int:
        """Return how many hash blocks end behind token ``begin``, up to ``end``."""
        return end // self.hash_block_size - begin // self.hash_block_size

    def _taken(self, wanted: int) -> list[Run]:
        """Take the lowest free integers, then new ones."""
        runs = []
        while wanted and self._free:
            first, end = self._free.pop()
            if first + wanted < end:
                self._free.append((first + wanted, end))
                end = first + wanted
            runs.append((first, end))
            self._num_free -= end - first
            wanted -= end - first
        if wanted:
            runs.append((self._next, self._next + wanted))
            self._next += wanted
            self.high_water = max(self.high_water, self._next)
        return runs

    # -- forgetting ------------------------------------------------------------------------------
    @property
    def is_due(self) -> bool:
        """True when ``forget`` is worth its time.

        So many identities and spans were taken in since the last time as were left then, or
        ``sweep_after`` if that is more. So the time of all sweeps is proportional to what was
        taken in, and what is kept is at most twice what was needed at the last one, or
        ``sweep_after`` more than it.
        """
        return self._until_sweep <= 0

    def forget(self, cached_ids: np.ndarray) -> None:
        """Forget what neither an unfinished request nor the cache can refer to.

        cached_ids : int64, every identity that a block is cached under, in any order, repeated or
            not. Requests that were not held (``of``) have lost their names afterwards.

        Raises InvariantError, and forgets nothing, if one of them names nothing.
        Cost: O(nodes + cached_ids x log(nodes)).
        """
        nodes = self._breadth_first()
        self._num_sweeps += 1
        for node in _holding(nodes, cached_ids):
            node.seen_in = self._num_sweeps
        kept = self._without_the_dead(nodes)
        self._collect_free(sorted(run for node in kept for run in node.runs))
        num_spans = sum(len(node.spans) // 3 for node in kept)
        self._until_sweep = max(len(self) + num_spans, self.sweep_after)

    def _breadth_first(self) -> list[_Node]:
        """Return all nodes, parents before their children."""
        nodes = [*self._roots.values()]
        for node in nodes:
            nodes.extend(node.children.values())
        return nodes

    def _without_the_dead(self, nodes: Sequence[_Node]) -> list[_Node]:
        """Cut off what is neither marked nor held nor before something that is; return the rest."""
        sweep, kept = self._num_sweeps, []
        for node in reversed(nodes):
            if node.seen_in == sweep or node.num_holders:
                node.seen_in = sweep
                kept.append(node)
                if node.parent is not None:
                    node.parent.seen_in = sweep
            elif node.parent is not None:
                del node.parent.children[node.spans[:2]]
        self._roots = {name: root for name, root in self._roots.items() if root.seen_in == sweep}
        return kept

    def _collect_free(self, taken: Sequence[Run]) -> None:
        """Note every integer below the highest in use that no node has."""
        gaps = [(end, first) for (_, end), (first, _) in pairwise([(0, 0), *taken]) if end < first]
        self._next = taken[-1][1] if taken else 0
        self._free = gaps[::-1]
        self._num_free = sum(end - first for first, end in gaps)

    # -- recount ---------------------------------------------------------------------------------
    def collisions(self) -> list[int]:
        """Return the identities that do not name exactly one prefix; none, unless damage was done.

        An identity may be given once, in one node, and all that were given are below the first
        that was never given; those that are free are in no node. Cost: O(identities).
        """
        runs = [run for node in self._breadth_first() for run in node.runs]
        given = np.concatenate([np.arange(*run) for run in (*runs, *self._free, (0, 0))])
        names, counts = np.unique(given, return_counts=True)
        lost = np.setdiff1d(np.arange(self._next), names)
        foreign = names[(names < 0) | (names >= self._next)]
        broken: list[int] = np.unique(
            np.concatenate([names[counts > 1], lost, foreign]).astype(np.int64)
        ).tolist()
        return broken


class Identities:
    """The names of one run's requests, forgotten when nothing can refer to them.

    cached_ids : returns every identity that a block is cached under, int64, in any order, repeated
        or not; None where names are not to be forgotten, since they are written out: with KV
        events, reasons, observers and verification the same integer means the same all the time
    """

    def __init__(
        self,
        hash_block_size: int,
        cached_ids: Callable[[], np.ndarray] | None = None,
        sweep_after: int = SWEEP_AFTER,
    ):
        self.names = PrefixIds(hash_block_size, sweep_after)
        self._cached_ids = cached_ids
        self._held: dict[str, _Node] = {}

    @property
    def high_water(self) -> int:
        """Every identity that was ever given is below it."""
        return self.names.high_water

    def make(self, spec: RequestSpec) -> np.ndarray:
        """Return the int64 identities of a request, which stay until it has ``ended``.

        Another request of this id must have ended. Forgets others first, if that is due.
        """
        return _array(self.make_runs(spec))

    def make_runs(self, spec: RequestSpec) -> list[Run]:
        """Return what ``make`` does, as runs of identities."""
        if self._cached_ids is not None and self.names.is_due:
            self.names.forget(self._cached_ids())
        runs, node = self.names.hold(spec)
        if self._cached_ids is not None:
            self._held[spec.request_id] = node
        return runs

    def ended(self, request_id: str) -> None:
        """Say that a request has ended; one that got no identities is passed over."""
        node = self._held.pop(request_id, None)
        if node is not None:
            self.names.release(node)


def _flat_of(spec: RequestSpec) -> Flat:
    """Return the spans of prompt and output in normal form, flat."""
    if isinstance(spec.prompt, ListedBlocks):
        return (*spec.prompt.flat(), *spec.output)
    return _flat((*spec.prompt, spec.output))


def _flat(spans: Iterable[Span]) -> Flat:
    """Return the spans in normal form, flat; one that starts at 0 cannot continue another."""
    spans = tuple(spans)
    flat: Flat = (*chain.from_iterable(spans),)
    is_normal = not any(flat[1::3]) and min(flat[2::3], default=1) > 0
    return flat if is_normal else (*chain.from_iterable(merge_spans(spans)),)


def _parted(known: Flat, spans: Flat) -> tuple[int, Flat]:
    """Return how many tokens both begin with, and what of ``spans`` comes behind them."""
    same = 0
    while known[same : same + 3] == spans[same : same + 3] != ():
        same += 3
    common = sum(known[2:same:3])
    if known[same : same + 2] != spans[same : same + 2] or same == len(spans):
        return common, spans[same:]
    inside = min(known[same + 2], spans[same + 2])
    return common + inside, _cut_spans(spans[same:], inside)[1]


def _cut_spans(spans: Flat, num_tokens: int) -> tuple[Flat, Flat]:
    """Return the first so many tokens, and the rest."""
    for at in range(0, len(spans), 3):
        source, start, length = spans[at : at + 3]
        if num_tokens < length:
            first = (source, start, num_tokens) if num_tokens else ()
            second = (source, start + num_tokens, length - num_tokens)
            return (*spans[:at], *first), (*second, *spans[at + 3 :])
        num_tokens -= length
    return spans, ()


def _cut(runs: Sequence[Run], count: int) -> list[Run]:
    """Return the first so many integers."""
    kept = []
    for first, end in runs:
        if count <= 0:
            break
        kept.append((first, min(end, first + count)))
        count -= end - first
    return kept


def _without(runs: Sequence[Run], count: int) -> list[Run]:
    """Return all but the first so many integers."""
    kept = []
    for first, end in runs:
        if end - first > count:
            kept.append((first + count, end))
        count = max(0, count - (end - first))
    return kept


def _array(pieces: Sequence[Run]) -> np.ndarray:
    """Return the integers of all pieces in their order."""
    joined: list[np.ndarray] = []
    first = last = 0
    for begin, end in pieces:
        if begin != last:
            joined.append(np.arange(first, last))
            first = begin
        last = end
    joined.append(np.arange(first, last))
    return np.concatenate(joined) if len(joined) > 1 else joined[0]


def _holding(nodes: Sequence[_Node], ids: np.ndarray) -> list[_Node]:
    """Return the nodes that these identities belong to."""
    owners = [node for node in nodes for _ in node.runs]
    runs = [(-1, -1), *(run for node in nodes for run in node.runs)]
    firsts, ends = np.array(runs, np.int64).T
    order = np.argsort(firsts)
    places = order[np.searchsorted(firsts[order], ids, side="right") - 1]
    nameless = np.unique(ids[ids >= ends[places]])
    if len(nameless):
        first = nameless[:10].tolist()
        raise InvariantError(f"blocks are cached under {first}, which name nothing")
    return [owners[i - 1] for i in np.unique(places).tolist()]

"""What a router knows of the replicas' caches: late, and only what events have told it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.cluster.router import IndexSettings
from sim.layout.plan import Layout
from sim.observer import Observer
from sim.reasons.needs import FirstNeeded, first_needed

Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How the blocks of a KV cache group make a prefix usable.

    factor : hash blocks of a block; first_needed : right edge in tokens -> first block it needs
    """

    block_size: int
    factor: int
    first_needed: FirstNeeded

    @property
    def needs_all(self) -> bool:
        """Whether a prefix of any length needs every block from the first on."""
        return self.first_needed(1 << 40) == 0


def group_rules(layout: Layout) -> list[GroupRule]:
    """Return the rule of each group of a layout, in group order."""
    parallel = layout.limits.context_parallel_size
    rules = []
    for group in layout.kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        size = spec.block_size * parallel
        rules.append(GroupRule(size, size // layout.hash_block_size, first_needed(spec, size)))
    return rules


class ReplicaIndex(Observer):
    """The cached blocks of one replica, as its events tell, each a delay after it happened.

    An event counts from its time + delay on, that instant included. Contents are counted: equal
    blocks are told of as often as they are registered. A router asks through ``PrefixIndex``.

    Invariant: with a delay of 0 the counts are those of the replica's own cache index.
    """

    __slots__ = ("_clock", "_counts", "_delay_ns", "_pending", "num_blocks")

    def __init__(self, num_groups: int, delay_ns: int, clock: Clock):
        self._counts: list[dict[int, int]] = [{} for _ in range(num_groups)]
        self._pending: deque[tuple[int, int, int, Sequence[int]]] = deque()
        self._delay_ns = delay_ns
        self._clock = clock
        self.num_blocks = 0

    # -- what the replica tells --------------------------------------------------------------
    def registered(
        self,
        group_id: int,
        request_id: str,
        first_idx: int,
        last_idx: int,
        parent_prefix_id: int,
        block_ids: Sequence[int],
        prefix_ids: Sequence[int],
    ) -> None:
        """Take blocks that will be known later."""
        self._later(1, group_id, list(prefix_ids))

    def registered_partial(
        self,
        group_id: int,
        request_id: str,
        num_tokens: int,
        parent_prefix_id: int,
        block_id: int,
        prefix_id: int,
    ) -> None:
        """Take a block that is not full."""
        self._later(1, group_id, [prefix_id])

    def evicted(
        self, block_ids: Sequence[int], group_ids: Sequence[int], prefix_ids: Sequence[int]
    ) -> None:
        """Take keys that will be known to be gone later."""
        for group_id, prefix_id in zip(group_ids, prefix_ids, strict=True):
            self._later(-1, group_id, [prefix_id])

    def cleared(self) -> None:
        """Take it that the whole cache index was emptied."""
        self._later(0, 0, ())

    def _later(self, change: int, group_id: int, prefix_ids: Sequence[int]) -> None:
        self._pending.append((self._clock() + self._delay_ns, change, group_id, prefix_ids))

    # -- what the router asks ----------------------------------------------------------------
    def catch_up(self) -> None:
        """Learn of everything whose time has come."""
        pending, now = self._pending, self._clock()
        while pending and pending[0][0] <= now:
            _, change, group_id, prefix_ids = pending.popleft()
            if change:
                self._count(change, self._counts[group_id], prefix_ids)
            else:
                self._forget_all()

    def _count(self, change: int, counts: dict[int, int], prefix_ids: Sequence[int]) -> None:
        self.num_blocks += change * len(prefix_ids)
        for prefix_id in prefix_ids:
            left = counts.get(prefix_id, 0) + change
            if left:
                counts[prefix_id] = left
            else:
                del counts[prefix_id]

    def _forget_all(self) -> None:
        self.num_blocks = 0
        for counts in self._counts:
            counts.clear()

    def group(self, group_id: int) -> dict[int, int]:
        """Return prefix identity -> number of blocks, of a group, as known now."""
        return self._counts[group_id]


class PrefixIndex:
    """The longest prefix of a prompt that each replica could use, as far as its events tell.

    Of the groups that are asked, each must have the blocks that its kind of attention needs at a
    common right edge, a multiple of the scheduler's block size before the last prompt token: the
    rule of the engine's own lookup but for drafts (EAGLE), which the index does not know of.

    Cost of a question: O(blocks of the prompt) per replica and group.
    """

    def __init__(self, layout: Layout, settings: IndexSettings, num_replicas: int, clock: Clock):
        rules = list(enumerate(group_rules(layout)))
        # Groups that need all of a prefix bound the search for the others.
        full = [(group_id, rule) for group_id, rule in rules if rule.needs_all]
        others = [] if settings.groups == "full" and full else rules
        self._rules = full + [entry for entry in others if not entry[1].needs_all]
        self._edge = layout.scheduler_block_size
        self.replicas = [
            ReplicaIndex(len(rules), settings.delay_ns, clock) for _ in range(num_replicas)
        ]

    def cached_tokens(self, prefix_ids: Sequence[int], num_prompt_tokens: int) -> list[int]:
        """Return for each replica how many leading prompt tokens it holds, as is known now.

        prefix_ids : identities of the request's hash blocks, at least those of the prompt; none
            where prefix caching is off
        """
        if not len(prefix_ids):
            return [0] * len(self.replicas)
        longest = (num_prompt_tokens - 1) // self._edge * self._edge
        found = []
        for replica in self.replicas:
            replica.catch_up()
            found.append(self._longest(replica, prefix_ids, longest))
        return found

    def num_blocks(self) -> list[int]:
        """Return for each replica how many blocks are known."""
        return [replica.num_blocks for replica in self.replicas]

    def _longest(self, replica: ReplicaIndex, prefix_ids: Sequence[int], edge: int) -> int:
        """Lower the edge until every group can use it."""
        settled = 0
        while edge > 0 and settled < len(self._rules):
            for group_id, rule in self._rules:
                lower = self._usable(replica.group(group_id), rule, prefix_ids, edge)
                settled = settled + 1 if lower == edge else 1
                edge = lower
        return edge

    def _usable(
        self, counts: dict[int, int], rule: GroupRule, prefix_ids: Sequence[int], edge: int
    ) -> int:
        """Return the longest edge up to ``edge`` at which one group has all that it needs."""
        while edge > 0:
            first, end = rule.first_needed(edge), edge // rule.block_size
            missing = _missing(counts, rule, prefix_ids, first, end)
            if missing is None:
                return edge
            edge = missing * rule.block_size // self._edge * self._edge
        return 0


def _missing(
    counts: dict[int, int], rule: GroupRule, prefix_ids: Sequence[int], first: int, end: int
) -> int | None:
    """Return the first missing block of a range; edges behind it need it as well."""
    factor = rule.factor
    for place in range(first, end):
        if prefix_ids[(place + 1) * factor - 1] not in counts:
            return place
    return None

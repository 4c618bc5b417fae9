"""The lookups of one request in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sim.reasons.causes import EVICTED, LAST_TOKEN, MEANINGS, NEW, PAST, UNALIGNED, VETOED
from sim.reasons.stretches import NO_GROUP
from sim.reasons.words import (
    Groups,
    count_text,
    group_text,
    list_text,
    needs_text,
    share_text,
    time_text,
)
from sim.tables import ALONE_PREFIX

if TYPE_CHECKING:
    import pandas as pd

NOT_LOST = (NEW, LAST_TOKEN, UNALIGNED)


class Story:
    """Tells why the lookups of a request found what they found.

    lookups, reasons : the tables of the run
    groups : the groups of ``layout.json``
    num_blocks : of the pool, the null block included
    """

    def __init__(
        self, lookups: pd.DataFrame, reasons: pd.DataFrame, groups: Groups, num_blocks: int
    ):
        self._lookups, self._reasons = lookups, reasons
        self._groups, self._usable = groups, num_blocks - 1

    def lines(self, request_id: str) -> list[str]:
        """Return the story of a request, one paragraph per lookup; empty if there was none."""
        rows = self._lookups[self._lookups["request_id"] == request_id]
        lines: list[str] = []
        for row in rows.itertuples():
            lines += [""] if lines else []
            lines += self._paragraph(row)
        return lines

    def worst(self, count: int) -> list[tuple[str, int, int, str]]:
        """Return the lookups that lost most of what had been seen before, the worst first.

        Each as request id, tokens lost, tokens of the request, and why most of them were lost.
        """
        lost = self._reasons[
            (self._reasons["decides"] == 1) & ~self._reasons["cause"].isin(NOT_LOST)
        ]
        sums = lost.groupby("lookup")["tokens"].sum().sort_values(ascending=False, kind="stable")
        rows = []
        for number, tokens in sums.head(count).items():
            lookup = self._lookups.iloc[int(number)]
            own = lost[lost["lookup"] == number]
            most = own.loc[own["tokens"].idxmax()]
            who = group_text(self._groups, most["group"]) if most["group"] != NO_GROUP else "all"
            why = f"{most['cause'].replace('_', ' ')} in {who}"
            rows.append((str(lookup["request_id"]), int(tokens), int(lookup["tokens"]), why))
        return rows

    def _paragraph(self, lookup: Any) -> Iterator[str]:
        reasons = self._reasons[self._reasons["lookup"] == lookup.lookup]
        deciding = sorted(
            (r for r in reasons.itertuples() if r.decides), key=lambda r: r.first_token
        )
        yield self._opening(lookup)
        if lookup.tokens - lookup.hit_tokens > sum(
            r.tokens for r in deciding if r.cause in NOT_LOST
        ):
            yield from self._verdict(lookup, deciding)
            yield ""
            yield "What each group could have used alone:"
            yield from self._alone(lookup)
            yield from self._search(lookup)
        yield ""
        yield "Where the tokens went:"
        if lookup.hit_tokens:
            yield f"  {_range(0, lookup.hit_tokens)} found in the cache."
        for row in deciding:
            yield from self._stretch(lookup, row)

    def _opening(self, lookup: Any) -> str:
        again = " again, after a preemption," if lookup.preemptions else ""
        tries = "" if lookup.attempts == 1 else f", at the last of {lookup.attempts} lookups"
        end = "" if lookup.admitted else "; it was never admitted"
        return (
            f"{lookup.request_id}, {count_text(lookup.tokens, 'token')}, was looked up{again} at "
            f"{time_text(lookup.time_ns)} (step {lookup.step}){tries}: {lookup.hit_tokens:,} "
            f"({share_text(lookup.hit_tokens, lookup.tokens)}) were found in the cache{end}."
        )

    def _verdict(self, lookup: Any, deciding: list[Any]) -> Iterator[str]:
        """Name the group that cost most, and the one that had most."""
        lost = [r for r in deciding if r.cause not in NOT_LOST and r.group != NO_GROUP]
        if not lost:
            return
        worst = max(lost, key=lambda r: r.tokens)
        alone = self._alone_tokens(lookup)
        best = max(alone, key=lambda g: (alone[g], g))
        what = "Nothing" if not lookup.hit_tokens else "No more"
        name = group_text(self._groups, worst.group)
        yield f"{what} was found because of {name}: blocks that a hit needs {PAST[worst.cause]}."
        if alone[best] > lookup.hit_tokens and best != worst.group:
            yield (
                f"{alone[best]:,} tokens were usable in {group_text(self._groups, best)}, but a "
                "hit must be usable in every group."
            )

    def _alone_tokens(self, lookup: Any) -> dict[int, int]:
        return {g: int(getattr(lookup, f"{ALONE_PREFIX}{g}")) for g in range(len(self._groups))}

    def _alone(self, lookup: Any) -> Iterator[str]:
        """Groups of one kind with the same answer share a line."""
        by_answer: dict[tuple[str, int], list[int]] = {}
        for group_id, tokens in self._alone_tokens(lookup).items():
            kind = group_text(self._groups, group_id).partition(" (")[2].rstrip(")")
            by_answer.setdefault((kind, tokens), []).append(group_id)
        for (kind, tokens), ids in by_answer.items():
            name = f"group{'s' if len(ids) > 1 else ''} {list_text(map(str, ids))}"
            yield f"  {tokens:>9,} tokens  {name} ({kind})"

    def _search(self, lookup: Any) -> Iterator[str]:
        cuts = [_parsed(cut) for cut in str(lookup.cuts or "").split()]
        if not cuts:
            return
        steps = [
            f"{group_text(self._groups, group_id)} cut {before:,} to {after:,}"
            for group_id, before, after in cuts
        ]
        yield f"The search, from the {cuts[0][1]:,} tokens on that were known: {'; '.join(steps)}."

    def _stretch(self, lookup: Any, row: Any) -> Iterator[str]:
        where = _range(row.first_token, row.end_token)
        if row.group == NO_GROUP:
            yield f"  {where} {row.cause.replace('_', ' ')}: {MEANINGS[row.cause]}."
            return
        name = group_text(self._groups, row.group)
        yield f"  {where} {row.cause.replace('_', ' ')} in {name}: {MEANINGS[row.cause]}."
        yield f"    {needs_text(self._groups, row.group)}; {self._missing(row)}."
        if row.cause == EVICTED:
            yield f"    {self._eviction(lookup, row)}"
        others = self._who_had(lookup, row)
        if others:
            yield f"    Usable, but for that, in {list_text(others)}."

    def _missing(self, row: Any) -> str:
        return f"{count_text(row.blocks, 'block')} that it needs {_are(row.blocks)} missing"

    def _eviction(self, lookup: Any, row: Any) -> str:
        ago = time_text(lookup.time_ns - row.event_ns)
        steps = count_text(lookup.step - row.event_step, "step")
        if isinstance(row.event_request, str):
            groups = str(row.event_groups).split()
            names = f"group{'s' if len(groups) > 1 else ''} {list_text(groups)}"
            taker = f"{row.event_request} took the blocks for {names}"
        else:
            taker = "they were evicted by order"
        text = f"{taker}, {ago} ({steps}) before"
        if not isinstance(row.stored_by, str):
            return f"{text}."
        since = self._taken_since(lookup, row)
        age = time_text(lookup.time_ns - row.stored_ns)
        return (
            f"{text}; {row.stored_by} had stored them {age} before. From {row.stored_by} to this "
            f"lookup {count_text(since, 'block')} were taken from the pool, which has "
            f"{self._usable:,}."
        )

    def _taken_since(self, lookup: Any, row: Any) -> int:
        """Blocks taken since the storing request was looked up, its own included."""
        rows = self._lookups
        earlier = rows[(rows["request_id"] == row.stored_by) & (rows["lookup"] < lookup.lookup)]
        if earlier.empty:
            return int(row.blocks_taken_since)
        return int(lookup.blocks_taken - earlier["blocks_taken"].iloc[-1])

    def _who_had(self, lookup: Any, row: Any) -> list[str]:
        """Groups that could have used all of a stretch, or a part of it."""
        rows = self._reasons[
            (self._reasons["lookup"] == lookup.lookup)
            & (self._reasons["cause"] == VETOED)
            & (self._reasons["by_group"] == row.group)
        ]
        overlaps: dict[int, int] = {}
        for other in rows.itertuples():
            end = min(other.end_token, row.end_token)
            tokens = end - max(other.first_token, row.first_token)
            if tokens > 0:
                overlaps[other.group] = overlaps.get(other.group, 0) + tokens
        return [
            group_text(self._groups, g) + ("" if n == row.tokens else f" ({n:,} tokens of it)")
            for g, n in overlaps.items()
        ]


def _parsed(cut: str) -> tuple[int, int, int]:
    group, _, bounds = cut.partition(":")
    before, _, after = bounds.partition(">")
    return int(group[1:]), int(before), int(after)


def _range(first: int, end: int) -> str:
    if end == first + 1:
        return f"token {first:,}:"
    return f"tokens {first:,} to {end - 1:,} ({end - first:,}):"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"

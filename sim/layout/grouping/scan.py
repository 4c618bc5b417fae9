"""What each group size would cost: how many groups, and how much of them is idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sim.layout.grouping.plan import Bucket
from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class Candidate:
    """One group size with balanced groups.

    idle_slots: missing layers over all groups, against the longest real group (15.10); slots: all
    of them, missing ones included. idle_bytes, held_bytes: the same for a request of average
    length, each group by the blocks that it holds times the page.
    Source: spec/layout.md B and 15.10.
    """

    group_size: int
    num_groups: int
    idle_slots: int
    slots: int
    idle_bytes: Fraction
    held_bytes: Fraction

    @property
    def idle_share(self) -> Fraction:
        """Idle over held bytes."""
        return self.idle_bytes / self.held_bytes if self.held_bytes else Fraction(0)

    @property
    def idle_slot_share(self) -> Fraction:
        """Idle over all slots, whatever they hold."""
        return Fraction(self.idle_slots, self.slots)


def candidate(buckets: Sequence[Bucket], group_size: int) -> Candidate:
    """Return what ``group_size`` costs."""
    counts = [cdiv(len(bucket), group_size) for bucket in buckets]
    longest = longest_group(buckets, group_size)
    idle = [n * longest - len(b) for b, n in zip(buckets, counts, strict=True)]
    weights = [bucket.blocks * bucket.spec.page_size_bytes for bucket in buckets]
    return Candidate(
        group_size=group_size,
        num_groups=sum(counts),
        idle_slots=sum(idle),
        slots=sum(counts) * longest,
        idle_bytes=sum((w * i for w, i in zip(weights, idle, strict=True)), Fraction(0)),
        held_bytes=sum(
            (w * n * longest for w, n in zip(weights, counts, strict=True)), Fraction(0)
        ),
    )


def candidates(buckets: Sequence[Bucket]) -> list[Candidate]:
    """Return every group size from 1 to the largest bucket that some group really has.

    A size that no group reaches gives the groups of the next smaller size that one does.
    """
    sizes = range(1, largest(buckets) + 1)
    return [candidate(buckets, size) for size in sizes if longest_group(buckets, size) == size]


def longest_group(buckets: Sequence[Bucket], group_size: int) -> int:
    """Return the layers of the longest group if all are balanced and at most ``group_size``."""
    return max(cdiv(len(bucket), cdiv(len(bucket), group_size)) for bucket in buckets)


def smallest(buckets: Sequence[Bucket]) -> int:
    """Return the number of layers of the smallest bucket."""
    return min(len(bucket) for bucket in buckets)


def largest(buckets: Sequence[Bucket]) -> int:
    """Return the number of layers of the largest bucket."""
    return max(len(bucket) for bucket in buckets)


def largest_if_near(buckets: Sequence[Bucket], group_size: int, ratio: Fraction) -> int:
    """Return the largest bucket if it is less than ``ratio`` times ``group_size``, else the latter.

    The test is strict, and exact: no rounding. Source: spec/layout.md 6.5.
    """
    return largest(buckets) if largest(buckets) < ratio * group_size else group_size

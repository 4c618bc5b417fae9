"""Grouping as in vLLM 0.25.1."""

from __future__ import annotations

from collections.abc import Sequence


def vllm_group_size(bucket_sizes: Sequence[int]) -> int:
    """Return the largest bucket if it is less than 1.5 times the smallest, else the smallest.

    Buckets between the two do not matter. Source: spec/layout.md 6.5.

    >>> vllm_group_size([12, 17]), vllm_group_size([12, 18])
    (17, 12)
    """
    smallest, largest = min(bucket_sizes), max(bucket_sizes)
    return largest if 2 * largest < 3 * smallest else smallest

"""What differs between engine versions, gathered in one value that assembly injects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sim.registry import Registry


@dataclass(frozen=True, slots=True)
class Profile:
    """One engine version as values and functions; nothing else asks for a version.

    batches_in_flight: batches counted into the bound of a window. reserved_blocks: block ids of
    the pool that never hold content (the null block). default_block_size: tokens, where the user
    names none. token_capacity: (num_blocks, blocks_per_request, max_model_len) to (concurrency,
    tokens).
    Source: spec/layout.md 3.1, 7, 9, 12.
    """

    name: str
    batches_in_flight: int
    reserved_blocks: int
    default_block_size: int
    default_grouping: str
    default_max_num_batched_tokens: int
    default_max_num_seqs: int
    token_capacity: Callable[[int, int, int], tuple[float, int]]


def concurrency_times_length(
    num_blocks: int, blocks_per_request: int, max_model_len: int
) -> tuple[float, int]:
    """Return how many requests of the maximum length fit, and that many times the length.

    The product is a float and is truncated, as the engine does: one token can be lost against
    exact arithmetic. Source: spec/layout.md 9.

    >>> concurrency_times_length(1001, 250, 4000)
    (4.004, 16015)
    """
    concurrency = num_blocks / blocks_per_request
    return concurrency, int(concurrency * max_model_len)


VLLM_0_25_1 = Profile(
    name="vllm-0.25.1",
    batches_in_flight=1,
    reserved_blocks=1,
    default_block_size=16,
    default_grouping="vllm",
    default_max_num_batched_tokens=8192,
    default_max_num_seqs=1024,
    token_capacity=concurrency_times_length,
)

PROFILES: Registry[Profile] = Registry("engine.profile", {VLLM_0_25_1.name: VLLM_0_25_1})

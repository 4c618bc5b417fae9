"""How many tokens a verification step yields: drawn, but the same whatever the scheduler does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from sim.request import Request


def uniform(seed: int, request_id: str, position: int) -> float:
    """Return a number in [0, 1) that depends on nothing but the arguments.

    53 bits of a hash: no order of calls, no stream that a policy could shift.
    """
    text = f"{seed}\0{request_id}\0{position}".encode()
    # All 64 bits could be rounded up to 1, and then a rate of 1 would reject.
    return (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11) / 2**53


def num_sampled(rates: Sequence[float], seed: int) -> Callable[[Request, int], int]:
    """Return the function that tells how many tokens a request got: 1 to drafts + 1.

    rates : probability that so many drafts are accepted, not rising. One draw decides a step: as
    many drafts are accepted as rates lie above it. Drafts that only fill a place are rejected.
    """

    def count(request: Request, num_drafts: int) -> int:
        if request.has_placeholder_drafts:
            return 1
        drawn = uniform(seed, request.request_id, request.num_output_tokens)
        return 1 + sum(drawn < rate for rate in rates[:num_drafts])

    return count

"""What all requests of a trace add up to, whatever a cache holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.curve.blocks import Batch, by_block, places


@dataclass(slots=True)
class Totals:
    """Counts of requests.

    num_lookups : blocks that were looked up [blocks]; num_lookup_tokens : their prompt tokens
    num_prompt_tokens : of all requests; longest_request : most blocks of one [blocks]
    """

    num_requests: int = 0
    num_lookups: int = 0
    num_lookup_tokens: int = 0
    num_prompt_tokens: int = 0
    longest_request: int = 0

    def add(self, batch: Batch, tokens: np.ndarray) -> None:
        """Count the requests of a batch; tokens : ``block_tokens`` of it."""
        self.num_requests += len(batch.num_lookups)
        self.num_lookups += int(batch.num_lookups.sum())
        self.num_lookup_tokens += int(tokens[batch.is_looked_up].sum())
        self.num_prompt_tokens += int(batch.num_prompt_tokens.sum())
        self.longest_request = max(self.longest_request, int(np.diff(batch.starts).max(initial=0)))


def block_tokens(batch: Batch, block_size: int) -> np.ndarray:
    """Return the prompt tokens of each block: fewer in a last one that is not full, else 0."""
    begins = places(batch.starts) * block_size
    return np.clip(by_block(batch.num_prompt_tokens, batch.starts) - begins, 0, block_size)

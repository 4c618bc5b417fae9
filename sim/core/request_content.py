"""What a request consists of, for those who tell the outside about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RequestContent:
    """Tokens and everything else that enters a block hash.

    token_ids : (first, last) -> the ids of tokens [first, last) of prompt and output
    prefix_ids : identities at the hash block size
    """

    token_ids: Callable[[int, int], list[int]]
    prefix_ids: Sequence[int] = ()
    lora_name: str | None = None
    cache_salt: str | None = None

    def extra_keys(self, is_first_block: bool) -> tuple[Any, ...] | None:
        """Return the extra keys of a block: the adapter's name, then the salt at token 0.

        Source: spec/manager.md 2.4, without multimodal items and embeddings.
        """
        keys = (self.lora_name, self.cache_salt if is_first_block else None)
        return tuple(key for key in keys if key) or None


NO_CONTENT = RequestContent(lambda first, last: [])
"""Of a request whose tokens nobody knows."""

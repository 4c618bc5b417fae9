"""Which of our identities each of vLLM's block hashes stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.errors import InvariantError


class HashNames:
    """Learns both names of a content where both are known, and checks that they agree.

    Equal tokens must have equal identities, and different ones different identities.
    """

    def __init__(self) -> None:
        self.of_hash: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._of_external: dict[int, int] = {}

    def learn(self, hashes: Sequence[bytes], prefix_ids: Sequence[int], first: int = 0) -> int:
        """Pair hashes with identities from place ``first`` on; return how many are paired."""
        count = min(len(hashes), len(prefix_ids))
        for place in range(first, count):
            block_hash, prefix_id = hashes[place], int(prefix_ids[place])
            known = self.of_hash.setdefault(block_hash, prefix_id)
            back = self._hash_of.setdefault(prefix_id, block_hash)
            self._of_external[int.from_bytes(block_hash[-8:], "big")] = prefix_id
            if known != prefix_id or back != block_hash:
                raise InvariantError(
                    f"identities {known} and {prefix_id} stand for hashes "
                    f"{back.hex()} and {block_hash.hex()}"
                )
        return count

    def of_key(self, key: bytes) -> tuple[int, int]:
        """Return group and identity of a key of the index: a hash, then four bytes of group."""
        return int.from_bytes(key[-4:], "big"), self.of_hash[key[:-4]]

    def of_events(self, hashes: Sequence[Any]) -> tuple[int, ...]:
        """Return the identities of hashes as events carry them: the whole digest, or its end."""
        return tuple(map(self.of_event, hashes))

    def of_event(self, block_hash: Any) -> int:
        """Return the identity of one such hash."""
        if isinstance(block_hash, bytes):
            return self.of_hash[block_hash]
        return self._of_external[block_hash]

"""How block contents are named outside: one way per class, one line each in ``BLOCK_HASHES``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from sim.core.request_content import RequestContent
from sim.registry import Registry

HashOf = Callable[[int], int]
_EXTERNAL_BYTES = 8


class BlockHashes(Protocol):
    """Names prefixes for the outside."""

    def namer(self, content: RequestContent, num_hash_blocks: int) -> HashOf:
        """Return the function from identity to hash, after a look at so many blocks of content.

        The function knows every identity of the content looked at, now or before.
        """


class PrefixIdentities:
    """The run's own dense identities: equal for equal prefixes, within one run."""

    def __init__(self, hash_block_size: int = 0, seed: str = ""):
        pass

    def namer(self, content: RequestContent, num_hash_blocks: int) -> HashOf:
        """Return the identity itself."""
        return int


class Sha256Cbor:
    """Chained digests of tokens, as with vLLM's ``--prefix-caching-hash-algo sha256_cbor``.

    A block's digest is SHA-256 over canonical CBOR of (digest of the block before, its tokens, its
    extra keys); before the first block stands the digest of ``seed``, as vLLM takes it from
    PYTHONHASHSEED. Outside it is the unsigned integer of the last 8 bytes.

    Cost: one digest per new hash block, about 100 bytes kept for each.
    Source: spec/manager.md 2.1 to 2.5.
    """

    def __init__(self, hash_block_size: int, seed: str = "0"):
        self.hash_block_size = hash_block_size
        self.none_hash = sha256_cbor(seed)
        self._digests: dict[int, bytes] = {}

    def namer(self, content: RequestContent, num_hash_blocks: int) -> HashOf:
        """Digest what is new of the content, block by block."""
        digests, ids = self._digests, content.prefix_ids
        first = num_hash_blocks
        while first and ids[first - 1] not in digests:
            first -= 1
        parent = digests[ids[first - 1]] if first else self.none_hash
        size = self.hash_block_size
        tokens = content.token_ids(first * size, num_hash_blocks * size)
        for place in range(first, num_hash_blocks):
            offset = (place - first) * size
            block = tuple(tokens[offset : offset + size])
            parent = sha256_cbor((parent, block, content.extra_keys(not place)))
            digests[ids[place]] = parent
        return self._external

    def _external(self, prefix_id: int) -> int:
        return int.from_bytes(self._digests[prefix_id][-_EXTERNAL_BYTES:], "big")


def sha256_cbor(value: object) -> bytes:
    """Return SHA-256 of the canonical CBOR of a value."""
    import cbor2

    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


class BlockHashesMaker(Protocol):
    """Makes one way of naming; ``seed`` matters to digests only."""

    def __call__(self, hash_block_size: int, seed: str) -> BlockHashes:
        """Return it for identities at ``hash_block_size``."""


BLOCK_HASHES: Registry[BlockHashesMaker] = Registry(
    "engine.kv_events_hash",
    {
        "prefix_id": PrefixIdentities,
        "sha256_cbor": Sha256Cbor,
    },
)

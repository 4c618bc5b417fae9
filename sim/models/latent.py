"""Latent attention (MLA) and its sparse indexer: sizes and parameter counts."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.layers import IndexerLayer, MLALayer
from sim.models.parts import Heads
from sim.models.reader import ConfigReader


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of latent attention; ``q_lora_rank`` is None where queries are projected at once."""

    num_heads: int
    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    def layer(self, name: str, *, is_sparse: bool = False) -> MLALayer:
        """Return the cache of one layer."""
        return MLALayer(
            name=name,
            kv_lora_rank=self.kv_lora_rank,
            qk_rope_head_dim=self.qk_rope_head_dim,
            is_sparse=is_sparse,
        )

    @property
    def heads(self) -> Heads:
        """Query heads as a roofline sees them."""
        size = self.qk_nope_head_dim + self.qk_rope_head_dim
        return Heads(self.num_heads, self.num_heads, size)

    def weights(self, hidden_size: int) -> int:
        """Parameters of the projections down to the latents, up to the heads, and out."""
        query_width = self.num_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        query = hidden_size * query_width
        if self.q_lora_rank is not None:
            query = self.q_lora_rank * (hidden_size + query_width)
        down = hidden_size * (self.kv_lora_rank + self.qk_rope_head_dim)
        up = self.kv_lora_rank * self.num_heads * (self.qk_nope_head_dim + self.v_head_dim)
        return query + down + up + self.num_heads * self.v_head_dim * hidden_size


@dataclass(frozen=True, slots=True)
class Indexer:
    """Sizes of the indexer that picks which tokens a sparse layer reads."""

    num_heads: int
    head_dim: int

    def layer(self, name: str) -> IndexerLayer:
        """Return its key cache."""
        return IndexerLayer(name=name, index_head_dim=self.head_dim)

    def weights(self, hidden_size: int, q_lora_rank: int) -> int:
        """Parameters of its query, key and head-weight projections."""
        query = q_lora_rank * self.num_heads * self.head_dim
        return query + hidden_size * (self.head_dim + self.num_heads)


def read_latent(
    reader: ConfigReader,
    *,
    q_lora_rank: int | None = None,
    qk_nope_head_dim: int = 128,
    v_head_dim: int = 128,
) -> Latent:
    """Read the keys of latent attention; a ``null`` or absent ``q_lora_rank`` is the default."""
    rank = reader.integer("q_lora_rank") if reader.has("q_lora_rank") else q_lora_rank
    return Latent(
        num_heads=reader.integer("num_attention_heads"),
        kv_lora_rank=reader.integer("kv_lora_rank", 512),
        q_lora_rank=rank,
        qk_nope_head_dim=reader.integer("qk_nope_head_dim", qk_nope_head_dim),
        qk_rope_head_dim=reader.integer("qk_rope_head_dim", 64),
        v_head_dim=reader.integer("v_head_dim", v_head_dim),
    )


def read_indexer(reader: ConfigReader) -> Indexer:
    """Read the keys of an indexer."""
    return Indexer(reader.integer("index_n_heads", 64), reader.integer("index_head_dim", 128))

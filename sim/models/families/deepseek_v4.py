"""DeepSeek-V4: a window of plain vectors in every layer, compressed vectors in most."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.layers import (
    CompressedIndexerLayer,
    CompressedMLALayer,
    CompressorStateLayer,
    LayerSpec,
    SlidingMLALayer,
)
from sim.models.parts import Heads, Structure, counted_dims, num_mtp_layers, read_experts, same
from sim.models.reader import ConfigReader

_RATIOS = (0, 1, 4, 128)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Vector sizes of latent attention and of the indexer, and the window."""

    head_dim: int
    index_head_dim: int
    window: int

    def caches(self, idx: int, ratio: int) -> list[LayerSpec]:
        """Caches of one block in order of registration. Source: spec/layout.md 2.3, 15.2, 15.6."""
        window: list[LayerSpec] = [
            SlidingMLALayer(name=f"L{idx}.swa", head_size=self.head_dim, sliding_window=self.window)
        ]
        if ratio == 4:
            return window + self._ratio_4(idx)
        return window + self._ratio_128(idx) if ratio == 128 else window

    def _ratio_4(self, idx: int) -> list[LayerSpec]:
        index_dim = self.index_head_dim
        return [
            CompressedMLALayer(name=f"L{idx}.attn", head_size=self.head_dim, compress_ratio=4),
            _state_4(f"L{idx}.comp", 4 * self.head_dim),
            CompressedIndexerLayer(name=f"L{idx}.idx", index_head_dim=index_dim, compress_ratio=4),
            _state_4(f"L{idx}.idxcomp", 4 * index_dim, of_indexer=True),
        ]

    def _ratio_128(self, idx: int) -> list[LayerSpec]:
        return [
            CompressedMLALayer(name=f"L{idx}.attn", head_size=self.head_dim, compress_ratio=128),
            CompressorStateLayer(
                name=f"L{idx}.comp",
                head_size=2 * self.head_dim,
                sliding_window=128,
                block_size=8,
                compress_ratio=128,
            ),
        ]


def _state_4(name: str, head_size: int, *, of_indexer: bool = False) -> CompressorStateLayer:
    return CompressorStateLayer(
        name=name,
        head_size=head_size,
        sliding_window=8,
        block_size=4,
        compress_ratio=4,
        of_indexer=of_indexer,
    )


def deepseek_v4(reader: ConfigReader) -> Structure:
    """``compress_ratios[i]`` says what a layer keeps beside its window; more entries are MTP's.

    Source: models/README.md, "DeepSeek-V4" and "Traps" 6; spec/layout.md 15.6.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = Heads(reader.integer("num_attention_heads"), 1, reader.integer("head_dim", 512))
    index_dim = reader.integer("index_head_dim", 128)
    sizes = _Sizes(heads.head_dim, index_dim, reader.integer("sliding_window", 128))
    ratios = _read_ratios(reader, num_layers)
    blocks = [sizes.caches(idx, ratio) for idx, ratio in enumerate(ratios)]
    weights = _weights(reader, hidden, heads, sizes, ratios[:num_layers])
    return Structure(
        layers=tuple(layer for block in blocks[:num_layers] for layer in block),
        mtp_layers=tuple(layer for block in blocks[num_layers:] for layer in block),
        max_model_len=reader.integer("max_position_embeddings", 1_048_576),
        dims=counted_dims(reader, hidden, num_layers, heads, weights, vocab_size=129_280),
        is_deepseek_v4=True,
    )


def _read_ratios(reader: ConfigReader, num_layers: int) -> list[int]:
    """Ratios of the layers and of the MTP layers; one that is not listed has a window only."""
    key = "compress_ratios"
    length = num_layers + num_mtp_layers(reader)
    given = reader.raw(key)
    listed = min(length, len(given)) if isinstance(given, list) else num_layers
    ratios = reader.integers(key, max(listed, num_layers))
    wrong = next((ratio for ratio in ratios if ratio not in _RATIOS), None)
    reader.check(wrong is None, key, wrong, f"ratios of {', '.join(map(str, _RATIOS))}")
    return ratios + [0] * (length - len(ratios))


def _weights(
    reader: ConfigReader, hidden: int, heads: Heads, sizes: _Sizes, ratios: list[int]
) -> list[tuple[int, int]]:
    """Low-rank queries and grouped low-rank way out, compressors, indexers, experts."""
    rank = reader.integer("q_lora_rank", 1024)
    out_rank, groups = reader.integer("o_lora_rank", 1024), reader.integer("o_groups", 8)
    width = heads.num_attention_heads * heads.head_dim
    attention = rank * (hidden + width) + hidden * heads.head_dim
    attention += out_rank * (width + groups * hidden)
    compressors = {4: 4 * hidden * sizes.head_dim, 128: 2 * hidden * sizes.head_dim}
    index_heads = reader.integer("index_n_heads", 64)
    indexer = sizes.index_head_dim * (rank * index_heads + 4 * hidden) + hidden * index_heads
    extra = sum(compressors.get(ratio, 0) + (indexer if ratio == 4 else 0) for ratio in ratios)
    experts = read_experts(reader, "n_routed_experts", 256, 6)
    expert_width = reader.integer("moe_intermediate_size", 2048)
    shared = expert_width * reader.integer("n_shared_experts", 1, minimum=0)
    mixture = experts.weights_with_shared(hidden, expert_width, shared)
    return [same(attention * len(ratios) + extra), *([mixture] * len(ratios))]

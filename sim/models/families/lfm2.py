"""LFM2: short convolutions with layers of full attention between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.models.layers import LayerSpec, RecurrentLayer, StateTensor
from sim.models.parts import (
    Heads,
    Structure,
    counted_dims,
    gated_mlp_weights,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader
from sim.models.recurrent import attention_of, mamba_name
from sim.units import cdiv

_ATTENDS = {"conv": False, "full_attention": True, "attention": True, "short_conv": False}


@dataclass(frozen=True, slots=True)
class _ShortConv:
    """A gated convolution over the last ``length`` tokens."""

    width: int
    length: int

    def layer(self, name: str) -> RecurrentLayer:
        conv = StateTensor("conv", (self.length - 1, self.width))
        return RecurrentLayer(name=name, flavour="short_conv", tensors=(conv,))

    def weights(self, hidden: int) -> int:
        return 4 * hidden * self.width + self.width * self.length


def lfm2(reader: ConfigReader) -> Structure:
    """Layers of ``full_attn_idxs`` (or of type full_attention) attend, the others convolve.

    Source: models/README.md, "LFM2".
    """
    hidden = reader.integer("hidden_size")
    mlp = same(gated_mlp_weights(hidden, _mlp_width(reader)))
    return _structure(reader, hidden, [mlp] * reader.num_layers())


def lfm2_moe(reader: ConfigReader) -> Structure:
    """The same with experts in all but the first layers."""
    hidden = reader.integer("hidden_size")
    experts = read_experts(reader, "num_experts", 32, 4)
    mixture = experts.weights(hidden, reader.integer("moe_intermediate_size", 1792))
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size", 7168)))
    first = reader.integer("num_dense_layers", 2, minimum=0)
    mlps = [dense if idx < first else mixture for idx in range(reader.num_layers())]
    return _structure(reader, hidden, mlps)


def _mlp_width(reader: ConfigReader) -> int:
    """Two thirds of the given width, rounded up, unless the file gives the width as it is."""
    width = reader.integer(reader.first_of("block_ff_dim", "intermediate_size"), 12_288)
    if not reader.boolean("block_auto_adjust_ff_dim", True):
        return width
    multiplier = reader.raw("block_ffn_dim_multiplier")
    multiplier = 1.0 if multiplier is None else multiplier
    valid = isinstance(multiplier, int | float) and 0 < multiplier < 1000
    reader.check(valid, "block_ffn_dim_multiplier", multiplier, "a number from 0 to 1000")
    unit = reader.integer("block_multiple_of", 256)
    scaled = int((multiplier if valid else 1) * (2 * width // 3))
    return unit * cdiv(max(scaled, 1), unit)


def _structure(reader: ConfigReader, hidden: int, mlps: Sequence[tuple[int, int]]) -> Structure:
    num_layers = len(mlps)
    heads = read_heads(reader, hidden, default_kv_heads=8)
    conv = _ShortConv(
        reader.integer("conv_dim", hidden) if reader.has("conv_dim") else hidden,
        reader.integer("conv_L_cache", 3, minimum=2),
    )
    attends = _attends(reader, num_layers)
    mixers = sum(heads.weights(hidden) if full else conv.weights(hidden) for full in attends)
    return Structure(
        layers=tuple(_layer(idx, full, heads, conv) for idx, full in enumerate(attends)),
        max_model_len=reader.integer("max_position_embeddings", 128_000),
        dims=counted_dims(
            reader, hidden, num_layers, heads, [same(mixers), *mlps], tied=True, vocab_size=65_536
        ),
    )


def _attends(reader: ConfigReader, num_layers: int) -> list[bool]:
    if reader.has("layer_types"):
        return [_ATTENDS[kind] for kind in reader.strings("layer_types", num_layers, _ATTENDS)]
    listed = reader.indices("full_attn_idxs", num_layers)
    return [idx in listed for idx in range(num_layers)]


def _layer(idx: int, attends: bool, heads: Heads, conv: _ShortConv) -> LayerSpec:
    return attention_of(idx, heads) if attends else conv.layer(mamba_name(idx))

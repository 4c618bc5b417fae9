"""Jamba: Mamba-1 layers with attention at a fixed period, experts at another."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.model_config import AttentionLayer, LayerSpec, RecurrentLayer, StateTensor
from sim.models.parts import (
    Heads,
    Structure,
    dims_of,
    embedding_weights,
    gated_mlp_weights,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader
from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class _Mamba1:
    """Sizes of a Mamba-1 mixer: inner width, state size, convolution length, rank of dt."""

    width: int
    state: int
    conv: int
    dt_rank: int

    def layer(self, name: str) -> RecurrentLayer:
        """The convolution keeps its last ``conv - 1`` inputs. Source: spec/layout.md 4."""
        tensors = (
            StateTensor("conv", (self.conv - 1, self.width)),
            StateTensor("ssm", (self.width, self.state)),
        )
        return RecurrentLayer(name=name, flavour="mamba1", tensors=tensors)

    def weights(self, hidden_size: int) -> int:
        """Parameters of the projections, the convolution and A; vectors are not counted."""
        projections = 3 * hidden_size * self.width
        selection = self.width * (self.dt_rank + 2 * self.state) + self.dt_rank * self.width
        return projections + selection + self.width * (self.conv + self.state)


def jamba(reader: ConfigReader) -> Structure:
    """Layer i attends iff i % attn_layer_period == attn_layer_offset, else it is Mamba-1.

    Source: models/README.md, "Jamba"; class defaults of the original Jamba where a key is absent.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=8)
    mixer = _read_mamba(reader, hidden)
    attends = _periodic(reader, "attn_layer", 8, 4, num_layers)
    tied = reader.boolean("tie_word_embeddings", False)
    embedding = embedding_weights(reader.integer("vocab_size", 65_536), hidden, tied=tied)
    mixers = [heads.weights(hidden) if full else mixer.weights(hidden) for full in attends]
    weights = [same(embedding), same(sum(mixers)), *_mlp_weights(reader, hidden, num_layers)]
    return Structure(
        layers=tuple(_layer(idx, full, heads, mixer) for idx, full in enumerate(attends)),
        max_model_len=reader.integer("max_position_embeddings", 262_144),
        dims=dims_of(hidden, num_layers, heads, weights),
        supports_mamba_all=True,
    )


def _layer(idx: int, attends: bool, heads: Heads, mixer: _Mamba1) -> LayerSpec:
    if not attends:
        return mixer.layer(f"L{idx}.mamba")
    return AttentionLayer(
        name=f"L{idx}.attn", num_kv_heads=heads.num_kv_heads, head_size=heads.head_dim
    )


def _read_mamba(reader: ConfigReader, hidden_size: int) -> _Mamba1:
    rank = cdiv(hidden_size, 16)
    if reader.raw("mamba_dt_rank") != "auto":
        rank = reader.integer("mamba_dt_rank", rank)
    return _Mamba1(
        width=hidden_size * reader.integer("mamba_expand", 2),
        state=reader.integer("mamba_d_state", 16),
        conv=reader.integer("mamba_d_conv", 4, minimum=2),
        dt_rank=rank,
    )


def _periodic(
    reader: ConfigReader, what: str, period: int, offset: int, num_layers: int
) -> list[bool]:
    """True for layers at ``{what}_offset`` of each ``{what}_period``."""
    period = reader.integer(f"{what}_period", period)
    offset = reader.integer(f"{what}_offset", offset, minimum=0)
    reader.check(offset < period, f"{what}_offset", offset, f"less than {what}_period ({period})")
    return [idx % period == offset for idx in range(num_layers)]


def _mlp_weights(reader: ConfigReader, hidden: int, num_layers: int) -> list[tuple[int, int]]:
    width = reader.integer("intermediate_size", 14_336)
    experts = read_experts(reader, "num_experts", 16, 2)
    dense = same(gated_mlp_weights(hidden, width))
    mixture = dense if experts.num_experts == 1 else experts.weights(hidden, width)
    sparse = _periodic(reader, "expert_layer", 2, 1, num_layers)
    return [mixture if is_sparse else dense for is_sparse in sparse]

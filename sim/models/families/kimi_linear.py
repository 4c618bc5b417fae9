"""Kimi-Linear: Kimi delta attention, every fourth layer of latent attention."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.latent import Latent, read_latent
from sim.models.layers import LayerSpec, RecurrentLayer, StateTensor
from sim.models.parts import Structure, counted_dims, gated_mlp_weights, read_experts, same
from sim.models.reader import ConfigReader
from sim.models.recurrent import mamba_name

_FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Mixer:
    """Kimi delta attention: heads of one size for queries, keys and values."""

    num_heads: int
    head_dim: int
    conv: int

    @property
    def width(self) -> int:
        return self.num_heads * self.head_dim

    def layer(self, name: str) -> RecurrentLayer:
        """The recurrent state is float32 whatever the settings say."""
        shape = (self.num_heads, self.head_dim, self.head_dim)
        tensors = (
            StateTensor("conv", (self.conv - 1, 3 * self.width)),
            StateTensor("ssm", shape, dtype_bytes=_FP32_BYTES),
        )
        return RecurrentLayer(name=name, flavour="kda", tensors=tensors)

    def weights(self, hidden: int) -> int:
        """Queries, keys, values, the way out, two low-rank gates, beta and the convolutions."""
        gates = 2 * self.head_dim * (hidden + self.width)
        projections = 4 * hidden * self.width + hidden * self.num_heads
        return projections + gates + 3 * self.width * self.conv


def kimi_linear(reader: ConfigReader) -> Structure:
    """Layer i is recurrent iff i + 1 is in ``linear_attn_config.kda_layers``: counted from one.

    Source: models/README.md, "Kimi-Linear" and "Traps" 7; spec/layout.md 4.
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    latent = read_latent(reader)
    linear = reader.section("linear_attn_config")
    recurrent = linear.indices("kda_layers", num_layers, first=1)
    mixer = _Mixer(
        num_heads=linear.integer("num_heads", 32),
        head_dim=linear.integer("head_dim", 128),
        conv=linear.integer("short_conv_kernel_size", 4, minimum=2),
    )
    is_recurrent = [idx + 1 in recurrent for idx in range(num_layers)]
    mixers = [mixer if flag else latent for flag in is_recurrent]
    weights = [
        same(sum(part.weights(hidden) for part in mixers)),
        *_mlps(reader, hidden, num_layers),
    ]
    return Structure(
        layers=tuple(_layer(idx, part) for idx, part in enumerate(mixers)),
        max_model_len=reader.integer(_length_key(reader), 4096),
        dims=counted_dims(reader, hidden, num_layers, latent.heads, weights, vocab_size=163_840),
    )


def _length_key(reader: ConfigReader) -> str:
    return reader.first_of("model_max_length", "max_position_embeddings")


def _layer(idx: int, mixer: _Mixer | Latent) -> LayerSpec:
    return mixer.layer(mamba_name(idx) if isinstance(mixer, _Mixer) else f"L{idx}.attn")


def _mlps(reader: ConfigReader, hidden: int, num_layers: int) -> list[tuple[int, int]]:
    experts = read_experts(reader, "num_experts", 256, 8, "num_experts_per_token")
    width = reader.integer("moe_intermediate_size", 1024)
    shared = width * reader.integer("num_shared_experts", 1, minimum=0)
    mixture = experts.weights_with_shared(hidden, width, shared)
    dense = same(gated_mlp_weights(hidden, reader.integer("intermediate_size")))
    first = reader.integer("first_k_dense_replace", 0, minimum=0)
    step = reader.integer("moe_layer_freq", 1)
    return [mixture if idx >= first and idx % step == 0 else dense for idx in range(num_layers)]

"""PLaMo-2: attention and Mamba-2 take turns; the convolution keeps the inner channels only."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.layers import LayerSpec, RecurrentLayer, StateTensor
from sim.models.parts import Heads, Structure, counted_dims, gated_mlp_weights, same
from sim.models.reader import ConfigReader
from sim.models.recurrent import attention_of, mamba_name, read_chunk_size


@dataclass(frozen=True, slots=True)
class _Mixer:
    """B, C and dt come from the convolved channels, so they are not convolved themselves."""

    num_heads: int
    head_dim: int
    state: int
    conv: int

    @property
    def width(self) -> int:
        return self.num_heads * self.head_dim

    def layer(self, name: str) -> RecurrentLayer:
        tensors = (
            StateTensor("conv", (self.conv - 1, self.width)),
            StateTensor("ssm", (self.num_heads, self.head_dim, self.state)),
        )
        return RecurrentLayer(name=name, flavour="mamba2", tensors=tensors)

    def weights(self, hidden: int) -> int:
        dt_rank = max(64, hidden // 16)
        selection = self.width * (dt_rank + 2 * self.state) + dt_rank * self.num_heads
        return 3 * hidden * self.width + self.width * self.conv + selection


def plamo2(reader: ConfigReader) -> Structure:
    """Layer i attends iff i % mamba_step == mamba_step // 2; of a short stack only the last.

    The engine ignores ``attention_window_size``. Source: models/README.md, "PLaMo-2".
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    head_dim = reader.integer(reader.first_of("hidden_size_per_head", "head_dim"), 128)
    heads = _read_heads(reader, head_dim)
    mixer = _Mixer(
        num_heads=reader.integer("mamba_num_heads", 64),
        head_dim=head_dim,
        state=reader.integer("mamba_d_state", 64),
        conv=reader.integer("mamba_d_conv", 4, minimum=2),
    )
    attends = _attends(reader, num_layers)
    mixers = [heads.weights(hidden) if full else mixer.weights(hidden) for full in attends]
    mlp = gated_mlp_weights(hidden, reader.integer("intermediate_size", 13_312))
    weights = [same(sum(mixers)), same(mlp * num_layers)]
    return Structure(
        layers=tuple(_layer(idx, full, heads, mixer) for idx, full in enumerate(attends)),
        max_model_len=reader.integer("max_position_embeddings", 10_485_760),
        dims=counted_dims(reader, hidden, num_layers, heads, weights, tied=True, vocab_size=32_000),
        mamba_chunk_size=read_chunk_size(reader),
    )


def _read_heads(reader: ConfigReader, head_dim: int) -> Heads:
    heads = reader.integer("num_attention_heads", 32)
    kv_heads = reader.integer("num_key_value_heads", 4)
    allowed = f"a divisor of num_attention_heads ({heads})"
    reader.check(heads % kv_heads == 0, "num_key_value_heads", kv_heads, allowed)
    return Heads(heads, kv_heads, head_dim)


def _attends(reader: ConfigReader, num_layers: int) -> list[bool]:
    if not reader.boolean("mamba_enabled", True):
        return [True] * num_layers
    step = reader.integer("mamba_step", 2, minimum=2)
    if num_layers <= step // 2:
        return [idx == num_layers - 1 for idx in range(num_layers)]
    return [idx % step == step // 2 for idx in range(num_layers)]


def _layer(idx: int, attends: bool, heads: Heads, mixer: _Mixer) -> LayerSpec:
    return attention_of(idx, heads) if attends else mixer.layer(mamba_name(idx))

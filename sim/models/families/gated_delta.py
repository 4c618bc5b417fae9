"""Qwen3-Next and Qwen3.5: gated delta nets, every fourth layer of full attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.models.layers import LayerSpec, RecurrentLayer, StateTensor
from sim.models.parts import (
    Heads,
    Structure,
    counted_dims,
    gated_mlp_weights,
    is_periodic_end,
    read_experts,
    read_heads,
    same,
)
from sim.models.reader import ConfigReader
from sim.models.recurrent import attention_of, mamba_name, read_chunk_size

_ATTENDS = {"linear_attention": False, "full_attention": True, "mamba": False, "attention": True}
_DTYPES = ("bfloat16", "float16", "float32")
_MTP_KEYS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")


@dataclass(frozen=True, slots=True)
class _Mixer:
    """A gated delta net: key and value heads, their sizes, convolution length."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @property
    def conv_width(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def layer(self, name: str) -> RecurrentLayer:
        tensors = (
            StateTensor("conv", (self.conv - 1, self.conv_width)),
            StateTensor("ssm", (self.value_heads, self.value_dim, self.key_dim)),
        )
        return RecurrentLayer(name=name, flavour="gdn", tensors=tensors)

    def weights(self, hidden: int) -> int:
        """Queries, keys, values, their gate, two numbers per head, and the way out."""
        values = self.value_heads * self.value_dim
        projections = hidden * (self.conv_width + 2 * values + 2 * self.value_heads)
        return projections + self.conv_width * self.conv


def qwen3_next(reader: ConfigReader) -> Structure:
    """Qwen3-Next has one MTP layer, which no key of the file names.

    Source: models/README.md, "Qwen3-Next, Qwen3.5"; spec/layout.md 15.7.
    """
    return _structure(reader, reader, _mixture(reader, reader.integer("hidden_size")))


def qwen3_5(reader: ConfigReader) -> Structure:
    """Qwen3.5 nests its language model and names the dtype of its states."""
    text = reader.text()
    hidden = text.integer("hidden_size")
    mlp = same(gated_mlp_weights(hidden, text.integer("intermediate_size")))
    return _structure(reader, text, mlp)


def qwen3_5_moe(reader: ConfigReader) -> Structure:
    """The same with experts in every layer."""
    text = reader.text()
    return _structure(reader, text, _mixture(text, text.integer("hidden_size")))


def _mixture(reader: ConfigReader, hidden: int) -> tuple[int, int]:
    """Experts and a shared one."""
    experts = read_experts(reader, "num_experts", 512, 10)
    width = reader.integer("moe_intermediate_size", 512)
    shared = reader.integer("shared_expert_intermediate_size", 512)
    return experts.weights_with_shared(hidden, width, shared)


def _structure(outer: ConfigReader, reader: ConfigReader, mlp: tuple[int, int]) -> Structure:
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_kv_heads=2, default_head_dim=256)
    mixer = _read_mixer(reader)
    attends = _attends(reader, num_layers)
    last = num_layers + _num_mtp(reader)
    is_tied = outer.boolean("tie_word_embeddings", False)
    return Structure(
        layers=tuple(_layer(idx, full, heads, mixer) for idx, full in enumerate(attends)),
        mtp_layers=tuple(attention_of(idx, heads) for idx in range(num_layers, last)),
        max_model_len=reader.integer("max_position_embeddings", 32_768),
        dims=counted_dims(
            reader,
            hidden,
            num_layers,
            heads,
            [same(_mixer_weights(hidden, heads, mixer, attends)), *([mlp] * num_layers)],
            tied=is_tied,
            vocab_size=151_936,
        ),
        mamba_chunk_size=read_chunk_size(reader),
        mamba_ssm_cache_dtype=_state_dtype(reader),
        class_counts_speculation=True,
    )


def _state_dtype(reader: ConfigReader) -> str | None:
    if not reader.has("mamba_ssm_dtype"):
        return None
    return reader.choice("mamba_ssm_dtype", _DTYPES, "float32")


def _num_mtp(reader: ConfigReader) -> int:
    key = reader.first_of(*_MTP_KEYS)
    return reader.integer(key, 1, minimum=0, maximum=64)


def _attends(reader: ConfigReader, num_layers: int) -> list[bool]:
    """The interval, unless the file lists the layers."""
    if reader.has("layer_types"):
        return [_ATTENDS[kind] for kind in reader.strings("layer_types", num_layers, _ATTENDS)]
    interval = reader.integer("full_attention_interval", 4)
    return [is_periodic_end(idx, interval) for idx in range(num_layers)]


def _read_mixer(reader: ConfigReader) -> _Mixer:
    mixer = _Mixer(
        key_heads=reader.integer("linear_num_key_heads", 16),
        value_heads=reader.integer("linear_num_value_heads", 32),
        key_dim=reader.integer("linear_key_head_dim", 128),
        value_dim=reader.integer("linear_value_head_dim", 128),
        conv=reader.integer("linear_conv_kernel_dim", 4, minimum=2),
    )
    allowed = f"a multiple of linear_num_key_heads ({mixer.key_heads})"
    divides = mixer.value_heads % mixer.key_heads == 0
    reader.check(divides, "linear_num_value_heads", mixer.value_heads, allowed)
    return mixer


def _mixer_weights(hidden: int, heads: Heads, mixer: _Mixer, attends: Sequence[bool]) -> int:
    """Attention has an output gate as wide as its queries."""
    gate = hidden * heads.num_attention_heads * heads.head_dim
    attention = heads.weights(hidden) + gate
    return sum(attention if full else mixer.weights(hidden) for full in attends)


def _layer(idx: int, attends: bool, heads: Heads, mixer: _Mixer) -> LayerSpec:
    return attention_of(idx, heads) if attends else mixer.layer(mamba_name(idx))

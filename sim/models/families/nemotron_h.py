"""Nemotron-H, Nano v2 and Nemotron-3: one letter per layer, each layer a single mixer."""

from __future__ import annotations

from sim.models.layers import LayerSpec
from sim.models.parts import (
    Experts,
    Heads,
    Structure,
    counted_dims,
    num_mtp_layers,
    read_experts,
    same,
)
from sim.models.reader import ConfigReader
from sim.models.recurrent import Mamba2, attention_of, mamba_name, read_chunk_size

_LETTERS = "M*-E"  # Mamba-2, attention, MLP, experts
_STATE_DTYPES = ("auto", "bfloat16", "float16", "float32")
_NAMES = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E", "linear_attention": "M",
          "full_attention": "*"}  # fmt: skip


def nemotron_h(reader: ConfigReader) -> Structure:
    """Letters of ``hybrid_override_pattern``: M keeps a state, * attends, - and E keep nothing.

    Recurrent states are float32 unless the file says otherwise.
    Source: models/README.md, "Nemotron-H"; spec/layout.md 3.0, 4 and 15.7.
    """
    pattern = _read_pattern(reader)
    hidden = reader.integer("hidden_size")
    heads = _read_heads(reader)
    mixer = _read_mixer(reader)
    depth = len(pattern)
    weights = _weights(reader, hidden, heads, mixer, pattern)
    last = depth + num_mtp_layers(reader)
    layers = [_layer(idx, letter, heads, mixer) for idx, letter in enumerate(pattern)]
    return Structure(
        layers=tuple(layer for layer in layers if layer is not None),
        mtp_layers=tuple(attention_of(idx, heads) for idx in range(depth, last)),
        max_model_len=reader.integer("max_position_embeddings", 4096),
        dims=counted_dims(reader, hidden, depth, heads, weights, vocab_size=131_072),
        supports_mamba_all=True,
        mamba_chunk_size=read_chunk_size(reader),
        mamba_ssm_cache_dtype=_state_dtype(reader),
        class_counts_speculation=True,
    )


def _state_dtype(reader: ConfigReader) -> str | None:
    dtype = reader.choice("mamba_ssm_cache_dtype", _STATE_DTYPES, "float32")
    return "float32" if dtype == "auto" else dtype


def _read_pattern(reader: ConfigReader) -> str:
    num_layers = reader.num_layers()
    if not reader.has("hybrid_override_pattern") and reader.has("layers_block_type"):
        return "".join(_NAMES[n] for n in reader.strings("layers_block_type", num_layers, _NAMES))
    pattern = reader.raw("hybrid_override_pattern")
    allowed = f"a string of {num_layers} letters of {_LETTERS}"
    shown = "missing" if pattern is None else pattern
    valid = (
        isinstance(pattern, str) and len(pattern) == num_layers and set(pattern) <= set(_LETTERS)
    )
    reader.check(valid, "hybrid_override_pattern", shown, allowed)
    return pattern if valid else "M"


def _read_heads(reader: ConfigReader) -> Heads:
    heads = reader.integer("num_attention_heads", 32)
    kv_heads = reader.integer("num_key_value_heads", 8)
    allowed = f"a divisor of num_attention_heads ({heads})"
    reader.check(heads % kv_heads == 0, "num_key_value_heads", kv_heads, allowed)
    return Heads(heads, kv_heads, reader.integer(_head_dim_key(reader), 128))


def _head_dim_key(reader: ConfigReader) -> str:
    return reader.first_of("head_dim", "attention_head_dim")


def _read_mixer(reader: ConfigReader) -> Mamba2:
    """Inner channels are heads times their size; ``expand`` says something else."""
    return Mamba2(
        num_heads=reader.integer("mamba_num_heads", 128),
        head_dim=reader.integer("mamba_head_dim", 64),
        num_groups=reader.integer("n_groups", 8),
        state=reader.integer("ssm_state_size", 128),
        conv=reader.integer("conv_kernel", 4, minimum=2),
    )


def _layer(idx: int, letter: str, heads: Heads, mixer: Mamba2) -> LayerSpec | None:
    if letter == "M":
        return mixer.layer(mamba_name(idx))
    return attention_of(idx, heads) if letter == "*" else None


def _weights(
    reader: ConfigReader, hidden: int, heads: Heads, mixer: Mamba2, pattern: str
) -> list[tuple[int, int]]:
    """MLPs and experts have no gate: two matrices each."""
    by_letter = {"M": same(mixer.weights(hidden)), "*": same(heads.weights(hidden))}
    if "-" in pattern:
        by_letter["-"] = same(2 * hidden * reader.integer("intermediate_size", 21_504))
    if "E" in pattern:
        by_letter["E"] = _expert_weights(reader, hidden)
    return [by_letter[letter] for letter in pattern]


def _expert_weights(reader: ConfigReader, hidden: int) -> tuple[int, int]:
    """Experts may work in a smaller space, with a projection into it and one out of it."""
    experts: Experts = read_experts(reader, "n_routed_experts", 128, 6)
    latent = hidden
    around = hidden * experts.num_experts
    if reader.has("moe_latent_size"):
        latent = reader.integer("moe_latent_size")
        around += 2 * hidden * latent
    one = 2 * latent * reader.integer("moe_intermediate_size", 1856)
    width = reader.integer("moe_shared_expert_intermediate_size", 3712, minimum=0)
    around += 2 * hidden * width * reader.integer("n_shared_experts", 1, minimum=0)
    return around + experts.num_experts * one, around + experts.num_per_token * one

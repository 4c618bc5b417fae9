"""Whisper: a decoder with a growing cache and one over the encoder's frames in each layer."""

from __future__ import annotations

from sim.models.layers import AttentionLayer, CrossAttentionLayer, LayerSpec
from sim.models.parts import Heads, Structure, dims_of, same
from sim.models.reader import ConfigReader


def whisper(reader: ConfigReader) -> Structure:
    """Self attention over at most ``max_target_positions``, cross over the encoder's output.

    Source: models/README.md, "Whisper"; spec/layout.md 2.3 and 15.2.
    """
    num_layers = reader.num_layers(reader.first_of("decoder_layers", "num_hidden_layers"))
    hidden = reader.integer("d_model")
    num_heads = reader.integer("decoder_attention_heads")
    allowed = f"a divisor of d_model ({hidden})"
    reader.check(hidden % num_heads == 0, "decoder_attention_heads", num_heads, allowed)
    heads = Heads(num_heads, num_heads, max(hidden // num_heads, 1))
    layers: list[LayerSpec] = []
    for idx in range(num_layers):
        layers += _caches(idx, heads)
    frames = reader.integer("max_source_positions", 1500)
    length = reader.integer("max_target_positions", 448)
    weights = _weights(reader, hidden, heads, num_layers) + hidden * (frames + length)
    return Structure(
        layers=tuple(layers),
        max_model_len=length,
        max_encoder_tokens=frames,
        is_encoder_decoder=True,
        dims=dims_of(hidden, num_layers, heads, [same(weights)]),
    )


def _caches(idx: int, heads: Heads) -> list[LayerSpec]:
    size, kv_heads = heads.head_dim, heads.num_kv_heads
    return [
        AttentionLayer(name=f"D{idx}.self", num_kv_heads=kv_heads, head_size=size),
        CrossAttentionLayer(name=f"D{idx}.cross", num_kv_heads=kv_heads, head_size=size),
    ]


def _weights(reader: ConfigReader, hidden: int, heads: Heads, num_layers: int) -> int:
    """Encoder and decoder blocks with MLPs of two matrices, convolutions, tied embedding."""
    attention = heads.weights(hidden)
    decoder_mlp = 2 * hidden * reader.integer("decoder_ffn_dim", 4 * hidden)
    encoder_mlp = 2 * hidden * reader.integer("encoder_ffn_dim", 4 * hidden)
    encoder = (attention + encoder_mlp) * reader.num_layers("encoder_layers")
    convolutions = 3 * hidden * (reader.integer("num_mel_bins", 80) + hidden)
    embedding = hidden * reader.integer("vocab_size", 51_865)
    decoder = num_layers * (2 * attention + decoder_mlp)
    return decoder + encoder + convolutions + embedding

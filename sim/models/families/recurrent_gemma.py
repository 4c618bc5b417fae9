"""RecurrentGemma: two gated linear recurrences, then a layer of local attention."""

from __future__ import annotations

from sim.models.layers import LayerSpec, RecurrentLayer, StateTensor
from sim.models.parts import Heads, Structure, counted_dims, gated_mlp_weights, read_heads, same
from sim.models.reader import MAX_LAYERS, ConfigReader
from sim.models.recurrent import attention_of, mamba_name

_FP32_BYTES = 4
_TRAINED_LENGTH = 8192
_ATTENDS = {
    "recurrent": False,
    "attention": True,
    "linear_attention": False,
    "full_attention": True,
}
_DEFAULT_TYPES = ("recurrent", "recurrent", "attention")


def recurrent_gemma(reader: ConfigReader) -> Structure:
    """``_block_types`` repeated and cut at the depth; attention has a window and one KV head.

    Its files name no context length; it was trained on 8192 tokens.
    Source: models/README.md, "RecurrentGemma".
    """
    num_layers = reader.num_layers()
    hidden = reader.integer("hidden_size")
    heads = read_heads(reader, hidden, default_heads=10, default_kv_heads=1)
    width = reader.integer("lru_width", hidden)
    conv = reader.integer("conv1d_width", 4, minimum=2)
    window = reader.integer("attention_window_size", 2048)
    attends = _attends(reader, num_layers)
    mixers = [_weights(hidden, width, conv, heads, attend=full) for full in attends]
    mlp = gated_mlp_weights(hidden, max(reader.integer("intermediate_size") // 2, 1))
    return Structure(
        layers=tuple(
            attention_of(idx, heads, window) if full else _recurrence(idx, width, conv)
            for idx, full in enumerate(attends)
        ),
        max_model_len=reader.integer("max_position_embeddings", _TRAINED_LENGTH),
        max_model_len_is_assumed=not reader.has("max_position_embeddings"),
        dims=counted_dims(
            reader,
            hidden,
            num_layers,
            heads,
            [same(sum(mixers) + mlp * num_layers)],
            tied=True,
            vocab_size=256_000,
        ),
    )


def _attends(reader: ConfigReader, num_layers: int) -> list[bool]:
    key = reader.first_of("_block_types", "block_types")
    types = list(_DEFAULT_TYPES)
    if reader.has(key):
        given = reader.raw(key)
        length = min(len(given), MAX_LAYERS) if isinstance(given, list) else 1
        types = reader.strings(key, max(length, 1), _ATTENDS)
    return [_ATTENDS[types[idx % len(types)]] for idx in range(num_layers)]


def _recurrence(idx: int, width: int, conv: int) -> LayerSpec:
    """One fp32 vector and the tail of the convolution."""
    tensors = (
        StateTensor("conv", (conv - 1, width)),
        StateTensor("ssm", (width,), dtype_bytes=_FP32_BYTES),
    )
    return RecurrentLayer(name=mamba_name(idx), flavour="rglru", tensors=tensors)


def _weights(hidden: int, width: int, conv: int, heads: Heads, *, attend: bool) -> int:
    """Recurrence: two ways in, one out, the convolution, two gates that are block-diagonal."""
    if attend:
        return heads.weights(hidden)
    gates = 2 * width * (width // heads.num_attention_heads)
    return 3 * hidden * width + conv * width + gates

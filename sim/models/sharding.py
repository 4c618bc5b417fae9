"""Tensor parallelism: a model's layers as one rank holds them.

Source: spec/layout.md 0, 4 and 15.8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch

from sim.errors import ConfigError
from sim.models.layers import (
    AttentionLayer,
    CrossAttentionLayer,
    LayerSpec,
    RecurrentLayer,
    StateTensor,
)
from sim.models.model_config import ModelConfig

MAX_RANKS = 65_536
_KEY = "tensor_parallel_size"


def shard(model: ModelConfig, tensor_parallel_size: int) -> ModelConfig:
    """Return the model with the heads and states of one of ``tensor_parallel_size`` ranks.

    KV heads divide among ranks, or each is repeated on several ranks; latent vectors, indexers and
    hidden states are whole on every rank; recurrent states divide by their flavour's rule.
    ``dims`` stay those of the whole model.

    Raises
    ------
    ConfigError
        The degree neither divides a number of heads nor is a multiple of it, or does not divide a
        recurrent state.
    """
    ranks = _checked(tensor_parallel_size)
    if ranks == 1:
        return model
    if model.tensor_parallel_size != 1:
        raise ValueError("the layers are one rank's already")
    if model.first_attention_layer is not None:
        _heads_per_rank(model.dims.num_attention_heads, ranks, "attention heads")
    state = model.class_state
    return replace(
        model,
        layers=tuple(shard_layer(layer, ranks) for layer in model.layers),
        mtp_layers=tuple(shard_layer(layer, ranks) for layer in model.mtp_layers),
        class_state=None if state is None else _recurrent(state, ranks),
        tensor_parallel_size=ranks,
    )


def _checked(ranks: int) -> int:
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= MAX_RANKS:
        raise ConfigError.one(_KEY, ranks, f"an integer from 1 to {MAX_RANKS}")
    return ranks


@singledispatch
def shard_layer(layer: LayerSpec, ranks: int) -> LayerSpec:
    """Return the layer as one rank holds it; a layer without heads is whole on every rank."""
    return layer


@shard_layer.register(AttentionLayer)
@shard_layer.register(CrossAttentionLayer)
def _attention(layer: AttentionLayer | CrossAttentionLayer, ranks: int) -> LayerSpec:
    what = f"KV heads of layer {layer.name}"
    return replace(layer, num_kv_heads=_heads_per_rank(layer.num_kv_heads, ranks, what))


@shard_layer.register(RecurrentLayer)
def _recurrent(layer: RecurrentLayer, ranks: int) -> RecurrentLayer:
    return replace(layer, tensors=_STATES[layer.flavour](layer, ranks))


def _heads_per_rank(heads: int, ranks: int, what: str) -> int:
    """Heads that divide, or one head that several ranks hold."""
    if heads % ranks and ranks % heads:
        allowed = f"a divisor or a multiple of the {heads} {what}"
        raise ConfigError.one(_KEY, ranks, allowed)
    return max(1, heads // ranks)


def _divided(number: int, ranks: int, what: str, layer: RecurrentLayer) -> int:
    if number % ranks:
        allowed = f"a divisor of the {number} {what} of layer {layer.name} ({layer.flavour})"
        raise ConfigError.one(_KEY, ranks, allowed)
    return number // ranks


def _resized(tensor: StateTensor, axis: int, size: int) -> StateTensor:
    shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
    return replace(tensor, shape=shape)


def _mamba1(layer: RecurrentLayer, ranks: int) -> tuple[StateTensor, ...]:
    conv, state = layer.tensors
    width = _divided(state.shape[0], ranks, "inner channels", layer)
    return _resized(conv, 1, width), _resized(state, 0, width)


def _mamba2(layer: RecurrentLayer, ranks: int) -> tuple[StateTensor, ...]:
    """Groups that do not divide become one per rank: spec/layout.md 4 and appendix C14."""
    conv, state = layer.tensors
    heads, head_dim, state_size = state.shape
    num_groups = (conv.shape[1] - heads * head_dim) // (2 * state_size)
    groups = ranks if num_groups % ranks else num_groups
    heads_per_rank = _divided(heads, ranks, "heads", layer)
    width = heads_per_rank * head_dim + 2 * (groups // ranks) * state_size
    return _resized(conv, 1, width), _resized(state, 0, heads_per_rank)


def _gated_delta_net(layer: RecurrentLayer, ranks: int) -> tuple[StateTensor, ...]:
    conv, state = layer.tensors
    heads, value_dim, key_dim = state.shape
    key_heads = (conv.shape[1] - heads * value_dim) // (2 * key_dim)
    keys = _divided(key_heads, ranks, "key heads", layer)
    values = _divided(heads, ranks, "value heads", layer)
    width = 2 * key_dim * keys + value_dim * values
    return _resized(conv, 1, width), _resized(state, 0, values)


def _kimi_delta(layer: RecurrentLayer, ranks: int) -> tuple[StateTensor, ...]:
    conv, state = layer.tensors
    heads = _divided(state.shape[0], ranks, "heads", layer)
    return _resized(conv, 1, conv.shape[1] // ranks), _resized(state, 0, heads)


def _lightning(layer: RecurrentLayer, ranks: int) -> tuple[StateTensor, ...]:
    """Heads are rounded down, as the engine does; a rank without a head is refused."""
    (state,) = layer.tensors
    if state.shape[0] < ranks:
        allowed = f"at most the {state.shape[0]} heads of layer {layer.name} ({layer.flavour})"
        raise ConfigError.one(_KEY, ranks, allowed)
    return (_resized(state, 0, state.shape[0] // ranks),)


def _short_conv(layer: RecurrentLayer, ranks: int) -> tuple[StateTensor, ...]:
    (conv,) = layer.tensors
    return (_resized(conv, 1, _divided(conv.shape[1], ranks, "channels", layer)),)


def _rglru(layer: RecurrentLayer, ranks: int) -> tuple[StateTensor, ...]:
    conv, state = layer.tensors
    width = _divided(state.shape[0], ranks, "channels", layer)
    return _resized(conv, 1, width), _resized(state, 0, width)


_STATES: dict[str, Callable[[RecurrentLayer, int], tuple[StateTensor, ...]]] = {
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "gdn": _gated_delta_net,
    "kda": _kimi_delta,
    "lightning": _lightning,
    "short_conv": _short_conv,
    "rglru": _rglru,
}

"""Speculative decoding: the layers it adds and the states it lengthens.

Source: spec/layout.md 4, 6.6, 6.7 and 15.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sim.errors import ConfigError
from sim.models.layers import (
    AttentionLayer,
    HiddenStateLayer,
    LayerSpec,
    MLALayer,
    RecurrentLayer,
    StateTensor,
)
from sim.models.model_config import ModelConfig
from sim.models.sharding import shard_layer
from sim.registry import Registry

LENGTHENED = ("mamba2", "gdn")  # flavours whose convolution keeps the speculative tokens too
MAX_TOKENS = 1024
MAX_LAYERS = 1024
_LAYERS_KEY = "num_speculative_layers"


@dataclass(frozen=True, slots=True)
class SpeculativeMethod:
    """A way to speculate: ``layers(model, num_layers, draft)`` are the caches that it adds.

    is_eagle: the engine treats it as EAGLE-type, which drops the last matched block of a hit.
    has_lookahead: a step takes slots for the drafts of the next one (spec/manager.md 6.1).
    """

    name: str
    layers: Callable[[ModelConfig, int | None, LayerSpec | None], tuple[LayerSpec, ...]]
    is_eagle: bool = False
    has_lookahead: bool = False


def with_speculation(
    model: ModelConfig,
    method: str,
    num_speculative_tokens: int,
    num_layers: int | None = None,
    draft: AttentionLayer | None = None,
) -> ModelConfig:
    """Return the model with the layers of a speculative method behind its own.

    Parameters
    ----------
    method : a name of SPECULATIVE_METHODS
    num_speculative_tokens : lengthens Mamba-2 and gated-delta-net convolutions by as many tokens;
        it does not change the number of layers
    num_layers : draft layers, extracted hidden states, or fewer MTP layers than the model has
    draft : shape of a draft layer for the whole model, its name ignored; None for the shape of
        the model's first full-attention layer

    May be applied twice, for two kinds of layers; the tokens are then those of both.

    Raises
    ------
    ConfigError
        Unknown method, a model without the layers asked for, numbers out of range.
    """
    rule = SPECULATIVE_METHODS[method]
    tokens = _count("num_speculative_tokens", num_speculative_tokens, 0, MAX_TOKENS)
    if num_layers is not None:
        _count(_LAYERS_KEY, num_layers, 1, MAX_LAYERS)
    more = max(0, tokens - model.num_speculative_tokens)
    own = tuple(_lengthened(layer, more) for layer in model.layers)
    added = rule.layers(model, num_layers, draft)
    return replace(
        model,
        layers=own + added,
        mtp_layers=tuple(layer for layer in model.mtp_layers if layer not in added),
        class_state=None if model.class_counts_speculation else model.aligned_state,
        num_speculative_tokens=model.num_speculative_tokens + more,
    )


def _count(key: str, value: int, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError.one(key, value, f"an integer from {least} to {most}")
    return value


def _lengthened(layer: LayerSpec, tokens: int) -> LayerSpec:
    """Mamba-1, KDA and short convolutions keep their length. Source: spec/layout.md 4."""
    if not isinstance(layer, RecurrentLayer) or layer.flavour not in LENGTHENED:
        return layer
    conv, *rest = layer.tensors
    longer = StateTensor(conv.role, (conv.shape[0] + tokens, *conv.shape[1:]), conv.dtype_bytes)
    return replace(layer, tensors=(longer, *rest))


def _no_layers(
    model: ModelConfig, num_layers: int | None, draft: LayerSpec | None
) -> tuple[LayerSpec, ...]:
    return ()


def _mtp_layers(
    model: ModelConfig, num_layers: int | None, draft: LayerSpec | None
) -> tuple[LayerSpec, ...]:
    """The model's own speculative blocks, which may own several caches each."""
    blocks = list(dict.fromkeys(layer.name.split(".")[0] for layer in model.mtp_layers))
    if not blocks:
        raise ConfigError.one("speculative_method", "mtp", f"{model.name} has no MTP layers")
    if num_layers is not None and num_layers > len(blocks):
        raise ConfigError.one(_LAYERS_KEY, num_layers, f"at most {len(blocks)} for {model.name}")
    wanted = blocks[:num_layers]
    return tuple(la for la in model.mtp_layers if la.name.split(".")[0] in wanted)


def _draft_layers(
    model: ModelConfig, num_layers: int | None, draft: LayerSpec | None
) -> tuple[LayerSpec, ...]:
    """Layers of another model, or one more of the target's own shape."""
    shape = (
        _target_shape(model) if draft is None else shard_layer(draft, model.tensor_parallel_size)
    )
    first = sum(layer.name.startswith("draft.") for layer in model.layers)
    return tuple(replace(shape, name=f"draft.{first + idx}") for idx in range(num_layers or 1))


def _target_shape(model: ModelConfig) -> LayerSpec:
    for layer in model.layers:
        if isinstance(layer, MLALayer):
            return replace(layer, is_sparse=False)
        if isinstance(layer, AttentionLayer) and layer.kind == "full":
            return layer
    sliding = next((la for la in model.layers if isinstance(la, AttentionLayer)), None)
    if sliding is None:
        raise ConfigError.one("draft", "missing", f"a shape; {model.name} has no layer to repeat")
    return replace(sliding, sliding_window=None, attention_chunk_size=None)


def _hidden_states(
    model: ModelConfig, num_layers: int | None, draft: LayerSpec | None
) -> tuple[LayerSpec, ...]:
    """One cache for the hidden states of ``num_layers`` target layers. Source: 6.6."""
    size = model.dims.hidden_size
    return (HiddenStateLayer(name="hidden.0", head_size=size, num_heads=num_layers or 1),)


SPECULATIVE_METHODS: Registry[SpeculativeMethod] = Registry(
    "speculative_method",
    {
        method.name: method
        for method in (
            SpeculativeMethod("ngram", _no_layers),
            SpeculativeMethod("mtp", _mtp_layers, is_eagle=True, has_lookahead=True),
            SpeculativeMethod("eagle", _draft_layers, is_eagle=True, has_lookahead=True),
            SpeculativeMethod("eagle3", _draft_layers, is_eagle=True, has_lookahead=True),
            SpeculativeMethod("draft_model", _draft_layers, has_lookahead=True),
            SpeculativeMethod("extract_hidden_states", _hidden_states),
        )
    },
)

"""What every family's rule is made of: head sizes, layer names, parameter counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sim.models.layers import AttentionLayer, LayerSpec
from sim.models.model_config import ModelDims
from sim.models.reader import MAX_LAYERS, ConfigReader

FULL = "full_attention"
SLIDING = "sliding_attention"
_IS_WINDOWED = {FULL: False, SLIDING: True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What a family's rule returns; the fields are those of ModelConfig."""

    layers: tuple[LayerSpec, ...]
    max_model_len: int
    dims: ModelDims
    supports_mamba_all: bool = False
    mtp_layers: tuple[LayerSpec, ...] = ()
    kv_shared_target: Mapping[str, str] = field(default_factory=dict)
    mamba_chunk_size: int = 2048
    mamba_ssm_cache_dtype: str | None = None
    attention_chunk_size: int | None = None
    max_encoder_tokens: int | None = None
    max_model_len_is_assumed: bool = False
    is_encoder_decoder: bool = False
    is_deepseek_v4: bool = False
    class_counts_speculation: bool = False


Rule = Callable[[ConfigReader], Structure]


@dataclass(frozen=True, slots=True)
class Heads:
    """Numbers of query and KV heads and their size."""

    num_attention_heads: int
    num_kv_heads: int
    head_dim: int

    def weights(self, hidden_size: int) -> int:
        """Parameters of the four projections of one layer."""
        width = 2 * self.num_attention_heads + 2 * self.num_kv_heads
        return hidden_size * width * self.head_dim


def read_heads(
    reader: ConfigReader,
    hidden_size: int,
    *,
    default_heads: int | None = None,
    default_kv_heads: int | None = None,
    default_head_dim: int | None = None,
) -> Heads:
    """Read head counts and head size.

    Without a family default, KV heads equal query heads and the head size is
    ``hidden_size / num_attention_heads``, which must divide. Query heads must be a multiple of
    KV heads.
    """
    key = "num_attention_heads"
    heads = reader.integer(key) if default_heads is None else reader.integer(key, default_heads)
    kv_heads = reader.integer("num_key_value_heads", default_kv_heads or heads)
    reader.check(
        heads % kv_heads == 0, "num_key_value_heads", kv_heads, f"a divisor of {key} ({heads})"
    )
    if default_head_dim is not None or reader.has("head_dim"):
        head_dim = reader.integer("head_dim", default_head_dim or 1)
    else:
        allowed = f"a divisor of hidden_size ({hidden_size}), or a head_dim"
        reader.check(hidden_size % heads == 0, key, heads, allowed)
        head_dim = max(hidden_size // heads, 1)
    return Heads(heads, kv_heads, head_dim)


def attention_layers(heads: Heads, windows: Sequence[int | None]) -> tuple[AttentionLayer, ...]:
    """Return one attention layer per entry, named L0, L1, ...; None is full attention."""
    return tuple(
        AttentionLayer(
            name=f"L{idx}",
            num_kv_heads=heads.num_kv_heads,
            head_size=heads.head_dim,
            sliding_window=window,
        )
        for idx, window in enumerate(windows)
    )


def windows_of_types(reader: ConfigReader, num_layers: int, window: int) -> list[int | None]:
    """Return ``layer_types`` as windows, None for full attention."""
    types = reader.strings("layer_types", num_layers, _IS_WINDOWED)
    return [window if _IS_WINDOWED[kind] else None for kind in types]


def is_periodic_end(idx: int, period: int) -> bool:
    """True for the last layer of each period, counted from layer 0."""
    return (idx + 1) % period == 0


def num_mtp_layers(reader: ConfigReader, key: str = "num_nextn_predict_layers") -> int:
    """Return how many speculative layers come with the model; none where the key is absent.

    Source: spec/layout.md 15.7.
    """
    return reader.integer(key, 0, minimum=0, maximum=MAX_LAYERS) if reader.has(key) else 0


def gated_mlp_weights(hidden_size: int, intermediate_size: int) -> int:
    """Parameters of a gated MLP: gate, up and down projections."""
    return 3 * hidden_size * intermediate_size


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture layer: how many experts exist and how many one token visits."""

    num_experts: int
    num_per_token: int

    def weights(self, hidden_size: int, intermediate_size: int) -> tuple[int, int]:
        """Parameters of one layer, total and active; the router counts in both."""
        one = gated_mlp_weights(hidden_size, intermediate_size)
        router = hidden_size * self.num_experts
        return router + self.num_experts * one, router + self.num_per_token * one

    def weights_with_shared(self, hidden_size: int, width: int, shared: int) -> tuple[int, int]:
        """The same with experts of ``shared`` width that every token visits."""
        always = gated_mlp_weights(hidden_size, shared)
        total, active = self.weights(hidden_size, width)
        return total + always, active + always


def read_experts(
    reader: ConfigReader,
    num_key: str,
    num_experts: int,
    per_token: int,
    per_token_key: str = "num_experts_per_tok",
) -> Experts:
    """Read the number of experts and those per token, with the family's defaults."""
    total = reader.integer(num_key, num_experts)
    active = reader.integer(per_token_key, per_token)
    reader.check(active <= total, per_token_key, active, f"at most {num_key} ({total})")
    return Experts(total, active)


def embedding_weights(vocab_size: int, hidden_size: int, *, tied: bool) -> int:
    """Parameters of the input embedding and, unless tied to it, of the output head."""
    return vocab_size * hidden_size * (1 if tied else 2)


def counted_dims(
    reader: ConfigReader,
    hidden_size: int,
    num_layers: int,
    heads: Heads,
    weights: Iterable[tuple[int, int]],
    *,
    tied: bool = False,
    vocab_size: int | None = None,
) -> ModelDims:
    """Return the sizes with the embedding counted too; ``tied`` and ``vocab_size`` are defaults."""
    is_tied = reader.boolean("tie_word_embeddings", tied)
    given = () if vocab_size is None else (vocab_size,)
    vocabulary = reader.integer("vocab_size", *given)
    embedding = embedding_weights(vocabulary, hidden_size, tied=is_tied)
    dims = dims_of(hidden_size, num_layers, heads, [same(embedding), *weights])
    head = embedding_weights(vocabulary, hidden_size, tied=True)
    return replace(dims, embedding_parameters=embedding, head_parameters=head)


def dims_of(
    hidden_size: int, num_layers: int, heads: Heads, weights: Iterable[tuple[int, int]]
) -> ModelDims:
    """Return the sizes with counted parameters: the sum of (total, active) pairs."""
    pairs = list(weights)
    return ModelDims(
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=heads.num_attention_heads,
        head_dim=heads.head_dim,
        num_parameters_total=sum(total for total, _ in pairs),
        num_parameters_active=sum(active for _, active in pairs),
    )


def same(weights: int) -> tuple[int, int]:
    """Return (total, active) of a part that every token passes through."""
    return weights, weights

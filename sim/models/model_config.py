"""What the rest of the simulator knows about a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.models.layers import (
    AttentionLayer,
    CompressedIndexerLayer,
    CompressedMLALayer,
    CompressorStateLayer,
    CrossAttentionLayer,
    HiddenStateLayer,
    IndexerLayer,
    LayerSpec,
    MLALayer,
    RecurrentLayer,
    SlidingMLALayer,
    StateTensor,
)

__all__ = [
    "AttentionLayer",
    "CompressedIndexerLayer",
    "CompressedMLALayer",
    "CompressorStateLayer",
    "CrossAttentionLayer",
    "HiddenStateLayer",
    "IndexerLayer",
    "LayerSpec",
    "MLALayer",
    "ModelConfig",
    "ModelDims",
    "RecurrentLayer",
    "SlidingMLALayer",
    "StateTensor",
]


@dataclass(frozen=True, slots=True)
class ModelDims:
    """Sizes for a roofline model.

    num_parameters_total and _active are published numbers where the model file carries them
    (``parameters_from`` is ``published``), else counted from the config's fields without norms,
    biases and vision towers (``counted``). Active: those that one token passes through.
    embedding_parameters: input embedding and output head, which count as active but multiply
    nothing for most tokens; head_parameters: one product with the head. weight_bytes_per_parameter:
    what the released checkpoint stores on average, None if it is the model's element size.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    num_parameters_total: int
    num_parameters_active: int
    parameters_from: str = "counted"
    embedding_parameters: int = 0
    head_parameters: int = 0
    weight_bytes_per_parameter: float | None = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model as its ``config.json`` describes it.

    layers: cache-owning layers in order of registration. max_model_len in tokens. dtype_bytes:
    element size that "auto" means. supports_mamba_all: the engine's model class declares the
    recurrent cache mode ``all``. defaults_taken: keys that the file leaves out and the values
    that the family's rule filled in.

    mtp_layers: speculative layers that come with the model, not in ``layers`` until
    `with_speculation` adds them. kv_shared_target: name of a layer that owns no cache to the layer
    whose cache it reads. mamba_chunk_size: alignment unit of the mode ``all`` in tokens.
    mamba_ssm_cache_dtype: what "auto" means for recurrent states, None for the convolution's.
    attention_chunk_size: the model-wide chunk, None without chunked layers. max_encoder_tokens:
    longest encoder input. max_model_len_is_assumed: the file names no context length, so the
    engine takes any that it is told.

    class_counts_speculation: the engine's model class adds speculative tokens to the state that
    block sizes are aligned to; class_state: that state where it is not the first recurrent
    layer's. num_speculative_tokens, tensor_parallel_size: what has been applied to ``layers``.
    """

    name: str
    architecture: str
    max_model_len: int
    dtype_bytes: int
    layers: tuple[LayerSpec, ...]
    dims: ModelDims
    supports_mamba_all: bool = False
    defaults_taken: tuple[str, ...] = ()
    mtp_layers: tuple[LayerSpec, ...] = ()
    kv_shared_target: Mapping[str, str] = field(default_factory=dict, hash=False)
    mamba_chunk_size: int = 2048
    mamba_ssm_cache_dtype: str | None = None
    attention_chunk_size: int | None = None
    max_encoder_tokens: int | None = None
    max_model_len_is_assumed: bool = False
    is_encoder_decoder: bool = False
    is_deepseek_v4: bool = False
    class_counts_speculation: bool = False
    class_state: RecurrentLayer | None = None
    num_speculative_tokens: int = 0
    tensor_parallel_size: int = 1

    @property
    def has_recurrent(self) -> bool:
        """True if some layer keeps a state of fixed size."""
        return any(isinstance(layer, RecurrentLayer) for layer in self.layers)

    @property
    def is_hybrid(self) -> bool:
        """True if the model has recurrent and attention layers."""
        return self.has_recurrent and self.first_attention_layer is not None

    @property
    def first_attention_layer(self) -> LayerSpec | None:
        """The first layer that is not recurrent, None in a pure state-space model."""
        return next((la for la in self.layers if not isinstance(la, RecurrentLayer)), None)

    @property
    def first_recurrent_layer(self) -> RecurrentLayer | None:
        """The first layer with a state of fixed size, None without any."""
        return next((la for la in self.layers if isinstance(la, RecurrentLayer)), None)

    @property
    def aligned_state(self) -> RecurrentLayer | None:
        """The state that block sizes are aligned to; None without recurrent layers.

        It may be smaller than the layers' own states, where the engine's model class forgets the
        speculative tokens. Source: spec/layout.md 4 and appendix C9.
        """
        return self.class_state or self.first_recurrent_layer

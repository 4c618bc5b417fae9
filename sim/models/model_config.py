"""What the rest of the simulator knows about a model."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One cache-owning layer before any engine setting is applied; ``name`` is unique."""

    name: str

    @property
    def kind(self) -> str:
        """What the layer keeps: ``full``, ``sliding``, ``mamba1``, ..."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer(LayerSpec):
    """Attention with ``num_kv_heads`` heads of ``head_size``; a window or None for full."""

    num_kv_heads: int
    head_size: int
    sliding_window: int | None = None

    @property
    def kind(self) -> str:
        """``sliding`` where a window is set, whether or not it ever binds; else ``full``."""
        return "full" if self.sliding_window is None else "sliding"

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of one token's keys and values in this layer."""
        return 2 * self.num_kv_heads * self.head_size * dtype_bytes


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of a recurrent state; ``role`` (``conv`` or ``ssm``) chooses its dtype."""

    role: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayer(LayerSpec):
    """A layer with a state of fixed size per sequence; ``flavour`` is its kind."""

    flavour: str
    tensors: tuple[StateTensor, ...]

    @property
    def kind(self) -> str:
        """The flavour, such as ``mamba1``."""
        return self.flavour

    def state_bytes(self, dtype_bytes_by_role: dict[str, int]) -> int:
        """Bytes of the state of one sequence."""
        return sum(prod(t.shape) * dtype_bytes_by_role[t.role] for t in self.tensors)


@dataclass(frozen=True, slots=True)
class ModelDims:
    """Sizes for a roofline model.

    num_parameters_total and _active are published numbers where the model file carries them
    (``parameters_from`` is ``published``), else counted from the config's fields without norms,
    biases and vision towers (``counted``). Active: those that one token passes through.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    num_parameters_total: int
    num_parameters_active: int
    parameters_from: str = "counted"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model as its ``config.json`` describes it.

    layers: cache-owning layers in order of registration. max_model_len in tokens. dtype_bytes:
    element size that "auto" means. supports_mamba_all: the engine's model class declares the
    recurrent cache mode ``all``. defaults_taken: keys that the file leaves out and the values
    that the family's rule filled in.
    """

    name: str
    architecture: str
    max_model_len: int
    dtype_bytes: int
    layers: tuple[LayerSpec, ...]
    dims: ModelDims
    supports_mamba_all: bool = False
    defaults_taken: tuple[str, ...] = ()

    @property
    def has_recurrent(self) -> bool:
        """True if some layer keeps a state of fixed size."""
        return any(isinstance(layer, RecurrentLayer) for layer in self.layers)

    @property
    def is_hybrid(self) -> bool:
        """True if the model has recurrent and attention layers."""
        return self.has_recurrent and self.first_attention_layer is not None

    @property
    def first_attention_layer(self) -> AttentionLayer | None:
        """The first layer that is not recurrent, None in a pure state-space model."""
        return next((la for la in self.layers if isinstance(la, AttentionLayer)), None)

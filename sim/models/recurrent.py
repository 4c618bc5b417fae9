"""Recurrent mixers that several families share: sizes, states, parameter counts.

Source: spec/layout.md 4 and models/README.md, "From config to per-layer caches".
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.layers import AttentionLayer, RecurrentLayer, StateTensor
from sim.models.parts import Heads
from sim.models.reader import ConfigReader
from sim.units import cdiv


@dataclass(frozen=True, slots=True)
class Mamba1:
    """Sizes of a Mamba-1 mixer: inner width, state size, convolution length, rank of dt."""

    width: int
    state: int
    conv: int
    dt_rank: int

    def layer(self, name: str) -> RecurrentLayer:
        """The convolution keeps its last ``conv - 1`` inputs."""
        tensors = (
            StateTensor("conv", (self.conv - 1, self.width)),
            StateTensor("ssm", (self.width, self.state)),
        )
        return RecurrentLayer(name=name, flavour="mamba1", tensors=tensors)

    def weights(self, hidden_size: int) -> int:
        """Parameters of the projections and the convolution, and A, D and dt's bias."""
        projections = 3 * hidden_size * self.width
        selection = self.width * (self.dt_rank + 2 * self.state) + self.dt_rank * self.width
        return projections + selection + self.width * (self.conv + self.state + 2)


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Sizes of a Mamba-2 mixer: heads, their size, groups, state size, convolution length."""

    num_heads: int
    head_dim: int
    num_groups: int
    state: int
    conv: int

    @property
    def width(self) -> int:
        """Inner channels."""
        return self.num_heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels that are convolved: the inner ones, B and C."""
        return self.width + 2 * self.num_groups * self.state

    def layer(self, name: str) -> RecurrentLayer:
        """The convolution keeps its last ``conv - 1`` inputs."""
        tensors = (
            StateTensor("conv", (self.conv - 1, self.conv_width)),
            StateTensor("ssm", (self.num_heads, self.head_dim, self.state)),
        )
        return RecurrentLayer(name=name, flavour="mamba2", tensors=tensors)

    def weights(self, hidden_size: int) -> int:
        """Parameters of the projections and the convolution; A, D and dt of each head; a norm."""
        projections = hidden_size * (2 * self.width + self.conv_width + self.num_heads)
        return projections + self.conv_width * self.conv + 3 * self.num_heads + self.width


def read_mamba1(reader: ConfigReader, hidden_size: int) -> Mamba1:
    """Read ``mamba_*`` keys as Jamba names them; class defaults of the original Jamba."""
    rank = cdiv(hidden_size, 16)
    if reader.raw("mamba_dt_rank") != "auto":
        rank = reader.integer("mamba_dt_rank", rank)
    return Mamba1(
        width=hidden_size * reader.integer("mamba_expand", 2),
        state=reader.integer("mamba_d_state", 16),
        conv=reader.integer("mamba_d_conv", 4, minimum=2),
        dt_rank=rank,
    )


def read_mamba2(
    reader: ConfigReader, width: int, *, num_heads: int, num_groups: int, state: int
) -> Mamba2:
    """Read ``mamba_*`` keys as Bamba names them; heads of ``mamba_d_head`` must fill the width."""
    heads = reader.integer("mamba_n_heads", num_heads)
    head_dim = width // heads
    if reader.raw("mamba_d_head") != "auto":
        head_dim = reader.integer("mamba_d_head", max(head_dim, 1))
    filled = f"a size with which {heads} heads fill the {width} inner channels"
    reader.check(heads * head_dim == width, "mamba_d_head", head_dim, filled)
    return Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        num_groups=reader.integer("mamba_n_groups", num_groups),
        state=reader.integer("mamba_d_state", state),
        conv=reader.integer("mamba_d_conv", 4, minimum=2),
    )


def read_chunk_size(reader: ConfigReader) -> int:
    """Return the alignment unit of the mode ``all`` in tokens. Source: spec/layout.md 3.2."""
    for key in ("mamba_chunk_size", "chunk_size"):
        if reader.has(key):
            return reader.integer(key)
    return 2048


def attention_of(idx: int, heads: Heads, window: int | None = None) -> AttentionLayer:
    """Return the attention layer of a block of a hybrid model."""
    return AttentionLayer(
        name=f"L{idx}.attn",
        num_kv_heads=heads.num_kv_heads,
        head_size=heads.head_dim,
        sliding_window=window,
    )


def mamba_name(idx: int) -> str:
    """Return the name of the recurrent layer of a block of a hybrid model."""
    return f"L{idx}.mamba"


def lightning_layer(idx: int, num_heads: int, head_dim: int) -> RecurrentLayer:
    """Return linear attention, whose state is one square per head and no convolution.

    Its dtype is that of the convolutions of other kinds (mamba_cache_dtype).
    """
    state = StateTensor("conv", (num_heads, head_dim, head_dim))
    return RecurrentLayer(name=mamba_name(idx), flavour="lightning", tensors=(state,))

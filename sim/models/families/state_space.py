"""Pure state-space models: Mamba-Codestral, Falcon-Mamba and Mamba. No attention at all."""

from __future__ import annotations

from dataclasses import dataclass

from sim.models.layers import RecurrentLayer
from sim.models.parts import Heads, Structure, counted_dims, same
from sim.models.reader import ConfigReader
from sim.models.recurrent import Mamba1, Mamba2, read_chunk_size
from sim.units import cdiv

_ASSUMED_LENGTH = 2048  # what the engine takes where a file names no context length


@dataclass(frozen=True, slots=True)
class _Context:
    length: int
    is_assumed: bool


def mamba2(reader: ConfigReader) -> Structure:
    """A Mamba-2 state in every layer. Source: models/README.md, "Mamba-Codestral"."""
    hidden = reader.integer("hidden_size", 4096)
    width = hidden * reader.integer("expand", 2)
    heads = reader.integer("num_heads", 128)
    head_dim = reader.integer("head_dim", 64)
    filled = f"a size with which {heads} heads fill the {width} inner channels"
    reader.check(heads * head_dim == width, "head_dim", head_dim, filled)
    mixer = Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        num_groups=reader.integer("n_groups", 8),
        state=reader.integer("state_size", 128),
        conv=reader.integer("conv_kernel", 4, minimum=2),
    )
    shape = Heads(heads, heads, head_dim)
    return _structure(reader, hidden, mixer, shape, tied=False, class_counts_speculation=True)


def falcon_mamba(reader: ConfigReader) -> Structure:
    """A Mamba-1 state in every layer, as wide as ``intermediate_size`` says.

    ``expand`` says something else. Source: models/README.md, "Falcon-Mamba" and "Traps" 2.
    """
    hidden = reader.integer("hidden_size", 4096)
    default = hidden * reader.integer("expand", 2) if not reader.has("intermediate_size") else 0
    return _mamba1(reader, hidden, reader.integer("intermediate_size", default), tied=False)


def mamba(reader: ConfigReader) -> Structure:
    """A Mamba-1 state in every layer, ``expand`` times as wide as the hidden state."""
    hidden = reader.integer("hidden_size", 768)
    width = hidden * reader.integer("expand", 2)
    if reader.has("intermediate_size"):
        width = reader.integer("intermediate_size")
    return _mamba1(reader, hidden, width, tied=True)


def _mamba1(reader: ConfigReader, hidden: int, width: int, *, tied: bool) -> Structure:
    rank = cdiv(hidden, 16)
    if reader.raw("time_step_rank") != "auto":
        rank = reader.integer("time_step_rank", rank)
    mixer = Mamba1(
        width=width,
        state=reader.integer("state_size", 16),
        conv=reader.integer("conv_kernel", 4, minimum=2),
        dt_rank=rank,
    )
    return _structure(reader, hidden, mixer, Heads(1, 1, width), tied=tied)


def _structure(
    reader: ConfigReader,
    hidden: int,
    mixer: Mamba1 | Mamba2,
    heads: Heads,
    *,
    tied: bool,
    class_counts_speculation: bool = False,
) -> Structure:
    num_layers = reader.num_layers()
    weights = [same(mixer.weights(hidden) * num_layers)]
    context = _context(reader)
    return Structure(
        layers=_layers(mixer, num_layers),
        max_model_len=context.length,
        max_model_len_is_assumed=context.is_assumed,
        dims=counted_dims(reader, hidden, num_layers, heads, weights, tied=tied),
        supports_mamba_all=True,
        mamba_chunk_size=read_chunk_size(reader),
        class_counts_speculation=class_counts_speculation,
    )


def _layers(mixer: Mamba1 | Mamba2, num_layers: int) -> tuple[RecurrentLayer, ...]:
    """One cache per block, so the names carry no part. Source: spec/layout.md 15.2."""
    return tuple(mixer.layer(f"L{idx}") for idx in range(num_layers))


def _context(reader: ConfigReader) -> _Context:
    length = reader.integer("max_position_embeddings", _ASSUMED_LENGTH)
    return _Context(length, is_assumed=not reader.has("max_position_embeddings"))

"""One layer as a file gives it: by its page, or by every field of its spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sim.config import Count, Strict
from sim.errors import ConfigError, Problem
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    QuantMode,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
)

MAX_LAYERS = 10_000


def _element_sizes(value: Any) -> Any:
    """One size, or one for each tensor of a state."""
    sizes = value if isinstance(value, list) else [value]
    if value is None or all(type(size) is int and 1 <= size <= 8 for size in sizes):
        return value
    raise ValueError("a number of bytes from 1 to 8, or a list of them")


def _quant_mode(value: Any) -> Any:
    return QuantMode(value) if value in set(QuantMode) else value


Dims = list[Annotated[int, Field(ge=1, le=2**40)]]


class GivenLayer(Strict):
    """The fields of all kinds; which of them a kind takes, ``spec_of`` checks.

    page_bytes: one page, padding included; real_page_bytes: without it, where it is less. Either
    the page is given or the fields that it follows from. Sizes in bytes, lengths in tokens.
    """

    kind: str
    block_size: Count
    page_bytes: Count | None = None
    real_page_bytes: Count | None = None
    page_size_padded: Count | None = None
    window: Count | None = None
    sliding_window: Count | None = None
    chunk: Count | None = None
    attention_chunk_size: Count | None = None
    num_kv_heads: Count | None = None
    head_size: Count | None = None
    head_size_v: Count | None = None
    dtype_bytes: Annotated[Any, BeforeValidator(_element_sizes)] = None
    quant_mode: Annotated[QuantMode, BeforeValidator(_quant_mode)] | None = None
    stride_indexed: bool | None = None
    non_causal: bool | None = None
    shapes: Annotated[list[Dims], Field(min_length=1)] | None = None
    flavour: str | None = None
    num_speculative_blocks: Annotated[int, Field(ge=0, le=2**20)] | None = None
    cache_dtype_str: str | None = None
    compress_ratio: Count | None = None
    model_version: str | None = None
    alignment: Count | None = None
    tq_slot_size: Count | None = None
    sink_len: Count | None = None
    rswa_window: Count | None = None

    @property
    def is_recurrent(self) -> bool:
        """True for a recurrent state."""
        return self.kind in _KINDS and _KINDS[self.kind].spec is MambaSpec

    def spec_fields(self) -> dict[str, Any]:
        """Return the fields that were given under the names that specs have."""
        given = self.model_dump(exclude={*_NOT_OF_A_SPEC, "layers"}, exclude_none=True)
        return {_SPEC_NAMES.get(name, name): _frozen(value) for name, value in given.items()}


_NOT_OF_A_SPEC = frozenset({"kind", "page_bytes", "real_page_bytes"})
_SPEC_NAMES = {
    "window": "sliding_window",
    "chunk": "attention_chunk_size",
    "stride_indexed": "indexes_kv_by_block_stride",
    "flavour": "mamba_type",
}
_SHAPE = frozenset({"num_kv_heads", "head_size", "head_size_v", "dtype_bytes", "shapes"})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class _Kind:
    """A class of specs, and a shape of it whose real page has the given bytes.

    shape: (real page bytes, storage slots per block) to fields, None where none exists.
    """

    spec: type[KVCacheSpec]
    shape: Callable[[int, int], dict[str, Any] | None]


def _keys_and_values(real: int, slots: int) -> dict[str, Any] | None:
    """One head of bytes; keys take the odd byte."""
    if real % slots:
        return None
    per_token = real // slots
    return {
        "num_kv_heads": 1,
        "head_size": per_token - per_token // 2,
        "head_size_v": per_token // 2,
        "dtype_bytes": 1,
    }


def _keys_and_equal_values(real: int, slots: int) -> dict[str, Any] | None:
    if real % (2 * slots):
        return None
    return {"num_kv_heads": 1, "head_size": real // (2 * slots), "dtype_bytes": 1}


def _one_vector(real: int, slots: int) -> dict[str, Any] | None:
    if real % slots:
        return None
    return {"num_kv_heads": 1, "head_size": real // slots, "dtype_bytes": 1}


def _state(real: int, slots: int) -> dict[str, Any]:
    return {"shapes": ((real,),), "dtype_bytes": (1,)}


_FULL = _Kind(FullAttentionSpec, _keys_and_values)
_SLIDING = _Kind(SlidingWindowSpec, _keys_and_values)
_CHUNKED = _Kind(ChunkedLocalAttentionSpec, _keys_and_equal_values)
_CROSS = _Kind(CrossAttentionSpec, _keys_and_equal_values)
_MLA = _Kind(MLAAttentionSpec, _one_vector)
_SLIDING_MLA = _Kind(SlidingWindowMLASpec, _one_vector)
_HIDDEN = _Kind(HiddenStateCacheSpec, _one_vector)
_MAMBA = _Kind(MambaSpec, _state)

_KINDS = {
    "full": _FULL,
    "full-draft": _FULL,
    "swa": _SLIDING,
    "sliding": _SLIDING,
    "chunked": _CHUNKED,
    "mamba": _MAMBA,
    "mla": _MLA,
    "sliding_mla": _SLIDING_MLA,
    "cross": _CROSS,
    "hidden": _HIDDEN,
    "turboquant": _Kind(TQFullAttentionSpec, _keys_and_values),
    "sink": _Kind(SinkFullAttentionSpec, _keys_and_values),
    "rswa": _Kind(RSWASpec, _keys_and_values),
}
# the names that the engine reports, and those of its classes
_KINDS |= {
    name: entry
    for entry in (_FULL, _SLIDING, _CHUNKED, _CROSS, _MLA, _SLIDING_MLA, _HIDDEN, _MAMBA)
    for name in (entry.spec.kind, entry.spec.__name__)
    if name not in _KINDS
}


def spec_of(given: GivenLayer, key: str) -> KVCacheSpec:
    """Return the spec of a layer; ``key`` is where errors say it stands.

    By its page: a shape with that page is made up, since only the bytes matter to a layout. By its
    fields: the page follows, and a page that is given as well must agree.

    Raises
    ------
    ConfigError
        An unknown kind, a field that the kind does not have or lacks, a page that does not fit.
    """
    if given.kind not in _KINDS:
        raise ConfigError.unknown(f"{key}.kind", given.kind, _KINDS)
    kind = _KINDS[given.kind]
    values = given.spec_fields()
    if not _SHAPE & set(values):
        values |= _from_page(given, kind, key)
    _check_fields(kind.spec, values, given.kind, key)
    spec = kind.spec(**values)
    _check_page(given, spec, key)
    return spec


def _from_page(given: GivenLayer, kind: _Kind, key: str) -> dict[str, Any]:
    page = given.page_bytes
    if page is None:
        allowed = "the bytes of a page, or the fields that it follows from"
        raise ConfigError.one(f"{key}.page_bytes", "missing", allowed)
    real = given.real_page_bytes or page
    if real > page:
        raise ConfigError.one(f"{key}.real_page_bytes", real, f"at most page_bytes ({page})")
    slots = max(given.block_size // (given.compress_ratio or 1), 1)
    shape = kind.shape(real, slots)
    if shape is None:
        name = "page_bytes" if given.real_page_bytes is None else "real_page_bytes"
        allowed = f"a whole number of bytes for each of {slots} tokens, keys and values"
        raise ConfigError.one(f"{key}.{name}", real, allowed)
    return shape | ({"page_size_padded": page} if page != real else {})


def _check_fields(spec: type[KVCacheSpec], values: dict[str, Any], kind: str, key: str) -> None:
    known = {field.name: field for field in fields(spec)}
    problems = [
        Problem(
            f"{key}.{_FILE_NAMES.get(name, name)}",
            values[name],
            f"no field of kind {kind}: it has none of that name",
        )
        for name in values
        if name not in known
    ]
    problems += [
        Problem(f"{key}.{_FILE_NAMES.get(name, name)}", "missing", f"needed for kind {kind}")
        for name, field in known.items()
        if _is_required(field) and name not in values
    ]
    if problems:
        raise ConfigError(problems)


_FILE_NAMES = {"sliding_window": "window", "attention_chunk_size": "chunk"}


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _check_page(given: GivenLayer, spec: KVCacheSpec, key: str) -> None:
    pairs = (
        ("page_bytes", given.page_bytes, spec.page_size_bytes),
        ("real_page_bytes", given.real_page_bytes, spec.real_page_size_bytes),
    )
    for name, said, real in pairs:
        if said is not None and said != real:
            raise ConfigError.one(f"{key}.{name}", said, f"{real}, which the other fields give")

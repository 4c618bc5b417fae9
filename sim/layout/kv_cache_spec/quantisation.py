"""How stored elements are quantised, and what that does to the bytes of a vector."""

from __future__ import annotations

from enum import StrEnum

SCALE_BYTES = 4  # one fp32 scale per token and head, for keys and for values


class QuantMode(StrEnum):
    """The quantisation of a cache. Source: spec/layout.md 2.1."""

    NONE = "NONE"
    FP8_PER_TENSOR = "FP8_PER_TENSOR"
    FP8_PER_TOKEN_HEAD = "FP8_PER_TOKEN_HEAD"
    INT8_PER_TOKEN_HEAD = "INT8_PER_TOKEN_HEAD"
    INT4_PER_TOKEN_HEAD = "INT4_PER_TOKEN_HEAD"
    NVFP4 = "NVFP4"

    @property
    def has_scale_per_token_head(self) -> bool:
        """True if each token and head carries a scale of its own."""
        return self.value.endswith("_PER_TOKEN_HEAD")


def nvfp4_elements(head_size: int) -> int:
    """Return the bytes of one NVFP4 vector: packed nibbles and a scale per 16 of them.

    >>> nvfp4_elements(128)
    72
    """
    return head_size // 2 + head_size // 16


def stored_elements(head_size: int, mode: QuantMode) -> int:
    """Return the stored elements of a vector: packed where the mode packs."""
    if mode is QuantMode.NVFP4:
        return nvfp4_elements(head_size)
    return head_size // 2 if mode is QuantMode.INT4_PER_TOKEN_HEAD else head_size

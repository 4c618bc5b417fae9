"""Names of groups, times and counts, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Groups = Sequence[Mapping[str, Any]]
"""The groups of ``layout.json``."""

_KINDS = {
    "full_attention": "full attention",
    "mla_attention": "latent attention",
    "mamba": "recurrent state",
    "sliding_window": "sliding window {sliding_window:,}",
    "sliding_window_mla": "latent sliding window {sliding_window:,}",
    "chunked_local_attention": "chunks of {attention_chunk_size:,}",
}
_NEEDS = {
    "sliding_window": "A hit needs this group's blocks of the {reach:,} tokens before its end",
    "sliding_window_mla": "A hit needs this group's blocks of the {reach:,} tokens before its end",
    "chunked_local_attention": "A hit needs this group's blocks since the last chunk began",
    "mamba": "A hit needs this group's state at its very end",
}


def group_text(groups: Groups, group_id: int) -> str:
    """Return a group's number and kind.

    >>> group_text([{"kind": "sliding_window", "sliding_window": 1024}], 0)
    'group 0 (sliding window 1,024)'
    """
    group = groups[group_id]
    kind = str(group["kind"])
    return f"group {group_id} ({_KINDS.get(kind, kind.replace('_', ' ')).format(**group)})"


def needs_text(groups: Groups, group_id: int) -> str:
    """Return what a hit needs of a group, as a sentence without its full stop."""
    group = groups[group_id]
    text = _NEEDS.get(str(group["kind"]), "A hit needs all of this group's blocks up to its end")
    return text.format(reach=(group.get("sliding_window") or 1) - 1)


def time_text(nanoseconds: int) -> str:
    """Return a time or a duration in seconds, milliseconds below one second.

    >>> time_text(1_234_000_000), time_text(12_345_678), time_text(0)
    ('1.234 s', '12.346 ms', '0 s')
    """
    if not nanoseconds:
        return "0 s"
    if nanoseconds >= 1_000_000_000:
        return f"{nanoseconds / 1e9:,.3f} s"
    return f"{nanoseconds / 1e6:.3f} ms"


def share_text(part: int, whole: int) -> str:
    """Return a share in percent.

    >>> share_text(1, 8), share_text(0, 0)
    ('12.5 %', '0.0 %')
    """
    return f"{100 * part / whole if whole else 0:.1f} %"


def count_text(number: int, noun: str) -> str:
    """Return a number and its noun.

    >>> count_text(1, "step"), count_text(1234, "token")
    ('1 step', '1,234 tokens')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def list_text(parts: Iterable[str]) -> str:
    """Return names as a list in words.

    >>> list_text(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last

"""Where the reference errs: its defects by name, and which of them a run mends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sim.errors import ConfigError

AS_IS = "vllm-0.25.1"
FIXED = "fixed"
_KEY = "compat"

QUIRKS: dict[str, str] = {
    "Q1": "with EAGLE on every group, a recurrent group may report a hit that is longer than what "
    "full attention has; the blocks in between count as computed and are empty",
    "Q2": "the manager of attention with sinks cannot be built: such a model does not start",
    "Q3": "of several full-attention kinds only the first one's hit is cut to the common length; "
    "the request then holds, and rewrites, blocks that others share",
    "Q4": "with EAGLE and aligned hits, a short prefix in a sliding window drops a whole segment "
    "that was valid",
    "Q7": "a priority victim that the step had skipped makes the loop pass over another request",
    "Q8": "chunked local attention alone counts the chunks before the current one as computed "
    "although nothing is cached",
    "Q13": "a request that does not read the cache is cut at the common prefix of the request "
    "looked up before it",
}
"""What vLLM 0.25.1 does wrong, by name. Source: spec/manager.md, appendix A and D."""


def fixes_of(value: str | Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the names of the defects that a run mends.

    value : ``vllm-0.25.1`` (none), ``fixed`` (all), ``{"fix": ["Q1", ...]}``, or the names in one
    text, with commas. Raises ConfigError for an unknown name.
    """
    if value == AS_IS:
        return frozenset()
    if value == FIXED:
        return frozenset(QUIRKS)
    if isinstance(value, str):
        names = [name.strip() for name in value.split(",")]
        known = [AS_IS, FIXED, *QUIRKS]
    else:
        names, known = _names(value), [*QUIRKS]
    for name in names:
        if name not in QUIRKS:
            raise ConfigError.unknown(_KEY, name, known)
    return frozenset(names)


def _names(value: object) -> list[str]:
    names = value.get("fix") if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(names, list | tuple | set | frozenset):
        allowed = f"{AS_IS}, {FIXED}, or fix: with a list of {', '.join(QUIRKS)}"
        raise ConfigError.one(_KEY, value, allowed)
    return [str(name) for name in names]

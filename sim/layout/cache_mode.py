"""Prefix caching and the recurrent cache mode: what the engine makes of what the user said."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import ConfigError
from sim.models.model_config import ModelConfig

MODES = ("none", "align", "all")
_MODE_KEY = "cache.mamba_cache_mode"
_BY_DEFAULT = (
    "Mamba cache mode is set to '{mode}' for {name} by default when prefix caching is enabled"
)
_FALLS_BACK = (
    "Hybrid or mamba-based model detected without support for prefix caching with Mamba cache "
    "'all' mode: falling back to 'align' mode."
)
_EXPERIMENTAL = (
    "Warning: Prefix caching in Mamba cache '{mode}' mode is currently enabled. Its support for "
    "Mamba layers is experimental. Please report any issues you may observe."
)
_NONE_WITHOUT_CACHING = "Mamba cache mode is set to 'none' when prefix caching is disabled"


@dataclass(frozen=True, slots=True)
class CacheMode:
    """Whether prefixes are cached, how recurrent states are kept, and what the log says."""

    enable_prefix_caching: bool
    mamba_cache_mode: str
    log_lines: tuple[str, ...] = ()


def resolve_cache_mode(
    model: ModelConfig, enable_prefix_caching: bool | None, mode: str | None
) -> CacheMode:
    """Return the engine's choice. Source: spec/layout.md 3.0.

    Prefix caching is on for attention-only models and off for models with recurrent layers unless
    the user says otherwise, and off for an encoder with a decoder; a mode alone does not turn it
    on. Without recurrent layers the mode means nothing and is ``none``. With them and caching it is
    ``all`` where the model declares it, else ``align``; the user's choice counts, but ``all`` falls
    back to ``align`` where the model lacks it.
    """
    if mode is not None and mode not in MODES:
        raise ConfigError.unknown(_MODE_KEY, str(mode), MODES)
    by_default = not model.has_recurrent and not model.is_encoder_decoder
    enabled = by_default if enable_prefix_caching is None else enable_prefix_caching
    if model.has_recurrent and enabled:
        return _with_caching(model, mode)
    dropped = model.has_recurrent and mode in ("align", "all")
    return CacheMode(enabled, "none", (_NONE_WITHOUT_CACHING,) if dropped else ())


def _with_caching(model: ModelConfig, mode: str | None) -> CacheMode:
    best = "all" if model.supports_mamba_all else "align"
    lines = []
    if mode in (None, "none"):
        lines.append(_BY_DEFAULT.format(mode=best, name=model.architecture))
    elif mode == "all" and best != "all":
        lines.append(_FALLS_BACK)
    used = "align" if mode == "align" else best
    return CacheMode(True, used, (*lines, _EXPERIMENTAL.format(mode=used)))

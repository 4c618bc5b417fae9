"""Prefix caching and the recurrent cache mode: what the engine makes of what the user said."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import ConfigError
from sim.models.model_config import ModelConfig

MODES = ("none", "align", "all")
_MODE_KEY = "cache.mamba_cache_mode"
_NO_ALL = "a mode that exists: `all` does not exist yet; use --mamba-cache-mode align"
_DEFAULT_ALL = (
    "prefix caching would set the Mamba cache mode to 'all' for {name} by default, and `all` does "
    "not exist yet; use --mamba-cache-mode align"
)
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
    the user says otherwise; a mode alone does not turn it on. Without recurrent layers the mode
    means nothing and is ``none``.

    Raises
    ------
    ConfigError
        The mode ``all``, which does not exist yet, whether asked for or the engine's default.
    """
    if mode is not None and mode not in MODES:
        raise ConfigError.unknown(_MODE_KEY, str(mode), MODES)
    enabled = not model.has_recurrent if enable_prefix_caching is None else enable_prefix_caching
    if model.has_recurrent and enabled:
        return _with_caching(model, mode)
    if mode == "all":
        raise ConfigError.one(_MODE_KEY, mode, _NO_ALL)
    dropped = model.has_recurrent and mode == "align"
    return CacheMode(enabled, "none", (_NONE_WITHOUT_CACHING,) if dropped else ())


def _with_caching(model: ModelConfig, mode: str | None) -> CacheMode:
    if mode == "all" and model.supports_mamba_all:
        raise ConfigError.one(_MODE_KEY, mode, _NO_ALL)
    lines = [_EXPERIMENTAL.format(mode="align")]
    if mode == "all":
        lines.insert(0, _FALLS_BACK)
    elif mode != "align":
        if model.supports_mamba_all:
            text = _DEFAULT_ALL.format(name=model.architecture)
            raise ConfigError.one(_MODE_KEY, mode or "not set", text)
        lines.insert(0, _BY_DEFAULT.format(mode="align", name=model.architecture))
    return CacheMode(True, "align", tuple(lines))

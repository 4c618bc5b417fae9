"""Whether our layout agrees with a start-up log, and if not, which settings would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from sim.errors import ConfigError
from sim.layout.startup_log import StartupLog, read_startup_log
from sim.profiles import VLLM_0_25_1, Profile
from sim.units import GIB

if TYPE_CHECKING:
    from sim.layout.plan import Layout

HALF_OF_THE_LAST_DIGIT = Fraction(5, 1000)  # memory is logged in GiB with two decimals
_HUNDREDTH = Fraction(1, 100)  # more than concurrency is rounded by
ENOUGH_BYTES = 2**56
NEW, OLD = "since 0.21", "before 0.21"

Planner = Callable[[Mapping[str, Any]], "Layout"]


@dataclass(frozen=True, slots=True)
class Trial:
    """Engine settings other than those asked for, and the formula of the token line.

    settings: vLLM's names to values. token_formula: ``NEW`` or ``OLD``.
    """

    settings: Mapping[str, Any]
    token_formula: str = NEW


@dataclass(frozen=True, slots=True)
class Check:
    """One logged value beside ours."""

    name: str
    logged: str
    ours: str

    @property
    def agrees(self) -> bool:
        """True if both are the same text."""
        return self.logged == self.ours


@dataclass(frozen=True, slots=True)
class Comparison:
    """A layout against a log.

    num_blocks: the fewest blocks within the logged memory that give the logged numbers; where none
    does, those of the memory as printed. blocks_in_memory: the fewest and the most that the logged
    memory, rounded to two decimals, may hold; None where the log does not give it.
    """

    trial: Trial
    num_blocks: int
    blocks_in_memory: tuple[int, int] | None
    checks: tuple[Check, ...]

    @property
    def agrees(self) -> bool:
        """True if every value that the log gives is ours."""
        return all(check.agrees for check in self.checks)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The comparison as asked for, and each change, or pair of changes, that would agree."""

    comparison: Comparison
    changes: tuple[tuple[str, ...], ...] = ()


Change = tuple[str, Callable[[Trial], Trial]]


def explain_log(
    log: StartupLog, plan: Planner, num_layers: int = 0, profile: Profile = VLLM_0_25_1
) -> Explanation:
    """Return whether our layout agrees with a log; if not, the changes that would make it agree.

    Single changes first, and only if none agrees, pairs of them. What the log itself states is not
    changed, with the exception of the token formula: builds between releases have either.

    Parameters
    ----------
    plan : changed settings, by vLLM's names, to the layout of what was asked for; called with
        memory for any length, so that it never refuses for lack of it
    num_layers : transformer layers that pipeline stages would share, 0 to try none

    Raises
    ------
    ConfigError
        Settings with which there is no layout.

    Source: spec/layout.md 15.11.
    """
    trial = Trial({}, OLD if log.is_before_0_21 else NEW)
    layouts = _Layouts(plan, log)
    comparison = compare(log, layouts.of(trial), trial, profile)
    if comparison.agrees:
        return Explanation(comparison)
    agrees = _agreement(log, layouts, trial, profile)
    stages = list(changes_of(trial, log, num_layers))
    singles = [(change,) for stage in stages for change in stage]
    pairs = (pair for two in combinations(stages, 2) for pair in product(*two))
    found = _labels(filter(agrees, singles)) or _labels(filter(agrees, pairs))
    return Explanation(comparison, found)


def _labels(found: Iterator[tuple[Change, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(label for label, _ in changes) for changes in found)


def _agreement(
    log: StartupLog, layouts: _Layouts, trial: Trial, profile: Profile
) -> Callable[[tuple[Change, ...]], bool]:
    """Return the test of changes: those with which there is no layout do not agree."""

    def agrees(changes: tuple[Change, ...]) -> bool:
        changed = trial
        for _, apply in changes:
            changed = apply(changed)
        try:
            return compare(log, layouts.of(changed), changed, profile).agrees
        except ConfigError:
            return False

    return agrees


class _Layouts:
    """Layouts by changed settings: pairs ask for the same ones again, with another formula."""

    def __init__(self, plan: Planner, log: StartupLog):
        self._plan = plan
        self._always: dict[str, Any] = {"kv_cache_memory_bytes": ENOUGH_BYTES}
        if log.max_model_len is not None:
            self._always["max_model_len"] = log.max_model_len
        self._known: dict[frozenset[tuple[str, Any]], Layout | ConfigError] = {}

    def of(self, trial: Trial) -> Layout:
        key = frozenset(trial.settings.items())
        if key not in self._known:
            self._known[key] = self._planned({**self._always, **trial.settings})
        known = self._known[key]
        if isinstance(known, ConfigError):
            raise known
        return known

    def _planned(self, settings: Mapping[str, Any]) -> Layout | ConfigError:
        try:
            return self._plan(settings)
        except ConfigError as error:
            return error


# -- comparing ----------------------------------------------------------------------------------
def compare(
    log: StartupLog, layout: Layout, trial: Trial, profile: Profile = VLLM_0_25_1
) -> Comparison:
    """Return a layout's values beside those of a log.

    The logged memory is rounded, so any number of blocks that it may hold is taken, the fewest
    that gives all logged numbers. Source: spec/layout.md 15.11.
    """
    allowed = _blocks_allowed(log, layout)
    possible = _blocks_by_numbers(log, layout, trial)
    candidates = _common(allowed, possible)
    wanted = (log.tokens, log.concurrency)
    chosen = next((n for n in candidates if _fits(wanted, n, layout, trial, profile)), None)
    num_blocks = chosen if chosen is not None else _as_printed(log, layout, possible)
    tokens, concurrency = _capacity(num_blocks, layout, trial, profile)
    checks = [
        *_line_checks(log, layout),
        *_check("tokens", log.tokens and f"{log.tokens:,}", f"{tokens:,}"),
        *_check("concurrency", log.concurrency, concurrency),
    ]
    bounds = (allowed[0], allowed[-1]) if allowed else None
    return Comparison(trial, num_blocks, bounds, tuple(checks))


def _fits(
    wanted: tuple[int | None, str | None],
    num_blocks: int,
    layout: Layout,
    trial: Trial,
    profile: Profile,
) -> bool:
    ours = _capacity(num_blocks, layout, trial, profile)
    return all(w is None or w == o for w, o in zip(wanted, ours, strict=True))


def _capacity(num_blocks: int, layout: Layout, trial: Trial, profile: Profile) -> tuple[int, str]:
    """The tokens and the concurrency that are logged for a pool of so many blocks."""
    length = layout.limits.max_model_len
    per_request = layout.capacity.blocks_per_request
    concurrency, tokens = profile.token_capacity(num_blocks, per_request, length)
    if trial.token_formula == OLD:
        tokens = tokens_before_0_21(layout, num_blocks)
    return tokens, f"{concurrency:.2f}"


def tokens_before_0_21(layout: Layout, num_blocks: int) -> int:
    """Return the token line of older releases. Source: spec/layout.md 15.4."""
    groups = layout.kv_cache_config.kv_cache_groups
    return num_blocks // len(groups) * min(g.kv_cache_spec.block_size for g in groups)


def _blocks_allowed(log: StartupLog, layout: Layout) -> range | None:
    """Pool sizes that the log allows, None if it gives neither blocks nor memory."""
    if log.num_blocks is not None:
        return range(log.num_blocks, log.num_blocks + 1)
    if not log.memory_gib:
        return None
    bounds = [blocks_in_rounded_memory(text, block) for text, block in _by_worker(log, layout)]
    return range(min(low for low, _ in bounds), min(high for _, high in bounds) + 1)


def _by_worker(log: StartupLog, layout: Layout) -> list[tuple[str, int]]:
    """Logged memory and bytes per block of each worker; unclear which is whose, all with all."""
    blocks = [worker.bytes_per_block for worker in layout.workers]
    if len(log.memory_gib) == len(blocks):
        return list(zip(log.memory_gib, blocks, strict=True))
    return list(product(log.memory_gib, blocks))


def blocks_in_rounded_memory(gib: str, block_bytes: int) -> tuple[int, int]:
    """Return the fewest and the most blocks of a memory that is printed as ``gib``.

    >>> blocks_in_rounded_memory("6.67", 51380224)
    (139, 139)
    """
    low, high = Fraction(gib) - HALF_OF_THE_LAST_DIGIT, Fraction(gib) + HALF_OF_THE_LAST_DIGIT
    return max(int(low * GIB // block_bytes), 0), int(high * GIB // block_bytes)


def _common(allowed: range | None, possible: range | None) -> range:
    """Pool sizes of both, where both are known."""
    if allowed is None or possible is None:
        return allowed or possible or range(0)
    return range(max(allowed.start, possible.start), min(allowed.stop, possible.stop))


def _blocks_by_numbers(log: StartupLog, layout: Layout, trial: Trial) -> range | None:
    """Few pool sizes, among them all that give the logged tokens, or else the concurrency."""
    groups = layout.kv_cache_config.kv_cache_groups
    per_request, length = layout.capacity.blocks_per_request, layout.limits.max_model_len
    if log.tokens is None:
        if log.concurrency is None:
            return None
        low, high = (Fraction(log.concurrency) + step for step in (-_HUNDREDTH, _HUNDREDTH))
        return range(max(int(low * per_request), 0), int(high * per_request) + 2)
    if trial.token_formula == OLD:
        first = log.tokens // min(g.kv_cache_spec.block_size for g in groups) * len(groups)
        return range(first, first + len(groups))
    about = log.tokens * per_request // length
    return range(max(about - 1, 0), about + 3 + per_request // length)


def _as_printed(log: StartupLog, layout: Layout, possible: range | None) -> int:
    """The blocks that a failed comparison shows: those of the memory as it is printed."""
    if log.num_blocks is not None:
        return log.num_blocks
    if log.memory_gib:
        return min(int(Fraction(text) * GIB // block) for text, block in _by_worker(log, layout))
    return possible[0] if possible else 1


def _line_checks(log: StartupLog, layout: Layout) -> list[Check]:
    """Block size, page padding and padding layers, where the log has their lines."""
    ours = StartupLog()
    if any("block size to" in line or "Add " in line for line in layout.log_lines):
        ours = read_startup_log("\n".join(layout.log_lines))
    return [
        *_check("attention block size", log.block_size, ours.block_size),
        *_check("page padding", log.page_padding_percent, ours.page_padding_percent),
        *_check("padding layers", _padding(log), _padding(ours)),
    ]


def _padding(log: StartupLog) -> str | None:
    return ", ".join(f"{n} ({percent} %)" for n, percent in log.padding_lines) or None


def _check(name: str, logged: object, ours: object) -> list[Check]:
    """No check of what the log does not give."""
    return [Check(name, str(logged), str(ours))] if logged is not None else []


# -- changing -----------------------------------------------------------------------------------
def changes_of(trial: Trial, log: StartupLog, num_layers: int) -> Iterator[list[Change]]:
    """Yield what may be changed, by kind, in the order in which it is tried."""
    other = NEW if trial.token_formula == OLD else OLD
    yield [(f"token formula of releases {other}", lambda t: replace(t, token_formula=other))]
    for stage in [*_SETTINGS, [*_TENSOR_PARALLEL, *_pipeline_parallel(num_layers)]]:
        yield [
            (_option_text(settings), _setter(settings))
            for settings in stage
            if not set(settings) & set(log.settings)
        ]


def _setter(settings: Mapping[str, Any]) -> Callable[[Trial], Trial]:
    return lambda trial: replace(trial, settings={**trial.settings, **settings})


_SETTINGS: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"max_num_batched_tokens": 2048}, {"max_num_batched_tokens": 8192},
     {"max_num_batched_tokens": 16384}),
    ({"disable_hybrid_kv_cache_manager": True},),
    ({"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8_ds_mla"},
     {"kv_cache_dtype": "fp8_per_token_head"}, {"kv_cache_dtype": "nvfp4"}),
    ({"mamba_cache_mode": "none"}, {"mamba_cache_mode": "align"}, {"mamba_cache_mode": "all"}),
    tuple({"num_speculative_tokens": n} for n in range(4)),
)  # fmt: skip
_TENSOR_PARALLEL = tuple({"tensor_parallel_size": n} for n in (1, 2, 4, 8))


def _pipeline_parallel(num_layers: int) -> list[dict[str, Any]]:
    return [{"pipeline_parallel_size": n} for n in (2, 4) if n <= num_layers]


def _option_text(settings: Mapping[str, Any]) -> str:
    """The options of the command line that mean these settings."""
    flags = ((f"--{name.replace('_', '-')}", value) for name, value in settings.items())
    return " ".join(flag if value is True else f"{flag} {value}" for flag, value in flags)

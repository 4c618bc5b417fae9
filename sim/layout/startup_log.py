"""What a pasted vLLM start-up log says about memory, blocks, tokens and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sim.errors import ConfigError

MAX_FILE_BYTES = 64 * 2**20
MAX_LINE = 20_000


@dataclass(frozen=True, slots=True)
class StartupLog:
    """The last start-up of a log; None or empty where the log does not say.

    memory_gib: ``Available KV cache memory`` of each line in order, as printed (two decimals).
    concurrency and page_padding_percent as printed. padding_lines: (layers, percentage as printed).
    num_blocks: the pool's, where a line gives it. settings: engine settings under vLLM's names.
    """

    version: str | None = None
    model: str | None = None
    memory_gib: tuple[str, ...] = ()
    block_size: int | None = None
    page_padding_percent: str | None = None
    padding_lines: tuple[tuple[int, str], ...] = ()
    num_blocks: int | None = None
    tokens: int | None = None
    concurrency: str | None = None
    max_model_len: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def is_before_0_21(self) -> bool | None:
        """True if the version's token line uses the older formula, None without a version.

        Source: spec/layout.md 15.4. Builds between releases may differ.
        """
        numbers = re.match(r"(\d+)\.(\d+)", self.version or "")
        return None if numbers is None else (int(numbers[1]), int(numbers[2])) < (0, 21)


def load_startup_log(path: Path) -> StartupLog:
    """Return what the log in a file says.

    Raises
    ------
    ConfigError
        The file cannot be read, or no line of it is one of a start-up's capacity.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError.one("--from-log", str(path), f"a readable file ({reason})") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError.one("--from-log", str(path), f"at most {MAX_FILE_BYTES // 2**20} MiB")
    return read_startup_log(raw.decode("utf-8", errors="replace"), str(path))


def read_startup_log(text: str, origin: str = "log") -> StartupLog:
    """Return what the lines of a log say; of several start-ups the last one counts."""
    log = StartupLog()
    for line in _lines(text):
        for pattern, apply in _LINES:
            for match in pattern.finditer(line):
                log = apply(log, match)
        log = replace(log, settings=log.settings | dict(_settings_in(line)))
    if not (log.tokens or log.concurrency or log.block_size or log.padding_lines):
        allowed = "a vLLM start-up log, such as one with `GPU KV cache size: 53,312 tokens`"
        raise ConfigError.one("--from-log", origin, allowed)
    return _completed(log)


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield re.sub(r"\x1b\[[0-9;]*m", "", line[:MAX_LINE])


def _completed(log: StartupLog) -> StartupLog:
    """Fill length and model from the settings where no line of its own gives them."""
    length = log.max_model_len or log.settings.get("max_model_len")
    settings = {k: v for k, v in log.settings.items() if k != "max_model_len"}
    if settings.get("enable_prefix_caching") is False:
        settings.setdefault("mamba_cache_mode", "none")
    return replace(log, max_model_len=length, settings=settings)


def _number(text: str) -> int:
    return int(re.sub(r"[,_]", "", text))


def _memory(log: StartupLog, match: re.Match[str]) -> StartupLog:
    """Memory after a capacity line belongs to another start-up."""
    if log.tokens is not None or log.concurrency is not None:
        log = replace(
            log, memory_gib=(), padding_lines=(), num_blocks=None, tokens=None, concurrency=None
        )
    return replace(log, memory_gib=(*log.memory_gib, match[1]))


def _padding(log: StartupLog, match: re.Match[str]) -> StartupLog:
    """Profiling of graphs plans a throw-away layout first, so a warning may come twice."""
    line = (int(match[1]), match[2])
    if line in log.padding_lines:
        return log
    return replace(log, padding_lines=(*log.padding_lines, line))


def _concurrency(log: StartupLog, match: re.Match[str]) -> StartupLog:
    return replace(log, max_model_len=_number(match[1]), concurrency=match[2])


def _field(name: str, convert: Callable[[str], Any] = str) -> Callable[..., StartupLog]:
    def apply(log: StartupLog, match: re.Match[str]) -> StartupLog:
        return replace(log, **{name: convert(match[1])})

    return apply


_COUNT = r"([0-9][0-9,_]{0,24})"
_LINES: tuple[tuple[re.Pattern[str], Callable[..., StartupLog]], ...] = tuple(
    (re.compile(pattern), apply)
    for pattern, apply in (
        (r"vLLM(?: API server)? version v?([0-9][\w.+-]*)", _field("version")),
        (r"LLM engine \(v([0-9][\w.+-]*)\)", _field("version")),
        (r"with config: model='([^']{1,300})'", _field("model")),
        (r"'model(?:_tag)?': '([^']{1,300})'", _field("model")),
        (r"vllm serve ([^\s'\"-][^\s'\"]{0,300})", _field("model")),
        (r"Available KV cache memory: ([0-9]+(?:\.[0-9]+)?) GiB", _memory),
        (r"Setting attention block size to ([0-9]{1,12}) tokens", _field("block_size", int)),
        (
            r"Padding mamba page size by ([0-9]+\.[0-9]+)%",
            _field("page_padding_percent"),
        ),
        (r"Add ([0-9]{1,6}) padding layers, may waste at most ([0-9]+\.[0-9]+)%", _padding),
        (r"with num_gpu_blocks_override=([0-9]{1,12})", _field("num_blocks", int)),
        (r"GPU KV cache size: " + _COUNT + " tokens", _field("tokens", _number)),
        (
            r"Maximum concurrency for " + _COUNT + r" tokens per request: ([0-9]+\.[0-9]+)x",
            _concurrency,
        ),
    )
)


def _boolean(text: str) -> bool:
    return text.lower() == "true"


_WORD, _DIGITS, _BOOL = r"([\w.]{1,40})", r"([0-9]{1,12})", r"([Tt]rue|[Ff]alse)"
_VALUES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "max_model_len": (_DIGITS, int),
    "max_seq_len": (_DIGITS, int),
    "max_num_batched_tokens": (_DIGITS, int),
    "tensor_parallel_size": (_DIGITS, int),
    "pipeline_parallel_size": (_DIGITS, int),
    "decode_context_parallel_size": (_DIGITS, int),
    "num_speculative_tokens": (_DIGITS, int),
    "num_spec_tokens": (_DIGITS, int),
    "block_size": (_DIGITS, int),
    "mamba_block_size": (_DIGITS, int),
    "kv_cache_dtype": (_WORD, str),
    "mamba_cache_dtype": (_WORD, str),
    "mamba_ssm_cache_dtype": (_WORD, str),
    "mamba_cache_mode": (_WORD, str),
    "enable_prefix_caching": (_BOOL, _boolean),
    "disable_hybrid_kv_cache_manager": (_BOOL, _boolean),
}
_NAMES = {"max_seq_len": "max_model_len", "num_spec_tokens": "num_speculative_tokens"}
_SWITCHES = ("enable_prefix_caching", "disable_hybrid_kv_cache_manager")


def _setting_pattern(name: str, value: str) -> re.Pattern[str]:
    """``name=value``, ``'name': value`` and ``--na-me value``."""
    flag = "--" + name.replace("_", "-")
    return re.compile(rf"(?:(?<![\w.]){name}['\"]?(?:=|: ?)|{flag}[= ])['\"]?{value}(?!\w)")


_SETTINGS = tuple(
    (_NAMES.get(name, name), _setting_pattern(name, value), convert)
    for name, (value, convert) in _VALUES.items()
)


def _settings_in(line: str) -> Iterable[tuple[str, Any]]:
    for name, pattern, convert in _SETTINGS:
        for match in pattern.finditer(line):
            yield name, convert(match[1])
    for name in _SWITCHES:
        flag = name.replace("_", "-")
        if re.search(rf"--{flag}(?![\w=-])(?! (?:[Tt]rue|[Ff]alse))", line):
            yield name, True
        if re.search(rf"--no-{flag}(?![\w=-])", line):
            yield name, False
    mode = re.search(r"Mamba cache (?:mode is set to )?'(none|align|all)'", line)
    if mode:
        yield "mamba_cache_mode", mode[1]
        yield "enable_prefix_caching", mode[1] != "none"

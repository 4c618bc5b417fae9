"""The options that set a key of the scenario: one table, for every command that has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from sim.errors import ConfigError, Problem


@dataclass(frozen=True)
class Option:
    """One option: the key that it sets, what its value is called, and what it means.

    ``flags`` are its spellings, the first one is named in errors; without any it is the key's last
    part. ``kind`` says how the text is read: text, number, switch (``--x/--no-x``) or pairs
    (``KEY=VALUE``, repeatable).
    """

    key: str
    unit: str
    text: str
    default: str
    kind: str = "number"
    flags: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All spellings."""
        return self.flags or ("--" + self.key.rpartition(".")[2].replace("_", "-"),)

    @property
    def parameter(self) -> str:
        """The name of the Python parameter."""
        return self.names[0].lstrip("-").replace("-", "_")

    @property
    def help(self) -> str:
        """The line of ``--help``."""
        return f"{self.text}  [default: {self.default}]" if self.default else self.text

    def declaration(self) -> inspect.Parameter:
        """Return the parameter that typer makes an option of."""
        type_, default, spelling = _TYPES[self.kind]
        names = [spelling.format(name=name, tail=name[2:]) for name in self.names]
        info = typer.Option(
            *names,
            help=self.help,
            metavar=self.unit or None,
            show_default=False,
        )
        annotation = Annotated[type_, info]
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(self.parameter, kind, default=default, annotation=annotation)


_TYPES: dict[str, tuple[Any, Any, str]] = {
    "text": (str | None, None, "{name}"),
    "number": (str | None, None, "{name}"),
    "switch": (bool | None, None, "{name}/--no-{tail}"),
    "pairs": (list[str] | None, None, "{name}"),
}

CACHE = (
    Option(
        "cache.kv_cache_memory_bytes",
        "BYTES",
        "KV memory of one GPU, such as 20GiB",
        "60GiB",
        "text",
        ("--kv-cache-memory", "--kv-cache-memory-bytes"),
    ),
    Option("scheduler.max_model_len", "TOKENS", "Longest request", "the model's"),
    Option("scheduler.max_num_batched_tokens", "TOKENS", "Most tokens of one step", "8192"),
    Option("cache.block_size", "TOKENS", "Tokens per block of attention layers", "automatic"),
    Option("cache.mamba_block_size", "TOKENS", "Tokens per recurrent state", "automatic"),
    Option("cache.kv_cache_dtype", "NAME", "Type of keys and values", "auto", "text"),
    Option("cache.mamba_cache_dtype", "NAME", "Type of convolution states", "auto", "text"),
    Option("cache.mamba_ssm_cache_dtype", "NAME", "Type of recurrent states", "auto", "text"),
    Option(
        "cache.mamba_cache_mode",
        "none|align|all",
        "Which recurrent states are kept",
        "automatic",
        "text",
    ),
    Option(
        "cache.enable_prefix_caching",
        "",
        "Reuse equal prefixes",
        "on for models without recurrent layers",
        "switch",
    ),
    Option("cache.num_gpu_blocks_override", "BLOCKS", "Size of the pool", "what fits"),
    Option("cache.hash_block_size", "TOKENS", "Grain of prefix identities", "automatic"),
    Option("cache.grouping", "NAME", "Grouping rule (kvsim list groupings)", "vllm", "text"),
)

METRICS = (
    Option(
        "cache.kv_cache_metrics",
        "",
        "Measure lifetime, idle time and reuse gaps of blocks",
        "off",
        "switch",
    ),
    Option("cache.kv_cache_metrics_sample", "RATIO", "Share of blocks that is measured", "0.01"),
)

RETENTION = Option(
    "cache.prefix_cache_retention_interval",
    "TOKENS",
    "Keep window and recurrent content only every so many tokens",
    "everywhere",
)

SCHEDULER = (
    Option("scheduler.max_num_seqs", "REQUESTS", "Most running requests", "1024"),
    Option(
        "scheduler.long_prefill_token_threshold",
        "TOKENS",
        "Longest prefill chunk; 0: no limit",
        "0",
    ),
    Option("scheduler.enable_chunked_prefill", "", "Split long prompts", "on", "switch"),
    Option(
        "scheduler.scheduler_reserve_full_isl",
        "",
        "Admit only when the whole sequence fits now",
        "on",
        "switch",
    ),
    Option("scheduler.watermark", "RATIO", "Part of the pool kept free at admission", "0"),
    Option(
        "scheduler.policy",
        "fcfs|priority",
        "Order of the waiting queue, and who is preempted",
        "fcfs",
        "text",
        ("--scheduling-policy",),
    ),
    Option(
        "scheduler.async_scheduling",
        "",
        "Schedule a step while the one before runs",
        "on",
        "switch",
    ),
    Option("scheduler.max_loras", "ADAPTERS", "Most adapters in one step; 0: no limit", "0"),
    Option(
        "scheduler.unschedulable",
        "reject|wait",
        "What happens to a request that can never fit",
        "reject",
        "text",
    ),
)

WORK = (
    Option("model", "MODEL", "Model name, hub id or config.json (kvsim list models)", "", "text"),
    Option("hardware", "NAME", "GPU (kvsim list hardware)", "h100-80gb", "text"),
    Option(
        "workload.name",
        "NAME",
        "Requests (kvsim list workloads)",
        "multi_turn",
        "text",
        ("--workload",),
    ),
    Option(
        "workload.params",
        "KEY=VALUE",
        "Parameter of the workload; repeatable",
        "",
        "pairs",
        ("--workload-param",),
    ),
    Option(
        "workload.params.path", "FILE", "Requests from a Mooncake trace", "", "text", ("--trace",)
    ),
    Option(
        "workload.params.block_size",
        "TOKENS",
        "Tokens per id of the trace",
        "512",
        flags=("--trace-block-size",),
    ),
    Option(
        "workload.params.arrival.arrival_scale",
        "RATIO",
        "Speed of arrivals; 0.2: five times slower",
        "1",
    ),
    Option("workload.params.max_requests", "REQUESTS", "Only the first so many", "all"),
    Option(
        "latency.name",
        "NAME",
        "Step-time model (kvsim list latency)",
        "roofline",
        "text",
        ("--latency",),
    ),
    Option(
        "latency.params",
        "KEY=VALUE",
        "Parameter of the step-time model; repeatable",
        "",
        "pairs",
        ("--latency-param",),
    ),
    Option("seed", "INTEGER", "Seed of everything random", "0"),
)

ENGINE = (
    Option(
        "engine.core",
        "auto|python|compiled",
        "Which engine computes it; the results are equal (docs/scenario.md)",
        "auto",
        "text",
        ("--engine",),
    ),
    Option(
        "engine.manager",
        "native|vllm",
        "Whose KV cache manager decides (docs/vllm.md)",
        "native",
        "text",
    ),
    Option("engine.free_queue", "NAME", "Order in which free blocks are reused", "lru", "text"),
    Option(
        "engine.profile",
        "NAME",
        "Engine whose behaviour is followed",
        "vllm-0.25.1",
        "text",
        ("--engine-profile",),
    ),
    Option(
        "compat",
        "vllm-0.25.1|fixed|Q1,...",
        "Which of the engine's defects are mended (docs/scenario.md)",
        "vllm-0.25.1",
        "text",
    ),
    Option(
        "engine.check_every", "STEPS", "Recount all state every so many steps; 0: at the end", "0"
    ),
    Option("engine.reasons", "", "Record why each lookup found no more", "off", "switch"),
    Option("engine.kv_events", "jsonl|msgpack", "Write all KV events to a file", "none", "text"),
    Option(
        "engine.kv_events_hash",
        "prefix_id|sha256_cbor",
        "How events name blocks: the run's own numbers, or digests of tokens",
        "prefix_id",
        "text",
    ),
    Option(
        "engine.kv_events_hash_seed",
        "TEXT",
        "What the first digest is made of: vLLM's PYTHONHASHSEED",
        "0",
        "text",
    ),
    Option("engine.waste_samples", "COUNT", "At how many steps memory is split into parts", "256"),
)

SPECULATIVE = (
    Option(
        "speculative.speculative_method",
        "NAME",
        "How tokens are speculated: mtp, eagle, draft_model, ngram, ...",
        "with tokens: mtp where the model has it, else eagle",
        "text",
    ),
    Option("speculative.num_speculative_tokens", "TOKENS", "Tokens speculated at a time", "0"),
    Option(
        "speculative.num_speculative_layers", "LAYERS", "Layers of the draft", "the method's own"
    ),
    Option("speculative.draft_num_kv_heads", "HEADS", "KV heads of a draft layer", "the model's"),
    Option("speculative.draft_head_size", "SIZE", "Head size of a draft layer", "the model's"),
    Option("speculative.draft_window", "TOKENS", "Window of a draft layer", "none"),
)

ACCEPTANCE = (
    Option(
        "speculative.acceptance.name",
        "NAME",
        "How many drafts are accepted (kvsim list acceptance)",
        "geometric",
        "text",
        ("--acceptance",),
    ),
    Option(
        "speculative.acceptance.params",
        "KEY=VALUE",
        "Parameter of that model; repeatable",
        "",
        "pairs",
        ("--acceptance-param",),
    ),
)

PLANNER = (
    Option(
        "cache.kv_cache_dtype_skip_layers",
        "LAYERS",
        "Layers that keep the model's dtype: numbers, or sliding_window",
        "none",
        "text",
    ),
    Option("parallel.tensor_parallel_size", "RANKS", "Ranks that share each layer", "1"),
    Option("parallel.pipeline_parallel_size", "STAGES", "Stages that share the layers", "1"),
    Option(
        "parallel.pipeline_parallel_layers", "N,N,...", "Layers of each stage", "as even as it goes"
    ),
    Option(
        "parallel.decode_context_parallel_size",
        "RANKS",
        "Ranks that share a sequence in decoding",
        "1",
    ),
    Option(
        "parallel.prefill_context_parallel_size",
        "RANKS",
        "Ranks that share a sequence in prefill",
        "1",
    ),
    *SPECULATIVE,
    Option(
        "attention_backend", "NAME", "Backend, which decides about block sizes", "the usual", "text"
    ),
    Option(
        "cache.disable_hybrid_kv_cache_manager",
        "",
        "One group for all layers, windows kept whole",
        "off where it can be",
        "switch",
    ),
    Option(
        "cache.enable_cross_layers_blocks",
        "",
        "Packed blocks, as a KV connector may ask for",
        "off",
        "switch",
    ),
    Option(
        "scheduler.max_num_seqs",
        "REQUESTS",
        "Refuse a pool with fewer blocks for recurrent states",
        "not checked",
    ),
    Option(
        "scheduler.max_num_encoder_input_tokens",
        "TOKENS",
        "Longest encoder input",
        "the model's",
    ),
    Option(
        "memory.gpu",
        "NAME",
        "Estimate the KV memory of this GPU (kvsim list hardware)",
        "",
        "text",
    ),
    Option("memory.gpu_memory_utilization", "RATIO", "Its share that may be used", "0.92"),
    Option("memory.weight_dtype", "NAME", "Type of the weights, for the estimate", "bf16", "text"),
)

Options = tuple[Option, ...]
LAYOUT_OPTIONS: Options = (*CACHE, *PLANNER)
RUN_OPTIONS: Options = (
    *WORK,
    *CACHE,
    RETENTION,
    *METRICS,
    *SCHEDULER,
    *SPECULATIVE,
    *ACCEPTANCE,
    *ENGINE,
)


Command = Callable[..., int]


def with_options(options: Options) -> Callable[[Command], Command]:
    """Give a command, which takes them as ``**flags``, the options of a table before its own."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in own
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        signature = inspect.Signature([*(o.declaration() for o in options), *kept])
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return command

    return decorate


def scenario_keys(options: Options, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted scenario keys and values for the flags that were given."""
    keys: dict[str, Any] = {}
    for option in options:
        value = flags[option.parameter]
        if value is not None and value != []:
            keys.update(_read(option, value))
    if "workload.params.path" in keys:
        keys.setdefault("workload.name", "mooncake")
    return keys


def _read(option: Option, value: Any) -> Iterator[tuple[str, Any]]:
    if option.kind == "pairs":
        for pair in value:
            yield _pair(option, pair)
    elif option.kind == "number":
        yield option.key, _number(value)
    else:
        yield option.key, value


def _pair(option: Option, pair: str) -> tuple[str, Any]:
    from sim.scenario_file import parse_yaml

    key, equals, value = pair.partition("=")
    if not equals or not all(key.split(".")):
        raise ConfigError.one(option.names[0], pair, "KEY=VALUE")
    return f"{option.key}.{key}", parse_yaml(value, f"{option.names[0]} {key}")


def _number(text: str) -> Any:
    """Return the number that the text is; another text stays for the scenario's check to refuse."""
    from sim.scenario_file import parse_yaml

    try:
        value = parse_yaml(text, "number")
    except ConfigError:
        return text
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text


@contextmanager
def named_as_flags(options: Options, given: Mapping[str, Any]) -> Iterator[None]:
    """Name the option instead of the key in errors about a value that an option gave."""
    names = {o.key: o.names[0] for o in options if o.key in given}
    names |= {o.key.rpartition(".")[2]: o.names[0] for o in options if o.key in given}
    try:
        yield
    except ConfigError as error:
        raise type(error)([_renamed(p, names) for p in error.problems]) from None


def _renamed(problem: Problem, names: Mapping[str, str]) -> Problem:
    return replace(problem, key=names.get(problem.key, problem.key))

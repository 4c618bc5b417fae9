"""Start-up logs that users pasted, reproduced by the acceptance rule of spec/layout.md 15.11."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from sim.layout.block_size import BlockSizes, align_pages
from sim.layout.from_log import NEW, OLD, Trial, compare
from sim.layout.plan import LayoutSettings, plan_layout
from sim.layout.plan_specs import plan_specs
from sim.layout.specs_file import specs_from
from sim.layout.startup_log import StartupLog
from sim.models import AttentionLayer, known_models, load_model

DATA = json.loads((Path(__file__).parents[1] / "data" / "real_logs.json").read_text())
LOGS = {entry["id"]: entry for entry in DATA["logs"] if entry["reproduction"]["evidence"] != "none"}
CAPACITY = [key for key, entry in LOGS.items() if "tokens" in entry["logged"]]
ENOUGH = 2**50
GIB = 2**30

# spec/layout.md 15.11: the released file that has the caches of the logged model
MODELS = {
    "A1": "Qwen--Qwen3.5-27B",
    "A2": "Qwen--Qwen3.5-27B",
    "A4": "Qwen--Qwen3.5-27B",
    "A5": "Qwen--Qwen3.5-27B",
    "A11": "Qwen--Qwen3.5-27B",
    "A14": "Qwen--Qwen3.5-35B-A3B",
    "A15": "Qwen--Qwen3.5-35B-A3B",
    "A17": "Qwen--Qwen3.5-35B-A3B",
    "A22": "tiiuae--Falcon-H1-3B-Instruct",
    "A24": "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "A25": "google--gemma-3-1b-it",
    "A27": "google--gemma-4-31B",
    "A30": "openai--gpt-oss-120b",
    "A34": "Qwen--Qwen3.5-27B",
}
DTYPES = {"fp8": "fp8", "bf16": "bfloat16", "auto(bf16)": "auto", "fp16/bf16 (2 bytes)": "auto"}
SPECULATION = {  # spec/layout.md 15.11: one MTP layer, or five draft layers of 8 x 128
    "A5": {"speculative_method": "mtp", "num_speculative_tokens": 1},
    "A17": {"speculative_method": "mtp", "num_speculative_tokens": 2},
    "A34": {
        "speculative_method": "draft_model",
        "num_speculative_tokens": 5,
        "num_speculative_layers": 5,
        "draft_layer": AttentionLayer(name="draft", num_kv_heads=8, head_size=128),
    },
}


def settings_of(key):
    entry = LOGS[key]
    given, mode = entry["settings"], entry.get("sim_input", {}).get("mamba_cache_mode")
    return LayoutSettings(
        kv_cache_memory_bytes=ENOUGH,
        max_num_batched_tokens=given.get("max_num_batched_tokens", 8192),
        max_model_len=given["max_model_len"],
        kv_cache_dtype=DTYPES[given["kv_cache_dtype"]],
        tensor_parallel_size=given["tp"],
        enable_prefix_caching=None if mode is None else mode != "none",
        mamba_cache_mode=mode,
        **SPECULATION.get(key, {}),
    )


def plan_by_specs(key):
    return plan_specs(specs_from(LOGS[key]["sim_input"], key), settings_of(key))


def plan_by_model(key):
    return plan_layout(load_model(MODELS[key]), settings_of(key))


def formula(entry):
    """A34 names none: old, 1251 // 15 * 816 (spec/layout.md 15.11)."""
    return entry["reproduction"].get("token_formula", "old")


def pools_that_fit(entry, block_bytes):
    """The rule of 15.11, in exact arithmetic: x GiB is anything from x - 0.005 to x + 0.005."""
    x, half = Fraction(str(entry["logged"]["available_gib"])), Fraction(5, 1000)
    low, high = (int((x + sign * half) * GIB // block_bytes) for sign in (-1, 1))
    return range(low, high + 1)


def logged_by(entry, num_blocks, layout):
    """Tokens and concurrency that the formulas of 9 and 15.4 give for so many blocks."""
    length = layout.limits.max_model_len
    concurrency = num_blocks / layout.capacity.blocks_per_request
    groups = layout.kv_cache_config.kv_cache_groups
    smallest = min(group.kv_cache_spec.block_size for group in groups)
    new, old = int(concurrency * length), num_blocks // len(groups) * smallest
    return {"new": new, "old": old}[formula(entry)], f"{concurrency:.2f}"


def assert_reproduced(key, layout):
    entry = LOGS[key]
    derived, logged = entry["derived"], entry["logged"]
    groups = layout.kv_cache_config.kv_cache_groups
    assert len(groups) == derived["num_groups"]
    assert layout.num_layers_longest_group == derived["group_size"]
    assert layout.capacity.blocks_per_request == derived["blocks_per_request_at_max_len"]
    if "pool_bytes_per_block" in derived:
        assert layout.bytes_per_block == derived["pool_bytes_per_block"]
    pools = pools_that_fit(entry, layout.bytes_per_block)
    assert derived["num_blocks"] in pools
    found = [logged_by(entry, n, layout) for n in pools]
    expected = (logged["tokens"], logged["concurrency"])
    assert any(t == expected[0] and expected[1] in (None, c) for t, c in found), found[:3]


def log_of(entry):
    """The log as its reader would give it."""
    logged = entry["logged"]
    return StartupLog(
        memory_gib=(str(logged["available_gib"]),),
        tokens=logged["tokens"],
        concurrency=logged["concurrency"],
        max_model_len=entry["settings"]["max_model_len"],
    )


def test_every_tuple_with_evidence_is_here():
    assert len(DATA["logs"]) == 17
    assert sorted(set(LOGS) - set(CAPACITY)) == ["A31"]  # its padding lines only
    assert len(CAPACITY) == 15
    assert set(MODELS) <= set(CAPACITY)
    assert set(CAPACITY) - set(MODELS) == {"A20"}  # Qwen3.5-4B has no file
    assert set(MODELS.values()) <= set(known_models())


@pytest.mark.parametrize("key", CAPACITY)
def test_tuple_is_reproduced_from_explicit_layers(key):
    assert_reproduced(key, plan_by_specs(key))


@pytest.mark.parametrize("key", MODELS)
def test_tuple_is_reproduced_from_the_models_file(key):
    assert_reproduced(key, plan_by_model(key))


@pytest.mark.parametrize("key", CAPACITY)
def test_comparison_with_the_log_finds_the_same(key):
    entry = LOGS[key]
    layout = plan_by_specs(key)
    trial = Trial({}, {"new": NEW, "old": OLD}[formula(entry)])
    found = compare(log_of(entry), layout, trial)
    assert found.agrees
    assert found.num_blocks in pools_that_fit(entry, layout.bytes_per_block)
    other = Trial({}, OLD if trial.token_formula == NEW else NEW)
    assert not compare(log_of(entry), layout, other).agrees


@pytest.mark.parametrize("key", [k for k in MODELS if LOGS[k]["logged"].get("block_size")])
def test_logged_block_size_and_padding_come_out_of_the_file(key):
    logged, lines = LOGS[key]["logged"], " ".join(plan_by_model(key).log_lines)
    assert f"Setting attention block size to {logged['block_size']} tokens" in lines
    if logged["padding_pct"] is not None:
        assert f"Padding mamba page size by {logged['padding_pct']:.2f}%" in lines


@pytest.mark.parametrize("key", [k for k in MODELS if LOGS[k]["logged"].get("padding_lines")])
@pytest.mark.parametrize("plan", [plan_by_specs, plan_by_model])
def test_logged_padding_warning_comes_out(key, plan):
    assert any(
        line.startswith(LOGS[key]["logged"]["padding_lines"]) for line in plan(key).log_lines
    )


@pytest.mark.parametrize("source", ["specs", "model"])
@pytest.mark.parametrize(
    ("grouping", "which"), [("vllm_0_11:ratio=1", "before"), ("vllm", "after")]
)
def test_a31_padding_before_and_after_the_rule_changed(source, grouping, which):
    # 18 sliding and 19 full: g = 18 leaves 17 of 2 x 18 slots, 17/19; g = 19 leaves one, 1/18
    settings = LayoutSettings(
        kv_cache_memory_bytes=ENOUGH,
        max_num_batched_tokens=8192,
        max_model_len=131072,
        grouping=grouping,
        speculative_method="eagle3",
        num_speculative_tokens=1,
    )
    if source == "model":
        layout = plan_layout(load_model("openai--gpt-oss-120b"), settings)
    else:
        layout = plan_specs(specs_from(LOGS["A31"]["sim_input"], "A31"), settings)
    warnings = [line for line in layout.log_lines if line.startswith("Add ")]
    assert warnings == [f"{LOGS['A31']['logged'][f'padding_lines_{which}']} KV cache memory"]


# -- block-size lines ---------------------------------------------------------------------------
LINES = DATA["block_size_lines"]
QWEN_27B = "Qwen--Qwen3.5-27B"


def mtp(num_tokens):
    return {"speculative_method": "mtp", "num_speculative_tokens": num_tokens}


# index of the line -> model file and settings; the others have no file
FILES = {
    0: (QWEN_27B, {}),
    1: (QWEN_27B, mtp(3)),
    2: (QWEN_27B, {**mtp(5), "tensor_parallel_size": 2}),
    3: (QWEN_27B, mtp(7)),
    4: (QWEN_27B, {"mamba_ssm_cache_dtype": "bfloat16"}),
    5: (QWEN_27B, {**mtp(15), "mamba_ssm_cache_dtype": "bfloat16"}),
    6: (QWEN_27B, {"block_size": 64}),  # 3.2: k is the larger of kernel and block size
    7: ("Qwen--Qwen3.5-35B-A3B", mtp(3)),
    10: ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"kv_cache_dtype": "fp8"}),
    12: ("Zyphra--Zamba2-2.7B", {}),
}


def test_there_are_13_block_size_lines():
    assert len(LINES) == 13
    without = {LINES[i]["model"] for i in range(13) if i not in FILES}
    assert without == {"Qwen3.5-4B", "Qwen3.5-0.8B", "granite-4.0-h-350m"}


def said(line):
    """The engine's two lines for a logged block size and padding."""
    lines = [f"Setting attention block size to {line['logged_block']} tokens"]
    percent = line["logged_padding_pct"] or line["computed_padding_pct"]
    return [*lines, f"Padding mamba page size by {percent:.2f}%"] if percent else lines


def beginnings(lines, expected):
    """The lines about pages, each cut to the length of what is expected of it."""
    about = [line for line in lines if "page size" in line]
    return [line[: len(text)] for line, text in zip(about, expected, strict=True)]


@pytest.mark.parametrize("idx", range(13))
def test_block_size_line_follows_from_state_and_token_bytes(idx):
    line = LINES[idx]
    kernel = line["kernel_alignment"]
    sizes = align_pages(
        BlockSizes(16, 1024),
        line["attn_bytes_per_token_per_layer"],
        line["state_page_bytes"],
        kernel,
        "none",
    )
    assert sizes.block_size == line["logged_block"]
    assert beginnings(sizes.log_lines, said(line)) == said(line)


@pytest.mark.parametrize("idx", FILES)
def test_block_size_line_comes_out_of_the_models_file(idx):
    name, more = FILES[idx]
    settings = LayoutSettings(
        kv_cache_memory_bytes=ENOUGH, max_num_batched_tokens=8192, max_model_len=4096, **more
    )
    layout = plan_layout(load_model(name), settings)
    assert layout.settings.block_size == LINES[idx]["logged_block"]
    assert beginnings(layout.log_lines, said(LINES[idx])) == said(LINES[idx])

"""All released models under all rules and plans: a layout, or a refusal as a value."""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sim.errors import ConfigError
from sim.layout.comparison import all_names, compare, plan, plan_input
from sim.layout.comparison_report import comparison_json, comparison_renderables
from sim.layout.grouping import GROUPING_HEURISTICS, LengthDistribution
from sim.layout.plan import plan_layout
from sim.layout.plans import MEMORY_PLANS
from sim.layout.settings import LayoutSettings
from sim.models import known_models, load_model
from sim.profiles import VLLM_0_25_1

GIB = 2**30
SETTINGS = LayoutSettings(kv_cache_memory_bytes=80 * GIB, max_num_batched_tokens=8192)
GEMMA = "google--gemma-3-27b-it"
SHARED = Path(__file__).parents[4] / "shared" / "models"

# What may be refused, and by what the text begins.
REFUSALS = (
    "To serve at least one request",  # the engine: too little memory
    "one request of ",  # a plan: too little memory
    "Hybrid KV cache manager is disabled but failed to convert",  # single_full, states
    "All attention layers in the same KV cache group must have the same window size",
    "a model with ",  # multi_layer_page: no recurrent, or no attention layers
    "full attention layers of one shape",  # multi_layer_page
    "at most 1/64 of the memory",  # lcm_page
)


def at(length, **changes):
    return replace(SETTINGS, max_model_len=length, **changes)


def compared(name, settings=SETTINGS, **options):
    return compare(load_model(name), settings, **options)


@pytest.mark.parametrize("name", known_models())
def test_every_rule_and_plan_gives_a_layout_or_a_known_refusal(name):
    comparison = compared(name)
    assert [row.name for row in comparison.rows] == all_names()
    for row in comparison.rows:
        if row.figures is None:
            assert row.refusal.startswith(REFUSALS), (row.name, row.refusal)
        else:
            assert sum(row.figures.parts.values()) == 80 * GIB
            assert min(row.figures.parts.values()) >= 0
            assert 0 <= row.figures.idle_share <= 1


@pytest.mark.parametrize("name", known_models())
def test_each_layer_is_in_one_group_and_blocks_are_as_large_as_promised(name):
    model = load_model(name)
    given = plan_input(model, SETTINGS, None, VLLM_0_25_1)
    for rule in all_names():
        try:
            memory = plan(rule, given)
        except ConfigError:
            continue
        placed = [layer for group in memory.groups for layer in group.layer_names]
        assert sorted(placed) == sorted(layer.name for layer in model.layers)
        for pool in memory.pools:
            assert all(g.block_bytes * g.per_page == pool.page_bytes for g in pool.groups)
            assert all(g.layer_padding_bytes >= 0 for g in pool.groups)
            assert all(g.page_padding_bytes >= 0 for g in pool.groups)
        assert memory.remainder_bytes >= 0


@pytest.mark.slow
def test_there_are_91_models_and_all_of_them_take_less_than_30_seconds():
    if not SHARED.is_dir():
        pytest.skip("the model files in ../shared/models are not here")
    files = sorted(SHARED.glob("*.json"))
    assert len(files) == 91
    start = time.perf_counter()
    refused = Counter(
        row.refusal.split("(")[0]
        for file in files
        for row in compared(str(file)).rows
        if row.refusal
    )
    assert time.perf_counter() - start < 30
    # 42 models cannot run with the hybrid manager off: recurrent layers or unequal shapes
    assert sum(n for text, n in refused.items() if text.startswith("Hybrid KV cache")) == 42


@pytest.mark.parametrize(
    ("name", "groups", "tokens"),
    [("vllm", 7, 737_080), ("gcd", 31, 767_479), ("padding_cost", 5, 629_295)],
)
def test_gemma_3_27b_at_80_gib(name, groups, tokens):
    # the figures that the issue gives for orientation
    figures = compared(GEMMA, at(131072), names=[name]).row(name).figures
    assert (figures.num_groups, figures.tokens) == (groups, tokens)


def test_the_weighted_idle_share_beside_what_the_log_says():
    # idle: (4 x 1 + 2 x 2) x 577 page slots of 11654 x 10; logged: 8 of 52 layers
    figures = compared(GEMMA, at(131072), names=["vllm"]).row("vllm").figures
    assert figures.idle_share * (11654 * 10) == 8 * 577
    assert figures.idle_bytes == 8 * 577 * 131072
    assert figures.logged_percents == (15.38,)
    assert (figures.missing_layers, figures.group_size) == (8, 10)


def test_a_rule_s_row_is_the_layout_that_the_planner_makes():
    for rule in GROUPING_HEURISTICS:
        layout = plan_layout(load_model(GEMMA), at(131072, grouping=rule))
        figures = compared(GEMMA, at(131072), names=[rule]).row(rule).figures
        assert figures.tokens == layout.capacity.tokens
        assert figures.num_groups == len(layout.groups)
        assert figures.missing_layers == layout.waste["padding_layers"]


def test_lengths_reach_the_rules_that_weigh_them():
    # at 1024 tokens 13 leave 4.6 % idle, at 131072 18 %
    short = compared(GEMMA, lengths=LengthDistribution.read("1024"), names=["overhead_bound"])
    own = compared(GEMMA, names=["overhead_bound:lengths=1024"])
    assert short.rows[0].figures.group_size == own.rows[0].figures.group_size == 13
    assert own.rows[0].figures.idle_share != short.rows[0].figures.idle_share


def test_recurrent_groups_have_a_floor_that_does_not_depend_on_length():
    # Jamba: seven groups of states, a block of 4 pages of 327,680 bytes each
    figures = compared("ai21labs--Jamba-v0.1", names=["vllm"]).row("vllm").figures
    assert figures.recurrent_floor_bytes == 7 * 4 * 327680


def test_the_modelled_cost_counts_groups_and_block_tables():
    # 7 groups: 0.7 ms; a row of 131072 / 16 entries of 4 bytes each
    figures = compared(GEMMA, at(131072), names=["vllm"]).row("vllm").figures
    assert figures.host_us_per_step == 700
    assert figures.block_table_bytes == 7 * 8192 * 4


def test_the_hybrid_manager_off_keeps_tokens_that_nobody_reads():
    # 62 layers, 169,120 tokens; of 131072 each of 52 sliding layers reads 1023
    figures = compared(GEMMA, at(131072), names=["single_full"]).row("single_full").figures
    page = 131072 // 16
    assert figures.requests == 1
    assert figures.parts["out_of_window"] == 52 * (131072 - 1023) * page
    assert figures.parts["live"] == (52 * 1023 + 10 * 131072) * page


def test_pipeline_stages_have_rules_and_no_plans():
    comparison = compared(GEMMA, at(32768, pipeline_parallel_layers=(31, 31)))
    by_name = {row.name: row for row in comparison.rows}
    assert all(by_name[rule].figures for rule in GROUPING_HEURISTICS)
    assert sum(by_name["vllm"].figures.parts.values()) == 160 * GIB
    assert by_name["lcm_page"].refusal == "one worker"
    assert by_name["single_full"].figures


def test_wrong_settings_and_names_are_errors_and_not_rows():
    with pytest.raises(ConfigError, match="at most the model's own maximum"):
        compared(GEMMA, at(10**9))
    with pytest.raises(ConfigError, match="compared at one length"):
        compared(GEMMA, at(-1))
    with pytest.raises(ConfigError, match="did you mean vllm"):
        compared(GEMMA, names=["vlm"])
    with pytest.raises(ConfigError, match=r"lcm_page\.least_large_pages: 0"):
        compared(GEMMA, names=["lcm_page:least_large_pages=0"])
    with pytest.raises(ConfigError, match="lengths: 131073: lengths of at most"):
        compared(GEMMA, lengths=LengthDistribution.read("131073"))


def test_what_the_engine_refuses_before_planning_is_a_value_in_every_row():
    # 7 ranks divide neither 16 nor 32 heads
    comparison = compared(GEMMA, at(4096, tensor_parallel_size=7))
    assert len(comparison.rows) == len(all_names())
    assert len({row.refusal for row in comparison.rows}) == 1
    assert all(row.figures is None for row in comparison.rows)


def test_json_has_every_row_and_plain_values():
    data = comparison_json([compared(GEMMA, at(131072))])
    (model,) = data["models"]
    assert [row["name"] for row in model["rows"]] == all_names()
    by_name = {row["name"]: row for row in model["rows"]}
    assert by_name["vllm"]["tokens"] == 737_080
    assert by_name["vllm"]["idle_share"] == pytest.approx(8 * 577 / 116540)
    assert by_name["multi_layer_page"]["refusal"] == "a model with recurrent layers"


def test_every_comparison_can_be_shown():
    for name in (GEMMA, "deepseek-ai--DeepSeek-V4-Flash", "tiiuae--falcon-mamba-7b"):
        assert len(comparison_renderables(compared(name))) == 3


def test_plans_are_listed_behind_the_rules():
    assert all_names() == [*GROUPING_HEURISTICS, *MEMORY_PLANS]

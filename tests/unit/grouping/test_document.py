"""docs/groupings.md: its tables are those that the command would write, and its advice is true."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAKE = ROOT / "results" / "groupings" / "make.py"


@pytest.fixture(scope="module", name="make")
def make_fixture():
    spec = importlib.util.spec_from_file_location("make_groupings", MAKE)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module", name="made")
def made_fixture(make):
    return make.comparisons()


@pytest.fixture(name="tokens")
def tokens_fixture(made):
    return {
        title: {row.name: row.figures.tokens for row in comparison.rows if row.figures}
        for title, _, comparison in made
    }


def test_the_tables_are_up_to_date(make, made):
    assert make.is_current(made)


def test_the_eleven_cases_have_the_layers_that_they_say(made):
    by_title = {title: comparison for title, _, comparison in made}
    # one group for each bucket: as many as there are types
    buckets = {title: c.row("max_layers").figures for title, c in by_title.items()}
    layers = {title: c.row("per_layer").figures.num_groups for title, c in by_title.items()}
    assert layers == {
        "Gemma-3-27b": 62,
        "MiMo-V2-Flash": 48,
        "gpt-oss-120b + EAGLE": 37,
        "Qwen3.5-35B + one MTP layer": 41,
        "Qwen3.5-35B + five draft layers": 45,
        "Qwen3.5-35B + five sliding and one full draft layer": 46,
        "Zamba2-7B": 94,
        "Zamba2-7B at 4096 tokens": 94,
        "Jamba-v0.1": 32,
        "Nemotron-3-Nano": 29,
        "20 full + 30 sliding": 50,
    }
    assert buckets["Qwen3.5-35B + five draft layers"].num_groups == 3
    assert buckets["Qwen3.5-35B + five sliding and one full draft layer"].num_groups == 4


def test_lcm_page_is_within_a_thousandth_of_the_best_group_size(tokens):
    for by_name in tokens.values():
        best = max(by_name["per_layer"], by_name["gcd"])
        assert by_name["lcm_page"] > 0.999 * best


def test_optimal_has_fewer_tokens_than_vllm_only_with_fewer_groups(made):
    for title, _, comparison in made:
        best, engine = comparison.row("optimal").figures, comparison.row("vllm").figures
        assert best.tokens >= engine.tokens or best.num_groups < engine.num_groups, title


def test_the_numbers_of_the_advice(tokens):
    def loss(title, name, against="vllm"):
        return 100 * (1 - tokens[title][name] / tokens[title][against])

    drafts = "Qwen3.5-35B + five sliding and one full draft layer"
    assert -loss("Gemma-3-27b", "gcd") == pytest.approx(4.1, abs=0.05)
    assert loss("Gemma-3-27b", "padding_cost") == pytest.approx(14.6, abs=0.05)
    assert loss("Gemma-3-27b", "single_full") == pytest.approx(77, abs=0.5)
    assert loss("Jamba-v0.1", "pr_49472") == pytest.approx(42.8, abs=0.05)
    assert loss("Nemotron-3-Nano", "vllm", "gcd") == pytest.approx(0.25, abs=0.005)
    assert loss(drafts, "optimal") == pytest.approx(8.4, abs=0.05)
    assert loss(drafts, "exclude_singletons") == pytest.approx(25.1, abs=0.05)
    sliding = tokens["20 full + 30 sliding"]
    assert (sliding["optimal"], sliding["vllm"]) == (948_378, 919_102)
    eagle = tokens["gpt-oss-120b + EAGLE"]
    assert (eagle["min_layers"], eagle["vllm"]) == (1_129_173, 2_075_519)


def test_the_figures_are_there_in_both_formats():
    for folder in ("gemma_3", "recurrent"):
        for name in ("padding", "pareto"):
            for kind in ("png", "svg"):
                assert (MAKE.parent / folder / f"{name}.{kind}").stat().st_size > 1000

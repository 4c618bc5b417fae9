import io

import pytest
from rich.console import Console

from sim.report_text import duration_text, number_text, share_text, summary_renderables
from tests.unit.metrics.fakes import MS, make_tables, run_like_tables
from tests.unit.test_results import LAYOUT, make_result


def text_of(result, width=100):
    console = Console(file=io.StringIO(), width=width)
    for renderable in summary_renderables(result):
        console.print(renderable)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 ms"), (0.0123, "12.3 ms"), (0.9, "900 ms"), (1, "1.00 s"), (65.43, "65.4 s"),
     (1234.5, "1,234 s"), (None, "-")],
)  # fmt: skip
def test_durations_have_about_three_digits(seconds, text):
    assert duration_text(seconds) == text


def test_numbers_and_shares_have_separators_and_units():
    assert number_text(12031, "requests") == "12,031 requests"
    assert number_text(3.14159) == "3.1"
    assert number_text(1234.5) == "1,234"
    assert share_text(0.4567) == "45.7 %"
    assert number_text(None, "tokens") == share_text(None) == "-"


def test_summary_names_the_facts_of_a_run():
    one = {
        "first_token_ns": 30 * MS,
        "finish_ns": 60 * MS,
        "output_tokens": 4,
        "prompt_tokens": 100,
        "cached_tokens": 25,
        "preemptions": 2,
    }
    steps = [{"start_ns": 0, "end_ns": 30 * MS, "free_blocks": 4, "preemptions": 2},
             {"start_ns": 30 * MS, "end_ns": 60 * MS, "free_blocks": 10}]  # fmt: skip
    waste = [{"time_ns": 30 * MS, "live": 600, "free": 400}, {"time_ns": 60 * MS, "free": 1000}]
    tables = make_tables([one], steps, waste, prefix_cache_queries=300, prefix_cache_hits=50)
    lines = [" ".join(line.split()) for line in text_of(make_result(tables)).splitlines()]
    for line in [
        "requests 1 of 1 finished",
        "layout 2 groups, 11 blocks of 1.25 MiB in 1000 B: 184,270 tokens",
        "prefix caching on",
        "time to first token 30.0 ms 30.0 ms 30.0 ms 30.0 ms",
        "time per output token 10.0 ms 10.0 ms 10.0 ms 10.0 ms",
        "prefix hit rate 25.0 % of prompt tokens",
        "looked up 300 tokens vllm:prefix_cache_queries",
        "preemptions 2 vllm:num_preemptions",
        "KV cache usage 30.0 %, at most 60.0 % vllm:kv_cache_usage_perc",
        "utilisation 100.0 % of the time in a step; 60.0 ms from the last arrival to the end",
        "live 300 B 30.0 % 600 B",
        "free 700 B 70.0 % 400 B",
    ]:
        assert line in lines, line
    assert not [line for line in lines if line.startswith("tail")]  # nothing was in it


def test_an_empty_run_shows_dashes():
    assert "time to first token" in text_of(make_result(make_tables()))
    assert "None" not in text_of(make_result(make_tables()))


def test_prefix_caching_that_is_off_names_its_flag():
    off = {**LAYOUT, "settings": {"enable_prefix_caching": False}}
    text = text_of(make_result(layout=off))
    assert "off (--enable-prefix-caching turns it on)" in text


def test_requests_that_did_not_finish_are_counted_by_outcome():
    rows = [{"outcome": "rejected", "cached_tokens": None, "first_token_ns": None}] * 2
    assert "0 of 2 finished, 2 rejected" in text_of(make_result(make_tables(rows)))


def test_a_table_fits_80_columns():
    result = make_result(run_like_tables())
    narrow, wide = text_of(result, width=80).split(), text_of(result, width=300).split()
    rules = {word for word in (*narrow, *wide) if set(word) == {"─"}}
    assert [w for w in narrow if w not in rules] == [w for w in wide if w not in rules]

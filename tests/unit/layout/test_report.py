import json

import pytest
from rich.console import Console

from sim.layout.report import layout_json, layout_renderables
from sim.models import known_models
from tests.unit.layout.layouts import GIB, plan

GEMMA = "google--gemma-3-27b-it"


def printed(layout, width=160):
    console = Console(width=width, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as captured:
        for renderable in layout_renderables(layout):
            console.print(renderable)
    return captured.get()


def test_json_has_the_names_of_schema_2():
    data = layout_json(plan(GEMMA))
    assert list(data) == [
        "schema", "model", "settings", "groups", "kv_shared_target", "tensors", "workers",
        "num_blocks", "bytes_per_block", "block_sizes", "capacity", "scheduler_capacity", "waste",
        "log_lines",
    ]  # fmt: skip
    assert data["schema"] == 2
    assert data["model"] == GEMMA
    assert data["block_sizes"] == {"scheduler": 16, "hash": 16}
    assert data["capacity"] == {
        "tokens": 184270,
        "tokens_before_0_21": 37440,
        "concurrency": 16384 / 11654,
        "blocks_per_request": 11654,
        "admission_bytes": 15275130880,
        "estimated_max_model_len": 131072,
    }
    assert data["num_blocks"] * data["bytes_per_block"] == 20 * GIB


def test_json_names_the_layers_of_groups_and_tensors():
    data = layout_json(plan(GEMMA))
    first, last = data["groups"][0], data["groups"][-1]
    assert first["layers"][:3] == ["L0", "L7", "L14"]
    assert (first["kind"], first["padding_layers"], first["sliding_window"]) == (
        "sliding_window", 1, 1024
    )  # fmt: skip
    assert (last["kind"], last["padding_layers"], last["sliding_window"]) == (
        "full_attention", 0, None
    )  # fmt: skip
    assert data["tensors"][9] == {
        "size": 2147483648, "shared_by": ["L59"], "offset": 0, "block_stride": 0
    }  # fmt: skip


@pytest.mark.parametrize("model", known_models())
def test_json_is_plain_data(model):
    data = layout_json(plan(model, kv_cache_memory_bytes=700 * GIB))
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_json_says_what_each_worker_holds():
    data = layout_json(plan(GEMMA, pipeline_parallel_layers=(31, 31)))
    assert [[len(names) for names in worker["layers"]] for worker in data["workers"]] == [
        [5, 5, 4, 4, 4, 4, 5],
        [4, 4, 5, 5, 4, 4, 5],
    ]
    assert data["scheduler_capacity"] == {"tokens": 368540, "concurrency": 32768 / 11654}
    assert data["settings"]["pipeline_parallel_layers"] == [31, 31]
    assert json.loads(json.dumps(data)) == data


def test_a_bundle_is_named_so_and_its_numbers_are_the_whole_bundle_s():
    layout = plan(GEMMA, disable_hybrid_kv_cache_manager=True, max_model_len=32768)
    (group,) = layout_json(layout)["groups"]
    assert (group["is_bundle"], group["page_size_bytes"]) == (True, 62 * 131072)
    assert "full_attention, bundle" in printed(layout)


def test_the_table_says_that_several_workers_share_the_memory():
    assert "KV cache memory of 2 workers" in printed(plan(GEMMA, pipeline_parallel_layers=(31, 31)))


def test_the_table_shows_what_the_issue_asks_for():
    text = printed(plan(GEMMA))
    for shown in ("sliding_window 1,024", "16,384", "184,270", "1.41x", "3.96%", "L0, L7, L14"):
        assert shown in text
    for line in plan(GEMMA).log_lines:
        assert line in text


def test_the_table_says_how_to_turn_prefix_caching_on():
    text = printed(plan("ai21labs--Jamba-v0.1"))
    assert "off; --enable-prefix-caching --mamba-cache-mode align turns it on" in text
    align = plan("ai21labs--Jamba-v0.1", enable_prefix_caching=True, mamba_cache_mode="align")
    assert "on, Mamba cache mode align" in printed(align)


def test_a_name_with_brackets_is_printed_as_it_is(tmp_path):
    source = plan(GEMMA).model
    path = tmp_path / "[red]x[/blue].json".replace("/", "-")
    path.write_text(json.dumps(tiny_llama()))
    assert source.name != path.stem
    assert "[red]x[-blue]" in printed(plan(str(path)))


def tiny_llama():
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": 64,
    }

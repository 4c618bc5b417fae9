"""Explicit layers: what a file may say, and what is said about a wrong one."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import ConfigError
from sim.layout.kv_cache_spec import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)
from sim.layout.plan import LayoutSettings
from sim.layout.plan_specs import plan_specs
from sim.layout.specs_file import load_specs, specs_from

FULL = {"kind": "full", "layers": 2, "block_size": 16, "page_bytes": 65536}
SWA = {"kind": "swa", "layers": 4, "block_size": 16, "page_bytes": 65536, "window": 128}


def specs_of(data):
    return specs_from(data, "given").specs_by_worker[0]


def plan(data, **more):
    chosen = {"kv_cache_memory_bytes": 2**40, "max_num_batched_tokens": 64, "max_model_len": 1024}
    return plan_specs(specs_from(data, "given"), LayoutSettings(**{**chosen, **more}))


def line_of(data):
    with pytest.raises(ConfigError) as caught:
        specs_from(data, "given", "f.json")
    return str(caught.value)


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"kind": "full"}, FullAttentionSpec),
        ({"kind": "full_attention"}, FullAttentionSpec),
        ({"kind": "FullAttentionSpec"}, FullAttentionSpec),
        ({"kind": "swa", "window": 128}, SlidingWindowSpec),
        ({"kind": "chunked", "chunk": 8192}, ChunkedLocalAttentionSpec),
        ({"kind": "cross"}, CrossAttentionSpec),
        ({"kind": "mla"}, MLAAttentionSpec),
        ({"kind": "sliding_mla", "window": 128}, SlidingWindowMLASpec),
        ({"kind": "hidden"}, HiddenStateCacheSpec),
        ({"kind": "mamba"}, MambaSpec),
    ],
)
@pytest.mark.parametrize("real", [None, 49152])
def test_every_kind_has_the_page_that_is_given(more, kind, real):
    entry = {"block_size": 16, "page_bytes": 65536, **more}
    if real is not None:
        entry["real_page_bytes"] = real
    (spec,) = specs_of([entry]).values()
    assert type(spec) is kind
    assert (spec.block_size, spec.page_size_bytes) == (16, 65536)
    assert spec.real_page_size_bytes == (real or 65536)


def test_page_of_an_odd_number_of_bytes_a_token_is_kept():
    (spec,) = specs_of([{"kind": "full", "block_size": 16, "page_bytes": 16 * 33}]).values()
    assert spec.page_size_bytes == 528


def test_full_spec_fields_give_the_page():
    # 16 tokens x 8 heads x (128 + 64) x 2 bytes
    fields = {"num_kv_heads": 8, "head_size": 128, "head_size_v": 64, "dtype_bytes": 2}
    (spec,) = specs_of([{"kind": "full", "block_size": 16, **fields}]).values()
    assert spec.page_size_bytes == 49152


def test_states_take_shapes_and_sizes():
    # Jamba: 3 x 8192 and 8192 x 16 elements of two bytes
    shapes = {"shapes": [[3, 8192], [8192, 16]], "dtype_bytes": [2, 2]}
    (spec,) = specs_of([{"kind": "mamba", "block_size": 4096, **shapes}]).values()
    assert spec.real_page_size_bytes == 311296


def test_layers_are_named_and_counted_by_kind():
    assert list(specs_of([FULL, SWA, {**FULL, "layers": 1}])) == [
        "full.0", "full.1", "swa.0", "swa.1", "swa.2", "swa.3", "full.2"
    ]  # fmt: skip


def test_each_entry_is_a_bucket_of_its_own_even_where_two_are_equal():
    # 16 + 5 equal full layers beside 48 states: g = 5, not 16 + 5 = 21 (A34 of real_logs.json)
    state = {"kind": "mamba", "layers": 48, "block_size": 16, "page_bytes": 65536}
    entries = [state, {**FULL, "layers": 16}, {**FULL, "kind": "full-draft", "layers": 5}]
    layout = plan(entries)
    assert layout.num_layers_longest_group == 5
    assert len(layout.groups) == 10 + 4 + 1  # ceil(48 / 5), ceil(16 / 5), 1


def test_speculative_blocks_of_the_file_reach_its_states():
    state = {"kind": "mamba", "block_size": 64, "page_bytes": 100}
    own = {**state, "num_speculative_blocks": 1}
    specs = specs_of({"layers": [state, own], "num_speculative_blocks": 3}).values()
    assert [spec.num_speculative_blocks for spec in specs] == [3, 1]


def test_named_specs_and_workers():
    specs = {"a": {**FULL, "kind": "full"}, "b": SWA}
    specs = {k: {n: v for n, v in s.items() if n != "layers"} for k, s in specs.items()}
    data = {"specs": specs, "workers": [[["x", "a"], ["y", "b"]], [["z", "a"]]]}
    first, second = specs_from(data, "given").specs_by_worker
    assert list(first) == ["x", "y"]
    assert first["x"] == second["z"]


def test_json_and_yaml_mean_the_same(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"layers": [FULL, SWA]}, indent="\t"))
    (tmp_path / "a.yaml").write_text(
        "layers:\n- {kind: full, layers: 2, block_size: 16, page_bytes: 65536}\n"
        "- {kind: swa, layers: 4, block_size: 16, page_bytes: 65536, window: 128}\n"
    )
    one, two = load_specs(tmp_path / "a.json"), load_specs(tmp_path / "a.yaml")
    assert one == two
    assert one.name == "a"


WRONG = {
    "kind": ([{**FULL, "kind": "ful"}], "f.json:layers[0].kind: ful: known: full,"),
    "missing page": ([{"kind": "full", "block_size": 16}],
                     "f.json:layers[0].page_bytes: missing: the bytes of a page"),
    "missing window": ([{**SWA, "window": None}],
                       "f.json:layers[0].window: missing: needed for kind swa"),
    "window of a state": ([{"kind": "mamba", "block_size": 16, "page_bytes": 9, "window": 4}],
                          "f.json:layers[0].window: 4: no field of kind mamba"),
    "unknown key": ([FULL, {**SWA, "windw": 3}], "f.json:layers[1].windw: 3: known: "),
    "negative": ([{**FULL, "block_size": -16}], "f.json:layers[0].block_size: -16: greater than"),
    "text": ([{**FULL, "page_bytes": "64"}], "f.json:layers[0].page_bytes: 64: a valid integer"),
    "page and block": ([{**FULL, "page_bytes": 100}],
                       "f.json:layers[0].page_bytes: 100: a whole number of bytes"),
    "real above page": ([{**FULL, "real_page_bytes": 65537}],
                        "f.json:layers[0].real_page_bytes: 65537: at most page_bytes (65536)"),
    "page and fields": ([{**FULL, "num_kv_heads": 1, "head_size": 8, "dtype_bytes": 2}],
                        "f.json:layers[0].page_bytes: 65536: 512, which the other fields give"),
    "too many": ([{**FULL, "layers": 20_000}], "f.json:layers[0].layers: 20000: 10000 layers"),
    "no list": (7, "f.json: 7: a mapping of keys to values"),
    "half a shape": ([{"kind": "full", "block_size": 16, "num_kv_heads": 1, "head_size": 8}],
                     "f.json:layers[0].dtype_bytes: missing: needed for kind full"),
    "element size": ([{**FULL, "dtype_bytes": 9}],
                     "f.json:layers[0].dtype_bytes: 9: a number of bytes from 1 to 8"),
    "empty": ([], "f.json.layers: []: "),
    "unknown spec": ({"specs": {"a": FULL}, "workers": [[["x", "b"]]]},
                     "f.json:specs.a.layers: 2: known"),
    "worker": ({"specs": {"a": {k: FULL[k] for k in ("kind", "block_size", "page_bytes")}},
                "workers": [[["x", "b"]]]}, "f.json:workers[0][0]: b: known: a"),
    "twice": ({"specs": {"a": {k: FULL[k] for k in ("kind", "block_size", "page_bytes")}},
               "workers": [[["x", "a"], ["x", "a"]]]}, "f.json:workers[0][1]: "),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_file_is_said_where_and_what(name):
    data, expected = WRONG[name]
    assert line_of(data).startswith(expected)


@pytest.mark.parametrize("length", [None, -1])
def test_layers_alone_have_no_length(length):
    with pytest.raises(ConfigError, match="without a model there is no length"):
        plan([FULL], max_model_len=length)


@pytest.mark.parametrize("text", ["{", "[" * 5000, "a: [", "\x00", "- &a x\n- *a", "!!python/x y"])
def test_file_that_is_no_data_is_the_users_error(tmp_path, text):
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load_specs(path)


VALUES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4)
)
KEYS = st.sampled_from([*FULL, *SWA, "real_page_bytes", "chunk", "shapes", "dtype_bytes", "x"])
KINDS = st.sampled_from(["full", "swa", "mamba", "mla", "chunked", "cross", "sink", "turboquant"])


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.dictionaries(KEYS, VALUES | st.lists(VALUES, max_size=2)), max_size=3), KINDS)
def test_mutated_entries_give_layers_or_the_error_form(entries, kind):
    data = [{**SWA, "kind": kind, **entry} for entry in entries]
    try:
        plan(data)
    except ConfigError as error:
        assert str(error)

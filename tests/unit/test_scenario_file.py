"""Scenario files: what is read, what is refused, and that writing is the inverse of reading."""

from __future__ import annotations

import copy
import os

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import Scenario
from sim.errors import ConfigError
from sim.scenario_file import (
    MAX_FILE_BYTES,
    load_scenario,
    parse_yaml,
    scenario_from,
    scenario_yaml,
)

# YAML 1.2 core schema, https://yaml.org/spec/1.2.2/#1032-tag-resolution (hexadecimal, octal,
# infinities and not-a-number are left out: they stay text)
SCALARS = {
    "1e3": 1000.0,
    "-.5": -0.5,
    "12": 12,
    "+7": 7,
    "012": 12,
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    "": None,
    "no": "no",
    "on": "on",
    "1:30": "1:30",
    "2024-01-01": "2024-01-01",
    "1_000": "1_000",
    "0x10": "0x10",
    ".inf": ".inf",
    ".nan": ".nan",
    "'12'": "12",
    "'~'": "~",
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_scalar_is_read_as_yaml_1_2_says(text: str, value: object) -> None:
    read = parse_yaml(f"a: {text}", "f")["a"]
    assert read == value
    assert type(read) is type(value)


REFUSED = {
    "a: 1\nb: 2\na: 3\n": ("f:3", "a appears twice"),
    "a: &x [1]\nb: *x\n": ("f:1", "alias or anchor"),
    "a: !!python/object/apply:os.system [ls]\n": ("f:1", "a tag is not allowed"),
    "a: !!binary aGk=\n": ("f:1", "a tag is not allowed"),
    "1: 2\n": ("f:1", "a key that is not text"),
    "a: 1e999\n": ("f:1", "too large a number"),
    "a: !!int x\n": ("f:1", "not a number"),
    "a: b: c\n": ("f:1", "mapping values"),
    "--- 1\n--- 2\n": ("f:2", "another document"),
    "a: [1\n": ("f:2", "expected ',' or ']'"),
    "a: \x01\n": ("f", "special characters"),
    "[" * 5000: ("f:1", "more than 32 levels"),
    "- " * 5000: ("f:1", "more than 32 levels"),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.items(), ids=range(len(REFUSED)))
def test_yaml_that_is_refused_names_line_and_reason(text: str, expected: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f")
    (problem,) = caught.value.problems
    assert problem.key == expected[0]
    assert expected[1] in str(problem)


def test_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    with pytest.raises(ConfigError, match="alias"):
        parse_yaml("\n".join(lines), "f")


def test_named_pipe_is_refused_and_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match="a regular file, not a pipe"):
        load_scenario(tmp_path / "pipe.yaml")


def test_file_that_cannot_be_read_is_a_config_error(tmp_path) -> None:
    large, latin = tmp_path / "large.yaml", tmp_path / "latin.yaml"
    large.write_text("a: " + "x" * MAX_FILE_BYTES)
    latin.write_bytes("a: é".encode("latin-1"))
    for path, part in [
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path, "Is a directory"),
        (large, "at most 256 KiB"),
        (latin, "UTF-8 text (byte 3 is not)"),
        ("a\0b", "null byte"),
    ]:
        with pytest.raises(ConfigError, match="file: ") as caught:
            load_scenario(path)
        assert part in str(caught.value)


@pytest.mark.parametrize("text", ["", "3", "[a]", "text"])
def test_file_that_is_no_mapping_is_refused(tmp_path, text: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="a mapping of keys to values"):
        load_scenario(path)


def test_flags_override_keys_of_the_file_and_keep_the_others() -> None:
    base = {"model": "m", "cache": {"block_size": 16, "grouping": "min_layers"}, "seed": 4}
    before = copy.deepcopy(base)
    scenario = scenario_from({"cache.block_size": 32, "scheduler.max_num_seqs": 8}, base)
    assert (scenario.cache.block_size, scenario.cache.grouping) == (32, "min_layers")
    assert (scenario.scheduler.max_num_seqs, scenario.seed) == (8, 4)
    assert base == before


def test_parameters_of_a_plug_in_are_merged_while_its_name_stays() -> None:
    base = {"model": "m", "workload": {"name": "shared_prefix", "params": {"a": 1, "b": 2}}}
    same = scenario_from({"workload.name": "shared_prefix", "workload.params.b": 3}, base)
    other = scenario_from({"workload.name": "multi_turn", "workload.params.b": 3}, base)
    assert same.workload.params == {"a": 1, "b": 3}
    assert (other.workload.name, other.workload.params) == ("multi_turn", {"b": 3})


def test_parameter_without_a_name_goes_to_the_default_plug_in() -> None:
    scenario = scenario_from({"model": "m", "workload.params.arrival.kind": "closed"})
    assert scenario.workload.name == Scenario.model_fields["workload"].default.name
    assert scenario.workload.params == {"arrival": {"kind": "closed"}}


def test_flag_into_a_section_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="cache: 5: a mapping"):
        scenario_from({"cache.block_size": 32}, {"model": "m", "cache": 5})


TEXTS = st.one_of(
    st.sampled_from(list(SCALARS)), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=200)
@given(params=st.dictionaries(TEXTS, PLAIN, max_size=4))
def test_writing_a_scenario_and_reading_it_back_changes_nothing(params: dict) -> None:
    scenario = scenario_from(
        {}, {"model": "m", "workload": {"name": "w", "params": params}, "seed": 3}
    )
    assert scenario_from({}, parse_yaml(scenario_yaml(scenario), "f")) == scenario


@given(TEXTS)
def test_written_text_is_text_for_a_yaml_1_1_reader_too(text: str) -> None:
    scenario = scenario_from({}, {"model": "m", "workload": {"name": text}})
    assert yaml.safe_load(scenario_yaml(scenario))["workload"]["name"] == text


SEED_FILE = scenario_yaml(scenario_from({"model": "m", "workload.params.path": "t.jsonl"}))
PIECES = [
    *SCALARS,
    *("{", "}", "[", "]", ": ", "- ", "\n  ", "\t", "&a ", "*a", "!!set ", "|\n", "#", "%", '"'),
    *("? ", "---\n", "<<: ", "\0", "\ufeff", "\u2028", "\x85"),
]


@st.composite
def mutated_files(draw: st.DrawFn) -> str:
    """A scenario file with up to six pieces put in, cut out or doubled."""
    text = SEED_FILE
    for _ in range(draw(st.integers(1, 6))):
        first = draw(st.integers(0, len(text)))
        last = draw(st.integers(first, min(len(text), first + 30)))
        piece = draw(st.sampled_from([*PIECES, "", text[first:last] * 2]))
        text = text[:first] + piece + text[last:]
    return text


@settings(max_examples=300)
@given(mutated_files())
def test_mutated_file_gives_a_scenario_or_a_config_error(text: str) -> None:
    try:
        data = parse_yaml(text, "f")
        scenario = scenario_from({}, data) if isinstance(data, dict) else None
    except ConfigError as error:
        assert 1 <= len(error.lines()) <= 10
        assert all("\n" not in line for line in error.lines())
    else:
        assert scenario is None or scenario.model


@settings(max_examples=500)
@given(data=st.dictionaries(st.sampled_from([*Scenario.model_fields, "x"]), PLAIN, max_size=5))
def test_any_plain_data_gives_a_scenario_or_a_config_error(data: dict) -> None:
    try:
        assert scenario_from({}, data).model
    except ConfigError as error:
        assert error.problems

"""Finding model files and reading what is in them."""

import json

import pytest

from sim.configs_dir import configs_dir
from sim.errors import ConfigError
from sim.models import known_models, load_model

STEM = "google--gemma-3-27b-it"


@pytest.fixture
def copy_fixture(tmp_path):
    """A folder as a hub download makes it: ``<name>/config.json``."""
    folder = tmp_path / "my-gemma"
    folder.mkdir()
    text = (configs_dir() / "models" / f"{STEM}.json").read_text()
    (folder / "config.json").write_text(text)
    return folder


def one_line(name):
    with pytest.raises(ConfigError) as caught:
        load_model(str(name))
    assert len(caught.value.lines()) == 1
    return caught.value.lines()[0]


def test_a_stem_and_a_hub_id_name_the_same_model():
    assert load_model("google/gemma-3-27b-it") == load_model(STEM)
    assert load_model(STEM).name == STEM


def test_a_folder_and_its_config_are_found_and_named_after_the_folder(copy_fixture):
    model = load_model(str(copy_fixture))
    assert model == load_model(str(copy_fixture / "config.json"))
    assert model.name == "my-gemma"
    assert model.layers == load_model(STEM).layers


def test_another_file_is_named_after_its_stem(copy_fixture):
    path = copy_fixture / "tuned.json"
    path.write_text((copy_fixture / "config.json").read_text())
    assert load_model(str(path)).name == "tuned"


def test_known_models_are_sorted_stems():
    assert known_models() == sorted(known_models())
    assert STEM in known_models()


def test_an_unknown_name_lists_the_known_ones_nearest_first():
    line = one_line("google--gemma-3-27b")
    assert line.startswith(f"model: google--gemma-3-27b: known: {STEM}, ")
    assert line.endswith(f"; did you mean {STEM}?")


@pytest.mark.parametrize("name", ["", "no/such/config.json", "x" * 5000, "a\0b", "~nobody/x"])
def test_a_name_that_no_file_has_is_an_error(name):
    assert "known: " in one_line(name)


def test_a_folder_without_a_config_is_an_error(tmp_path):
    assert "known: " in one_line(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "JSON in UTF-8"),
        (b"{", "JSON in UTF-8"),
        (b"\xff\xfe{}", "JSON in UTF-8"),
        (b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "JSON in UTF-8"),
        (b"[]", "a JSON object"),
        (b"null", "a JSON object"),
        (b"NaN", "a JSON object"),
        (b"{}", "architectures: missing"),
    ],
)
def test_a_file_that_is_no_config_says_why(tmp_path, content, said):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert said in one_line(path)


def test_a_file_too_large_is_refused_unread(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(17 * 2**20)  # sparse
    assert "at most 16777216 bytes" in one_line(path)


def test_a_byte_order_mark_is_harmless(copy_fixture):
    path = copy_fixture / "config.json"
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")
    assert load_model(str(path)).layers == load_model(STEM).layers


def test_infinity_in_a_key_that_nobody_reads_is_harmless(copy_fixture):
    path = copy_fixture / "config.json"
    data = json.loads(path.read_text()) | {"time_step_limit": [0.0, float("inf")]}
    path.write_text(json.dumps(data))
    assert load_model(str(path)).layers == load_model(STEM).layers


def test_errors_name_the_file_and_the_key(copy_fixture):
    path = copy_fixture / "config.json"
    data = json.loads(path.read_text())
    data["text_config"]["hidden_size"] = -5
    path.write_text(json.dumps(data))
    line = one_line(path)
    assert line == "config.json:text_config.hidden_size: -5: an integer from 1 to 2147483648"

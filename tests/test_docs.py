"""The README and the docs say what is true: commands, keys, names, links."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

import workloads
from sim.cli import main, options
from sim.cli.listing import KINDS, default_text
from sim.cli.parameters import parameters
from sim.cli.program import app
from sim.compat import QUIRKS
from sim.config import Scenario
from sim.latency import LATENCY_MODELS
from sim.metrics import METRICS
from sim.metrics.symbols import SYMBOLS
from sim.results import SEMANTICS_VERSION
from sim.scenario_file import parse_yaml, scenario_from
from sim.simulation import assemble
from sim.speculation import ACCEPTANCE_MODELS
from workloads.lengths import Lengths

ROOT = Path(__file__).parents[1]
DOCS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
MODULES = sorted([*(ROOT / "sim").rglob("*.py"), *(ROOT / "workloads").rglob("*.py")])

CHECKED = re.compile(r"<!-- checked: (?:layout|run) -->\n```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (kvsim .*)$", re.MULTILINE)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def checked_examples() -> Iterator[tuple[str, list[str]]]:
    """Each checked command with the lines that the document prints below it."""
    for path in DOCS:
        for block in CHECKED.findall(path.read_text(encoding="utf-8")):
            for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *lines = example.splitlines()
                yield command, lines


EXAMPLES = list(checked_examples())


def test_there_are_checked_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize(("command", "lines"), EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_printed_lines_are_what_the_command_answers(
    capsys, tmp_path, monkeypatch, command, lines
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    arguments, _, filter_ = command.partition(" | ")
    assert main(shlex.split(arguments)[1:]) == 0
    assert lines == filtered(capsys.readouterr().out.splitlines(), *shlex.split(filter_))


def filtered(lines: list[str], program: str, *arguments: str) -> list[str]:
    """What ``tail -N`` or ``grep -E PATTERN`` leaves."""
    if program == "tail":
        return lines[int(arguments[0]) :]
    assert (program, arguments[0]) == ("grep", "-E")
    return [line for line in lines if re.search(arguments[1], line)]


def test_every_command_in_the_docs_has_options_that_exist() -> None:
    table = {*options.RUN_OPTIONS, *options.LAYOUT_OPTIONS}
    known = {name for option in table for name in option.names} | {"--specs", "--from-log"}
    known |= {"--json", "--out", "--force", "--verify", "--no-figures", "--print-scenario"}
    known |= {"--replicas", "--router", "--router-param"}
    known |= {"--model", "--capacities", "--definition", "--full-blocks", "--no-outputs"}
    known |= {"--sample", "--skip-empty"}
    known |= {"--quiet", "--format", "--params", "--every"}
    switches = {f"--no-{n[2:]}" for o in table if o.kind == "switch" for n in o.names}
    for path in DOCS:
        for command in COMMAND.findall(path.read_text(encoding="utf-8")):
            used = {word.split("=")[0] for word in shlex.split(command) if word.startswith("--")}
            assert used <= known | switches, f"{path.name}: {command}"


def test_every_kind_of_list_and_every_exit_code_is_documented() -> None:
    text = text_of("docs/cli.md")
    assert all(f"`{kind}`" in text for kind in KINDS)
    assert all(f"| {code} |" in text for code in (0, 1, 2, 130, 141))


def test_every_command_is_documented() -> None:
    headings = re.findall(r"^## kvsim (\w+)", text_of("docs/cli.md"), re.MULTILINE)
    assert set(headings) == {command.name for command in app.registered_commands} - {"groupings"}
    assert "kvsim groupings" in text_of("docs/groupings.md")


def test_semantics_rise_with_each_change_of_numbers() -> None:
    changes = re.findall(r"^- \*\*numbers change\*\*", text_of("CHANGELOG.md"), re.MULTILINE)
    assert SEMANTICS_VERSION == 1 + len(changes) > 1


# -- scenario.md ------------------------------------------------------------------------------
SCENARIO = text_of("docs/scenario.md")
SECTIONS = ["cache", "scheduler", "speculative", "engine"]


def rows_of(section: str) -> dict[str, str]:
    """Key and last line of each table row in a section of scenario.md."""
    part = SCENARIO.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {m[1]: m[0] for m in re.finditer(r"^\| `(\w+)` \|.*$", part, re.MULTILINE)}


@pytest.mark.parametrize("section", ["Top level", *SECTIONS])
def test_scenario_document_names_every_field_and_no_other(section: str) -> None:
    model = Scenario if section == "Top level" else type(Scenario.model_fields[section].default)
    shown = [name for name in rows_of(section) if name not in ACCEPTANCE_MODELS]
    assert shown == list(model.model_fields)


@pytest.mark.parametrize("section", SECTIONS)
def test_defaults_in_the_scenario_document_are_those_of_the_code(section: str) -> None:
    default = Scenario.model_fields[section].default
    for key, row in rows_of(section).items():
        if key == "acceptance" or key in ACCEPTANCE_MODELS:
            continue
        cells = [cell.strip().strip("`") for cell in row.strip("|").split("|")]
        shown = cells[2]
        value = getattr(default, key)
        assert shown == ("60GiB" if value == 60 * 2**30 else json.dumps(value).strip('"'))


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("latency and workload", LATENCY_MODELS),
        ("latency and workload", workloads.WORKLOADS),
        ("speculative", ACCEPTANCE_MODELS),
    ],
    ids=["latency", "workload", "acceptance"],
)
def test_scenario_document_names_every_parameter_of_a_plug_in(section, table) -> None:
    rows = rows_of(section)
    for name, entry in table.items():
        for parameter, field in entry.params.model_fields.items():
            assert f"`{parameter}`" in rows[name]
            if isinstance(field.default, int | float | str) and not isinstance(field.default, bool):
                shown = str(field.default)
                assert f"`{parameter}` ({shown})" in rows[name].replace("(`", "(").replace(
                    "`)", ")"
                )


def test_default_model_of_acceptance_is_the_documented_one() -> None:
    default = Scenario.model_fields["speculative"].default.acceptance
    assert f"`{{name: {default.name}}}`" in rows_of("speculative")["acceptance"]


def test_scenario_document_names_every_defect() -> None:
    assert list(rows_of("compat")) == list(QUIRKS)


TABLE_ROW = re.compile(r"^\| `(\w+)` \|(.*)\|$", re.MULTILINE)


def cells_of(section: str) -> list[list[str]]:
    part = SCENARIO.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = TABLE_ROW.findall(part)
    return [[name, *(cell.strip().strip("`") for cell in rest.split("|"))] for name, rest in rows]


def test_lengths_in_the_scenario_document_are_those_of_the_code() -> None:
    shown = [[w, n, float(mean), float(cv), int(m)] for w, n, mean, cv, m in cells_of("Lengths")]
    wanted = [
        [name, field, value.mean, value.cv, value.maximum]
        for name, workload in workloads.WORKLOADS.items()
        for field, info in workload.params.model_fields.items()
        if hasattr(value := info.default, "cv")
    ]
    assert shown == wanted
    assert Lengths.model_fields["distribution"].default == "lognormal"


def test_arrivals_in_the_scenario_document_are_those_of_the_code() -> None:
    shown = {row[0]: row[1:-1] for row in cells_of("Arrivals") if len(row) > 4}
    arriving = {n: w for n, w in workloads.WORKLOADS.items() if "arrival" in w.params.model_fields}
    assert shown.keys() == arriving.keys()
    for name, workload in arriving.items():
        rows = {p.key: default_text(p.default) for p in parameters(workload.params)}
        fields = type(workload.params.model_fields["arrival"].default).model_fields
        assert shown[name] == [rows[f"arrival.{field}"] for field in fields]
    kinds = {row[0] for row in cells_of("Arrivals") if len(row) <= 4}
    assert kinds == {"poisson", "gamma", "closed", "timestamps"}


def test_what_stays_null_in_a_written_scenario_is_documented() -> None:
    """Every key that is null in the resolved scenario of a default run is named in the rule."""
    rule = SCENARIO.split("* `null` means")[1].split("\n* ")[0]
    resolved = assemble(scenario_from({"model": "openai/gpt-oss-20b"})).scenario
    sections = resolved.model_dump(include={"cache", "scheduler", "engine"})
    for section in sections.values():
        for key, value in section.items():
            assert value is not None or f"`{key}`" in rule.split("Still `null`")[1], key


def test_yaml_in_the_scenario_document_is_a_scenario() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", SCENARIO, re.DOTALL)
    assert blocks
    for block in blocks:
        assert scenario_from({}, parse_yaml(block, "docs")).model
        assert yaml.safe_load(block)


# -- everything else ----------------------------------------------------------------------------
def test_symbols_are_those_of_the_metrics_document() -> None:
    part = text_of("docs/metrics.md").split("\n## Symbols\n")[1].split("\n\n**")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")][1:]
    shown = {row[0].strip(): row[1].strip().replace("**", "") for row in rows}
    shown = {name: text.removesuffix(", see below") for name, text in shown.items()}
    assert shown == {name: text.removesuffix(", nearest rank") for name, text in SYMBOLS.items()}


def test_sample_trace_has_the_numbers_of_the_document() -> None:
    """Counted with a set of ids: the leading full blocks that an earlier prompt had."""
    lines = text_of("configs/traces/sample.jsonl").splitlines()
    requests = [json.loads(line) for line in lines]
    seen: set[int] = set()
    found = 0
    for request in requests:
        full = request["hash_ids"][: request["input_length"] // 512]
        found += 512 * sum(1 for _ in takewhile(seen.__contains__, full))
        seen.update(full)
    total = sum(request["input_length"] for request in requests)
    text = text_of("docs/traces.md")
    assert f"has {len(requests)} requests in {requests[-1]['timestamp'] // 1000} seconds" in text
    assert f"{found:,} of its {total:,} prompt tokens" in text
    assert "\n".join([lines[0], lines[1], lines[2], "```"]) in text


def test_metrics_document_names_every_metric() -> None:
    text = text_of("docs/metrics.md")
    assert [name for name in METRICS if name not in text] == []


def test_readme_is_at_most_120_lines() -> None:
    assert len(text_of("README.md").splitlines()) <= 120


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.name)
def test_links_and_named_files_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        assert target.startswith("http") or (path.parent / target).exists(), target
    for name in re.findall(r"`((?:sim|workloads|configs|docs|tests)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name


def test_tables_named_in_the_docs_exist() -> None:
    named = set(re.findall(r"`([A-Z_]{6,})` in `((?:sim|workloads)/[\w/]+)/__init__\.py`",
                           text_of("docs/adding.md")))  # fmt: skip
    assert len(named) >= 7
    for table, package in named:
        assert hasattr(importlib.import_module(package.replace("/", ".")), table), (table, package)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_in_docstrings_are_true(path: Path) -> None:
    if ">>> " not in path.read_text(encoding="utf-8"):
        return
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    assert doctest.testmod(module, optionflags=flags).failed == 0

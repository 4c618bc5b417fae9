"""Who may import whom, and the house rules that a syntax tree can show."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BASE = {"sim.errors", "sim.units", "sim.registry"}
FILES_IN = {*BASE, "sim.config", "sim.configs_dir"}
SPECS = {"sim.layout.kv_cache_spec", "sim.layout.kv_cache_config"}
CORE = {*BASE, *SPECS, "sim.request", "sim.observer", "sim.jit", "sim.references"}

# part -> what it may import of the project; a part is the longest prefix that is listed here
ALLOWED = {
    "sim": set(),
    "sim.__main__": {"sim.cli"},
    "sim.errors": set(),
    "sim.units": {"sim.errors"},
    "sim.registry": {"sim.errors"},
    "sim.jit": set(),
    "sim.references": {"sim.jit"},
    "sim.prefix_ids": {*BASE, "sim.request"},
    "sim.profiling": {*BASE, "sim.observer"},
    "sim.configs_dir": {"sim.errors"},
    "sim.profiles": {"sim.registry"},
    "sim.compat": {"sim.errors"},
    "sim.config": {"sim.errors", "sim.units", "sim.compat"},
    "sim.scenario_file": {"sim.errors", "sim.config", "sim.configs_dir"},
    "sim.hardware": {*FILES_IN, "sim.scenario_file"},
    "sim.progress": {"sim.units"},
    "sim.request": set(),
    "sim.observer": set(),
    "sim.observers": {"sim.observer"},
    "sim.token_ids": {"sim.request"},
    "sim.event_files": {*BASE, "sim.core"},
    "sim.contents": {"sim.core", "sim.request", "sim.token_ids"},
    "sim.event_recorder": {*BASE, *SPECS, "sim.core", "sim.contents", "sim.event_files"},
    "sim.watchers": {"sim.config", "sim.core", "sim.layout", "sim.observer", "sim.contents",
                     "sim.event_recorder"},
    "sim.models": FILES_IN,
    "sim.layout.kv_cache_spec": BASE,
    "sim.layout.kv_cache_config": SPECS,
    "sim.layout": {*BASE, *SPECS, "sim.models", "sim.profiles"},
    "sim.layout.given_layer": {*BASE, *SPECS, "sim.config"},
    "sim.layout.specs_file": {*FILES_IN, *SPECS, "sim.layout.given_layer", "sim.scenario_file"},
    "sim.layout.plan_specs": {*BASE, *SPECS, "sim.layout", "sim.layout.specs_file", "sim.models",
                              "sim.profiles"},
    "sim.layout_scenario": {*FILES_IN, "sim.hardware", "sim.layout", "sim.layout.plan_specs",
                            "sim.layout.specs_file", "sim.models"},
    "sim.examples": {*BASE, *SPECS, "sim.layout", "sim.models", "sim.core", "sim.request",
                     "sim.plots"},
    "sim.core": CORE,
    "sim.scheduler": {*BASE, "sim.core", "sim.request", "sim.jit"},
    "sim.latency.work": set(),
    "sim.speculation": {*FILES_IN, "sim.request"},
    "sim.latency": {*FILES_IN, *SPECS, "sim.jit", "sim.latency.work", "sim.hardware", "sim.models"},
    "sim.admission": {*BASE, "sim.core", "sim.scheduler", "sim.request"},
    "sim.engine_core": {*BASE, "sim.admission", "sim.core", "sim.scheduler", "sim.request",
                        "sim.latency.work"},
    "sim.request_records": {*BASE, "sim.core", "sim.request"},
    "sim.waste_sample_compiled": {"sim.core", "sim.jit", "sim.metrics", "sim.tables"},
    "sim.engine_loop_compiled": {"sim.core", "sim.jit", "sim.latency", "sim.request",
                                 "sim.scheduler"},
    "sim.engine_core_compiled": {*BASE, "sim.admission", "sim.core", "sim.engine_core",
                                 "sim.engine_loop_compiled", "sim.latency", "sim.references",
                                 "sim.request", "sim.request_records", "sim.scheduler",
                                 "sim.tables", "sim.waste_sample_compiled"},
    "sim.engine_choice": {*BASE, "sim.compat", "sim.config", "sim.core", "sim.latency"},
    "sim.engine": {*BASE, "sim.engine_core", "sim.request"},
    "sim.tables": BASE,
    "sim.reasons": {*CORE, "sim.core", "sim.tables"},
    "sim.metrics": {*BASE, *SPECS, "sim.jit", "sim.tables", "sim.layout"},
    "sim.records": {*BASE, "sim.tables", "sim.metrics", "sim.request", "sim.latency.work"},
    "sim.plots": {*BASE, "sim.tables", "sim.metrics", "sim.result_folder"},
    "sim.curve": {*FILES_IN, *SPECS, "sim.scenario_file", "sim.layout", "sim.layout_scenario",
                  "sim.core", "sim.request", "sim.prefix_ids", "sim.scheduler", "sim.admission",
                  "sim.jit", "sim.plots", "sim.result_folder", "sim.provenance", "workloads"},
    "sim.provenance": set(),
    "sim.startup": {*BASE, *SPECS, "sim.config", "sim.layout", "sim.speculation"},
    "sim.result_folder": set(),
    "sim.results": {*BASE, "sim.config", "sim.scenario_file", "sim.tables", "sim.metrics",
                    "sim.result_folder", "sim.plots", "sim.reasons"},
    "sim.verification": set(),
    "sim.report_text": {*BASE, "sim.tables", "sim.metrics", "sim.results", "sim.reasons"},
    "sim.vllm": {*BASE, *SPECS, "sim.compat", "sim.config", "sim.contents", "sim.core",
                 "sim.request", "sim.scheduler"},
    "sim.cluster.routers": {*BASE, "sim.config", "sim.request", "sim.cluster"},
    "sim.cluster": {*FILES_IN, "sim.scenario_file", "sim.request", "sim.core", "sim.engine",
                    "sim.layout", "sim.observer", "sim.reasons", "sim.records", "sim.watchers",
                    "sim.tables", "sim.metrics", "sim.plots", "sim.result_folder", "sim.results",
                    "sim.report_text", "sim.cluster.routers"},
    "workloads": {"sim.request"},
}  # fmt: skip
# assembly and commands stand above all of it
ASSEMBLIES = {"sim.assembly", "sim.simulation", "sim.cluster.simulation"}
TOP = {*ASSEMBLIES, "sim.cli"}
PARTS = {*ALLOWED, *TOP}

NOT_IN_THE_CORE = {"simpy", "pandas", "torch", "pydantic", "pyarrow", "matplotlib", "numpy"}
SIMPY_HOMES = {"sim.engine"}
CLOCKS = {"time", "random", "datetime", "secrets", "uuid"}
CLOCK_HOMES = {*ASSEMBLIES, "sim.profiling"}  # how long a run took, for its provenance
FORBIDDEN_NAMES = {"utils", "util", "helpers", "misc", "common"}
MAX_BODY_LINES = 60
MAX_NESTING = 4


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted([*(ROOT / "sim").rglob("*.py"), *(ROOT / "workloads").rglob("*.py")])
MODULES = {module_name(path): path for path in FILES}


def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imported(module: str) -> Iterator[str]:
    """Every module that a module imports, also inside functions; not what only types name."""
    tree = tree_of(module)
    for_types = {
        id(inner)
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node)
            yield from (resolved(base, alias.name) for alias in node.names)


def absolute(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".")
    is_package = MODULES[module].name == "__init__.py"
    keep = len(package) - node.level + is_package
    return ".".join([*package[:keep], *([node.module] if node.module else [])])


def resolved(base: str, name: str) -> str:
    return f"{base}.{name}" if f"{base}.{name}" in MODULES else base


def part_of(module: str) -> str:
    names = module.split(".")
    prefixes = (".".join(names[:n]) for n in range(len(names), 0, -1))
    return next(prefix for prefix in prefixes if prefix in PARTS)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_module_imports_only_layers_below_it(module: str) -> None:
    part = part_of(module)
    assert part != "sim" or module == "sim", f"{module} belongs to no part: add it to the table"
    used = {
        part_of(name) for name in imported(module) if name.split(".")[0] in ("sim", "workloads")
    }
    used.discard(part)
    if part in TOP:
        assert "workloads" not in used or part in ASSEMBLIES
        assert "sim.cli" not in used
        return
    assert used <= ALLOWED[part], f"{module} must not import {sorted(used - ALLOWED[part])}"


@pytest.mark.parametrize(
    "module", [m for m in sorted(MODULES) if m.startswith(("sim.core", "sim.scheduler"))]
)
def test_core_and_scheduler_are_plain_python(module: str) -> None:
    forbidden = NOT_IN_THE_CORE - ({"numpy"} if module.endswith("_compiled") else set())
    assert not {name.split(".")[0] for name in imported(module)} & forbidden


def test_only_the_engine_of_sim_imports_simpy() -> None:
    importers = {m for m in MODULES if any(n.split(".")[0] == "simpy" for n in imported(m))}
    inside = {m for m in importers if not m.startswith("workloads")}
    assert inside == SIMPY_HOMES


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_wall_clock_and_no_global_random_state(module: str) -> None:
    clocks = {name.split(".")[0] for name in imported(module)} & CLOCKS
    assert not clocks or module in CLOCK_HOMES
    assert not re.search(
        r"\b(np|numpy)\.random\.(seed|rand|randn|choice)\b", MODULES[module].read_text()
    )


@pytest.mark.parametrize("module", sorted(MODULES))
def test_functions_are_short_and_flat(module: str) -> None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert body_lines(node) <= MAX_BODY_LINES, f"{module}.{node.name} is too long"
            assert nesting(node) <= MAX_NESTING, f"{module}.{node.name} is nested too deep"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement behind the docstring to the end."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match)


def nesting(node: ast.AST, elif_of: bool = False) -> int:
    """The deepest nesting of blocks; an ``elif`` stands beside its ``if``."""
    own = isinstance(node, BLOCKS) and not elif_of
    inner = [nesting(child, is_elif(node, child)) for child in ast.iter_child_nodes(node)]
    return own + max(inner, default=0)


def is_elif(node: ast.AST, child: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]


def test_nesting_counts_blocks_and_takes_elif_as_flat() -> None:
    deep = ast.parse("for a in b:\n  if a:\n    while a:\n      pass\n").body[0]
    flat = ast.parse("if a:\n  pass\nelif b:\n  pass\nelif c:\n  pass\n").body[0]
    assert (nesting(deep), nesting(flat)) == (3, 1)


def test_modules_are_named_after_what_they_hold() -> None:
    assert not {m.rpartition(".")[2] for m in MODULES} & FORBIDDEN_NAMES


def test_nothing_published_names_a_folder_of_one_machine() -> None:
    pattern = re.compile(r"""(?<![\w.$}/-])/(?:work|tmp|home|root|Users)/""")
    for path in published_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not pattern.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def published_files() -> Iterator[Path]:
    """Text files that git has or would take; without git (an sdist) the folders of the project."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = listed.stdout.split("\n") if listed.returncode == 0 else map(str, FILES)
    suffixes = {".py", ".md", ".toml", ".yaml", ".json", ".cfg", ".txt", ".ipynb", ""}
    own = {Path(__file__).name}
    for name in names:
        path = ROOT / name
        if path.suffix in suffixes and path.is_file() and path.name not in own:
            yield path

"""The wheel, installed into a fresh folder, works from another one."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def call(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel_fixture(tmp_path_factory) -> Path:
    """Build the wheel with the build backend that is installed: no download."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "from hatchling.build import build_wheel; print(build_wheel({0!r}))"
    name = call(sys.executable, "-c", build.format(str(folder)), cwd=ROOT)
    return folder / name.strip()


@pytest.fixture(scope="module")
def environment_fixture(wheel_fixture, tmp_path_factory) -> Path:
    """Install the wheel into an empty environment that borrows the libraries of this one.

    A full install with dependencies is a stage of its own of ``make ci``: it takes longer.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    install = ["-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    call(sys.executable, *install, wheel_fixture, cwd=folder)
    (own,) = (folder / "env" / "lib").glob("python*/site-packages")
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_wheel_holds_both_packages_and_the_configs(wheel_fixture) -> None:
    names = zipfile.ZipFile(wheel_fixture).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"sim", "workloads"}
    for kind in ("models", "hardware", "scenarios", "traces"):
        shipped = {Path(n).name for n in names if n.startswith(f"sim/_configs/{kind}/")}
        assert shipped == {p.name for p in (ROOT / "configs" / kind).iterdir()}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_installed_package_is_the_one_of_the_wheel(environment_fixture) -> None:
    python = environment_fixture / "env" / "bin" / "python"
    where = call(python, "-c", "import sim; print(sim.__file__)", cwd=environment_fixture)
    assert Path(where.strip()).is_relative_to(environment_fixture)


def test_installed_command_finds_its_models_and_plans_a_layout(environment_fixture) -> None:
    kvsim = environment_fixture / "env" / "bin" / "kvsim"
    models = call(kvsim, "list", "models", cwd=environment_fixture).splitlines()
    assert {line.split()[0] for line in models} == {
        p.stem for p in (ROOT / "configs" / "models").glob("*.json")
    }
    arguments = ["layout", "google/gemma-3-27b-it", "--kv-cache-memory", "20GiB", "--json"]
    layout = json.loads(call(kvsim, *arguments, cwd=environment_fixture))
    # spec/layout.md 14
    assert (layout["num_blocks"], layout["capacity"]["tokens"]) == (16384, 184270)


def test_installed_command_finds_its_scenarios_by_name(environment_fixture) -> None:
    kvsim = environment_fixture / "env" / "bin" / "kvsim"
    scenarios = call(kvsim, "list", "scenarios", cwd=environment_fixture).splitlines()
    folder = ROOT / "configs" / "scenarios"
    assert {line.split()[0] for line in scenarios} == {p.stem for p in folder.glob("*.yaml")}
    name = "gemma_3_27b_multi_turn"
    text = call(kvsim, "run", name, "--print-scenario", cwd=environment_fixture)
    assert text == call(kvsim, "run", folder / f"{name}.yaml", "--print-scenario", cwd=ROOT)


def test_version_is_the_one_of_the_project_file(environment_fixture) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    kvsim = environment_fixture / "env" / "bin" / "kvsim"
    assert call(kvsim, "--version", cwd=environment_fixture) == f"kvsim {project['version']}\n"

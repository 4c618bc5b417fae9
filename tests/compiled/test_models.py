"""Every model that comes along, in every mode of its recurrent layers, on a pool that is just too
small for what is asked: both engines write the same bytes."""

from __future__ import annotations

from functools import lru_cache

import pytest

from sim.core.attention import manager_class
from sim.core.kv_cache_state_compiled import KINDS, MAMBA
from sim.errors import ConfigError
from sim.models import known_models
from sim.simulation import Assembly, assemble
from tests.compiled.scenarios import ALIGN, ALL, OPEN, Case, turns
from tests.compiled.test_scenarios import compare

MAX_MODEL_LEN, MOST_BLOCKS = 4096, 400_000
MODES = {"none": {}, "align": ALIGN, "all": ALL}


def case(model: str, mode: str, blocks: int) -> Case:
    scheduler = {**OPEN, "max_model_len": MAX_MODEL_LEN}
    return Case(model, model, turns(40, 0.5), blocks, MODES[mode], scheduler)


def assembled(model: str, mode: str, blocks: int) -> Assembly | None:
    """Return the assembly, None if the model cannot be served so."""
    try:
        return assemble(case(model, mode, blocks).scenario("python"))
    except ConfigError:
        return None


@lru_cache
def least_blocks(model: str, mode: str) -> int:
    """Return the smallest pool that the model starts with."""
    first, last = 1, MOST_BLOCKS
    while first < last:
        middle = (first + last) // 2
        if assembled(model, mode, middle) is None:
            first = middle + 1
        else:
            last = middle
    return first


def kinds(assembly: Assembly) -> set[int]:
    groups = assembly.layout.kv_cache_config.kv_cache_groups
    return {KINDS.get(manager_class(group.kv_cache_spec), -1) for group in groups}


@lru_cache
def choices() -> list[tuple[str, str]]:
    """Return the models and modes that the compiled engine covers."""
    found = []
    for model in sorted(known_models()):
        for mode in MODES:
            assembly = assembled(model, mode, MOST_BLOCKS)
            its_kinds = kinds(assembly) if assembly is not None else {-1}
            if -1 not in its_kinds and (mode == "none" or MAMBA in its_kinds):
                found.append((model, mode))
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("mode", MODES)
def test_models_write_the_same_bytes(mode, tmp_path):
    models = [model for model, its_mode in choices() if its_mode == mode]
    for model in models:
        blocks = int(1.15 * least_blocks(model, mode)) + 1
        few = case(model, mode, blocks)
        compare(few.scenario("python"), few.scenario("compiled"), tmp_path / model)
    assert len(models) > 20

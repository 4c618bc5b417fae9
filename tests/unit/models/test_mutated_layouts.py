"""Layouts of mutated configs: an answer or an error of lines, never another exception."""

import pytest
from hypothesis import HealthCheck, given, settings

from sim.errors import ConfigError
from sim.layout.plan import LayoutSettings, plan_layout
from sim.layout.report import layout_json
from sim.models import model_from_config

from .mutations import CHANGE_LISTS, CONFIGS, mutated

STEMS = [
    "Qwen--Qwen2.5-7B",
    "Zyphra--Zamba2-1.2B",
    "XiaomiMiMo--MiMo-V2-Flash",
    "ai21labs--Jamba-v0.1",
    "deepseek-ai--DeepSeek-V3.2",
    "deepseek-ai--DeepSeek-V4-Flash",
    "google--gemma-3-27b-it",
    "google--gemma-4-E2B",
    "meta-llama--Llama-4-Scout-17B-16E-Instruct",
    "moonshotai--Kimi-Linear-48B-A3B-Instruct",
    "openai--whisper-large-v3",
]
WANTED = LayoutSettings(kv_cache_memory_bytes=20 * 2**30, max_num_batched_tokens=8192)


def answer(config):
    model = model_from_config(config, "mutated")
    if len(model.layers) > 300:
        return None  # planning is tested on small stacks
    return layout_json(plan_layout(model, WANTED))


@pytest.mark.slow
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(CHANGE_LISTS)
def test_a_mutated_config_is_planned_or_refused(changes):
    for stem in STEMS:  # 80 times 11 mutated configs
        try:
            answer(mutated(CONFIGS[stem], changes))
        except ConfigError as error:
            assert 1 <= len(error.lines()) <= 10
            assert all("\n" not in line for line in error.lines())

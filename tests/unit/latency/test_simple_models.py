import pytest

from sim.config import Plugin
from sim.errors import ConfigError
from sim.latency import build_step_time
from sim.latency.affine import AffineParams, build
from sim.latency.work import StepWork

from .fakes import FULL, make_hardware, make_layout, make_model

ARGUMENTS = make_model(), make_hardware(), make_layout((FULL, 1), (FULL, 1))


def test_constant_takes_its_time_whatever_the_work():
    step_time = build_step_time(Plugin(name="constant", params={"step_ms": 1.5}), *ARGUMENTS)
    assert step_time(StepWork([], [])) == 1_500_000
    assert step_time(StepWork([(0, 9)], [5])) == 1_500_000


def test_constant_is_at_least_one_nanosecond():
    step_time = build_step_time(Plugin(name="constant", params={"step_ms": 1e-9}), *ARGUMENTS)
    assert step_time(StepWork([], [4])) == 1


def test_affine_adds_each_cost_once_per_unit():
    params = AffineParams(
        step_us=1, prefill_token_us=0.01, decode_request_us=0.1, context_token_ns=1, kv_group_us=2
    )
    step_time = build(params, *ARGUMENTS)
    # 1000 + 2 groups x 2000 + (5 + 2) prefill tokens x 10 + 3 decodes x 100 + (10 + 20 + 30 of the
    # decodes, 100 before the second chunk) x 1
    work = StepWork(prefill=[(0, 5), (100, 2)], decode=[10, 20, 30])
    assert step_time(work) == 1000 + 4000 + 70 + 300 + 160


def test_affine_counts_each_draft_as_a_decode_and_the_context_once():
    params = AffineParams(
        step_us=0, prefill_token_us=0, decode_request_us=0.1, context_token_ns=1, kv_group_us=0
    )
    # 1 + 4 tokens x 100; contexts of 10 and 50.
    assert build(params, *ARGUMENTS)(StepWork([], [10], [(50, 4)])) == 560


def test_affine_rounds_once_per_step():
    params = AffineParams(
        step_us=0, prefill_token_us=0, decode_request_us=0, context_token_ns=0.4, kv_group_us=0
    )
    # Three context tokens of 0.4 ns: 1.2 -> 1; rounding each would give 0.
    assert build(params, *ARGUMENTS)(StepWork([], [1, 1, 1])) == 1


@pytest.mark.parametrize(
    ("name", "params", "line"),
    [
        ("rofline", {}, "latency.name: rofline: known: roofline, constant, affine; did you mean"),
        (
            "constant",
            {"step": 2.0},
            "latency.params.step: 2.0: known: step_ms; did you mean step_ms",
        ),
        ("constant", {"step_ms": 0.0}, "latency.params.step_ms: 0.0: greater than 0"),
        ("affine", {"step_us": -1.0}, "latency.params.step_us: -1.0: greater than or equal to 0"),
        (
            "roofline",
            {"step_overhead_us": "x"},
            "latency.params.step_overhead_us: x: a valid number",
        ),
    ],
)
def test_wrong_parameters_are_named(name, params, line):
    with pytest.raises(ConfigError) as caught:
        build_step_time(Plugin(name=name, params=params), *ARGUMENTS)
    assert len(caught.value.lines()) == 1
    assert caught.value.lines()[0].startswith(line)

"""Who is refused at the door: the cheap answer is never wrong."""

from __future__ import annotations

from functools import cache
from math import lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.admission import Admission
from sim.core.attention import ATTENTION_KINDS
from sim.core.attention.full import FullAttentionManager
from sim.core.kv_cache_manager import KVCacheManager
from sim.layout.kv_cache_spec import FullAttentionSpec
from sim.request import Request
from sim.scheduler.limits import SchedulerLimits
from tests.helpers import full, make_kv_cache_config, mamba, sliding

LONGEST = 400


GROUPS = {
    "full": (full(4),),
    "hybrid": (full(8), sliding(4, 8), sliding(4, 30)),
    "align": (full(4), mamba(8, "align", 2)),
    "all": (full(4), mamba(4, "all", 1)),
    "none": (full(4), mamba(LONGEST, "none", 3)),
}


@cache
def admission_of(name: str, num_blocks: int, gate: bool) -> Admission:
    config = make_kv_cache_config(list(GROUPS[name]), num_blocks=num_blocks)
    sizes = [group.block_size for group in GROUPS[name]]
    manager = KVCacheManager(
        config, LONGEST, lcm(*sizes), 4, max_num_batched_tokens=32, enable_caching=name != "none"
    )
    limits = SchedulerLimits(32, 8, LONGEST, scheduler_reserve_full_isl=gate)
    return Admission(limits, manager)


class Exact(Admission):
    """Without the cheap answer."""

    def surely_fits(self, total: int) -> bool:
        return False


@given(
    name=st.sampled_from(list(GROUPS)),
    num_blocks=st.integers(4, 300),
    gate=st.booleans(),
    prompt=st.integers(1, LONGEST - 1),
    output=st.integers(1, LONGEST),
    stop_after=st.none() | st.integers(1, LONGEST),
)
@settings(max_examples=400, deadline=None)
def test_cheap_answer_accepts_nothing_that_the_exact_one_refuses(
    name, num_blocks, gate, prompt, output, stop_after
):
    admission = admission_of(name, num_blocks, gate)
    exact = Exact(admission.limits, admission.manager)
    request = Request("r", prompt, output, stop_after=stop_after)
    assert admission.refusal(request) == exact.refusal(request)


@pytest.mark.parametrize("name", GROUPS)
def test_bound_is_never_below_what_a_request_needs(name):
    admission = admission_of(name, 300, True)
    told = 0
    for total in range(2, LONGEST + 1):
        for prompt in {1, total // 2, total - 1} - {0}:
            request = Request("r", prompt, total - prompt)
            needed = max(admission._decode_need(request, total), admission.admission_need(request))
            bound = admission._num_besides + sum(
                count * -(-total // size) for size, count in admission._sizes
            )
            assert needed <= bound
            told += admission.surely_fits(total)
    assert told


def test_kind_that_somebody_registers_is_asked_exactly(monkeypatch):
    class Doubled(FullAttentionManager):
        """Holds twice what its table has."""

    monkeypatch.setitem(ATTENTION_KINDS, FullAttentionSpec, Doubled)
    config = make_kv_cache_config([full(4)], num_blocks=300)
    manager = KVCacheManager(config, LONGEST, 4, 4, max_num_batched_tokens=32)
    limits = admission_of("full", 300, True).limits
    assert not Admission(limits, manager).surely_fits(10)
    assert Admission(limits, manager).refusal(Request("r", 10, 10)) is None


def test_server_without_refusals_still_refuses_what_the_model_cannot_take():
    admission = admission_of("full", 4, True)
    patient = Admission(admission.limits, admission.manager, reject_unschedulable=False)
    assert patient.refusal(Request("r", 300, 90)) is None
    assert patient.refusal(Request("r", 0, 1)) == "the prompt is empty"
    assert patient.refusal(Request("r", 400, 1)) == "prompt of 400 tokens, max_model_len 400"

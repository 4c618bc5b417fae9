"""Requests with an encoder's output to read. Source: spec/manager.md 3.6, 6.3 C7."""

from __future__ import annotations

from sim.core.integrity import check_integrity
from sim.request import Request
from sim.scheduler.scheduler import Scheduler, SchedulerLimits
from tests.helpers import full, tables
from tests.unit.core.kinds import cross, native


def test_the_encoders_blocks_come_with_each_admission():
    """Decoder blocks of 4, encoder blocks of 16: 30 encoder tokens take two, once."""
    manager = native([full(4), cross(16)], num_blocks=20, enable_caching=False)
    scheduler = Scheduler(manager, SchedulerLimits(64, 4, 1000))
    a = Request("a", 6, 8, num_encoder_tokens=30)
    scheduler.add_request(a)
    scheduler.update_from_output(scheduler.schedule())
    assert tables(manager, a) == [[1, 2], [3, 4]]
    for _ in range(3):
        scheduler.update_from_output(scheduler.schedule())
    assert [len(table) for table in tables(manager, a)] == [3, 2]
    scheduler._preempt_request(scheduler.running.pop())
    scheduler.update_from_output(scheduler.schedule())
    # Its 10 tokens are computed again, and the encoder's as well.
    assert [len(table) for table in tables(manager, a)] == [3, 2]
    check_integrity(manager)

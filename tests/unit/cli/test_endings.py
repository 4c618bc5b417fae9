"""Remarks on requests that did not finish."""

from types import SimpleNamespace

from sim.cli.endings import ending_lines, stuck_lines
from sim.tables import REQUEST_COLUMNS, MemoryTable
from tests.unit.metrics import fakes


def make_requests(*rows):
    return MemoryTable.of(fakes.make_requests(*rows), REQUEST_COLUMNS)


def assembly(planned):
    return SimpleNamespace(workload=SimpleNamespace(count=lambda params: planned),
                           workload_params=None)  # fmt: skip


def ended(request_id, outcome="rejected", reason="prompt of 1,700 tokens, max_model_len 1,600"):
    return {"request_id": request_id, "outcome": outcome, "reason": reason}


def test_rejected_requests_are_counted_by_reason_and_the_first_is_named():
    rows = [ended("a"), ended("b", reason="prompt of 90 tokens, max_model_len 1,600"),
            ended("c", "finished", None), ended("d", reason="the prompt is empty")]  # fmt: skip
    assert ending_lines(make_requests(*rows), assembly(4)) == [
        "rejected: 2 requests, first: a: prompt of 1,700 tokens, max_model_len 1,600",
        "rejected: 1 request, first: d: the prompt is empty",
    ]


def test_at_most_ten_reasons_are_told():
    rows = [ended(f"r{i}", reason=f"reason {'x' * i}") for i in range(13)]
    lines = ending_lines(make_requests(*rows), assembly(13))
    assert (len(lines), lines[-1]) == (11, "and 3 more like these")


def test_requests_that_were_never_submitted_are_counted():
    rows = [ended("s0.0", "finished", None), ended("s1.0"), ended("s2.0", "aborted", None)]
    *_, line = ending_lines(make_requests(*rows), assembly(1005))
    assert line == (
        "never submitted: 1,002 of 1,005 requests: "
        "an earlier one of their session or client was rejected or aborted"
    )


def test_a_run_that_finished_says_nothing_and_counts_nothing():
    def count(params):
        raise AssertionError("reads a whole trace")

    rows = make_requests(ended("a", "finished", None))
    asked = SimpleNamespace(workload=SimpleNamespace(count=count), workload_params=None)
    assert ending_lines(rows, asked) == []
    assert stuck_lines(rows) == []


def test_number_of_requests_may_be_unknown():
    assert len(ending_lines(make_requests(ended("a")), assembly(None))) == 1


def test_stuck_requests_are_named():
    rows = [ended(f"r{i}", "stuck", "waiting") for i in range(11)]
    lines = stuck_lines(make_requests(*rows))
    assert (lines[0], lines[9:]) == ("stuck: r0: waiting", ["stuck: r9: waiting",
                                                             "and 1 more like these"])  # fmt: skip

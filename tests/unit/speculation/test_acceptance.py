"""How many drafts are accepted: rates, draws, and that no scheduler can change them."""

from __future__ import annotations

import pytest

from sim.config import Scenario, Speculative, validated
from sim.errors import ConfigError
from sim.request import Request
from sim.simulation import simulate
from sim.speculation import ACCEPTANCE_MODELS, build_num_sampled
from sim.speculation.acceptance import num_sampled, uniform


def rates(name, params, num_drafts):
    entry = ACCEPTANCE_MODELS[name]
    return entry.rates(entry.params(**params), num_drafts)


def test_geometric_rates_are_powers():
    assert rates("geometric", {"rate": 0.5}, 3) == (0.5, 0.25, 0.125)


def test_rates_by_position_are_as_given():
    assert rates("per_position", {"rates": [0.8, 0.6, 0.1]}, 2) == (0.8, 0.6)


@pytest.mark.parametrize(
    ("given", "words"),
    [([0.5], "1 rates: one for each of 2 drafts"), ([0.5, 0.6], "rates that do not rise")],
)
def test_rates_that_cannot_be_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        rates("per_position", {"rates": given}, 2)


def test_unknown_names_and_values_are_refused():
    with pytest.raises(ConfigError, match=r"acceptance.name: geometrik: .*mean geometric"):
        build_num_sampled(Speculative(acceptance={"name": "geometrik"}), 0)
    with pytest.raises(ConfigError, match=r"speculative.acceptance.params.rate: 2"):
        build_num_sampled(Speculative(acceptance={"name": "geometric", "params": {"rate": 2.0}}), 0)


def request_at(position, name="r"):
    request = Request(name, 5, 100)
    request.num_tokens += position
    return request


def test_as_many_are_accepted_as_rates_lie_above_the_draw():
    for position in range(200):
        drawn = uniform(3, "r", position)
        expected = 1 + (drawn < 0.9) + (drawn < 0.5) + (drawn < 0.2)
        assert num_sampled((0.9, 0.5, 0.2), 3)(request_at(position), 3) == expected


def test_the_largest_draw_is_below_one(monkeypatch):
    class AllOnes:
        def digest(self):
            return b"\xff" * 8

    monkeypatch.setattr("sim.speculation.acceptance.blake2b", lambda *_, **__: AllOnes())
    # 64 ones divided by 2**64 would be rounded to 1.
    assert uniform(0, "r", 0) == 1 - 2**-53


def test_fewer_drafts_are_cut_off_and_placeholders_rejected():
    always = num_sampled((1.0, 1.0, 1.0), 0)
    request = request_at(0)
    assert [always(request, n) for n in range(4)] == [1, 2, 3, 4]
    request.has_placeholder_drafts = True
    assert always(request, 3) == 1


def test_draws_are_uniform_and_differ_by_seed_request_and_position():
    draws = [uniform(s, f"r{i}", p) for s in (0, 1) for i in range(40) for p in range(50)]
    assert len(set(draws)) == len(draws)
    assert all(0 <= drawn < 1 for drawn in draws)
    # 4,000 draws in 10 cells: chi-square of 9 degrees is below 27.9 in 999 of 1,000 cases.
    cells = [sum(int(drawn * 10) == cell for drawn in draws) for cell in range(10)]
    assert sum((count - 400) ** 2 / 400 for count in cells) < 27.9


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_has_the_acceptance_that_it_was_given(is_async):
    """1 + 0.8 + 0.64 + 0.512 = 2.952 tokens per verification, and no other outputs than before."""
    data = {
        "model": "meta-llama--Llama-3.1-8B",
        "scheduler": {"max_model_len": 16_384, "async_scheduling": is_async},
        "speculative": {
            "num_speculative_tokens": 3,
            "acceptance": {"name": "geometric", "params": {"rate": 0.8}},
        },
        "engine": {"check_every": 100},
        "workload": {"name": "shared_prefix", "params": {"num_requests": 40}},
    }
    scenario = validated(Scenario, data)
    result = simulate(scenario)
    assert result.scenario.speculative.speculative_method == "eagle"
    assert result.metrics["acceptance_length_mean"] == pytest.approx(2.952, rel=0.05)
    plain = simulate(validated(Scenario, {**data, "speculative": {}}))
    lengths = [list(r.requests.sort_values("request_id")["output_tokens"]) for r in (result, plain)]
    assert lengths[0] == lengths[1]
    assert result.metrics["e2e_mean_s"] < plain.metrics["e2e_mean_s"]
    assert plain.metrics["acceptance_length_mean"] is None


def test_a_scheduling_policy_does_not_change_what_is_accepted():
    """The last verification of a request is cut by its length, the others are the same."""
    rates_, seen = (0.9, 0.5), {}
    for order in (1, -1):
        sampled = num_sampled(rates_, 7)
        requests = [request_at(0, name) for name in "abc"][::order]
        for _ in range(30):
            for request in requests:
                request.num_tokens += sampled(request, 2)
        seen[order] = {request.request_id: request.num_tokens for request in requests}
    assert seen[1] == seen[-1]
    assert len(set(seen[1].values())) > 1

from collections import Counter
from math import sqrt

import numpy as np
import pytest

from sim.prefix_ids import PrefixIds
from workloads.lengths import Lengths
from workloads.shared_prefix import SharedPrefixParams, popularity, requests
from workloads.streams import Streams

NUM_REQUESTS = 3000


def specs(params: SharedPrefixParams, seed: int = 3) -> list:
    return [spec for spec, _ in requests(Streams(seed), params)]


def test_popularity_follows_zipf():
    # weights 1, 1/2, 1/3, 1/4 over their sum 25/12
    assert popularity(4, 1.0) == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])
    assert popularity(4, 0.0) == pytest.approx([0.25] * 4)
    # weights 1, 1/4 over 5/4
    assert popularity(2, 2.0) == pytest.approx([0.8, 0.2])


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_tenants_ask_as_often_as_stated(exponent):
    params = SharedPrefixParams(
        num_requests=NUM_REQUESTS, num_tenants=8, zipf_exponent=exponent, user=Lengths(mean=1)
    )
    found = Counter(spec.tags[0] for spec in specs(params))
    for tenant, share in enumerate(popularity(8, exponent), start=1):
        # binomial: standard error of a share sqrt(p (1 - p) / n)
        bound = 5 * sqrt(share * (1 - share) / NUM_REQUESTS)
        assert abs(found[f"tenant{tenant}"] / NUM_REQUESTS - share) < bound


def test_user_parts_and_outputs_have_the_stated_means():
    params = SharedPrefixParams(
        num_requests=NUM_REQUESTS,
        user=Lengths(mean=300, cv=0.8),
        output=Lengths(distribution="uniform", mean=90, cv=0.3),
    )
    found = specs(params)
    users = np.array([spec.prompt[1].length for spec in found])
    outputs = np.array([spec.num_output_tokens for spec in found])
    # five standard errors, and half a token for rounding
    assert abs(users.mean() - 300) < 5 * 300 * 0.8 / sqrt(NUM_REQUESTS) + 0.5
    assert abs(outputs.mean() - 90) < 5 * 90 * 0.3 / sqrt(NUM_REQUESTS) + 0.5


def test_requests_share_the_system_prompt_of_their_tenant_and_nothing_else():
    params = SharedPrefixParams(num_requests=200, num_tenants=3)
    ids = PrefixIds(1)
    seen: dict[str, list[list[int]]] = {}
    private: list[int] = []
    for spec in specs(params):
        num_system = spec.prompt[0].length
        found = ids.of(spec).tolist()
        seen.setdefault(spec.tags[0], []).append(found[:num_system])
        private.extend(found[num_system:])
    assert len(seen) == 3
    assert all(system == systems[0] for systems in seen.values() for system in systems)
    assert len({systems[0][0] for systems in seen.values()}) == 3
    assert len(set(private)) == len(private)


def test_more_requests_begin_with_the_same_ones():
    few = specs(SharedPrefixParams(num_requests=20))
    assert specs(SharedPrefixParams(num_requests=50))[:20] == few

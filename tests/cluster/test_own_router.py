"""The router of docs/cluster.md works as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.cluster.routers import ROUTERS
from sim.cluster.simulation import simulate_cluster
from sim.errors import ConfigError
from tests.cluster.scenarios import cluster, forget

DOC = Path(__file__).parents[2] / "docs" / "cluster.md"


def test_the_documented_router_of_one_s_own_serves_a_run():
    pattern = r"<!-- executed: tests/cluster/test_own_router.py -->\n```python\n(.*?)```"
    (code,) = re.findall(pattern, DOC.read_text(encoding="utf-8"), re.DOTALL)
    try:
        exec(compile(code, str(DOC), "exec"), {"__name__": "documented"})
        summary = simulate_cluster(cluster(3, "half", {"share": 0.4})).summary()
        assert summary["router"] == "half:share=0.4"
        assert summary["totals"]["requests_finished"] == 60
        assert summary["index"]["expected_tokens"] > 0
        with pytest.raises(ConfigError, match="a name that is not registered yet"):
            ROUTERS.register("half", ROUTERS["half"])
    finally:
        forget("half")

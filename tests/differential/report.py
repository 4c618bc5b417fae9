"""The account of a search, in text."""

from __future__ import annotations

from tests.differential.coverage import FEATURES, UNREACHABLE
from tests.differential.search import Tally


def report(tally: Tally, seed: int, wall_s: float) -> str:
    """Return the failures, the table of features, and the totals last."""
    lines = []
    for failure in tally.failures:
        lines += [f"DIFFERENCE: {failure.level} world of seed {failure.seed}", failure.told]
        lines += [f"  the world: {failure.world}", ""]
    lines += table(tally)
    worlds = sum(tally.worlds.values())
    calls = sum(tally.calls.values())
    lines += [
        "",
        f"seed {seed}: {worlds:,} worlds ({tally.worlds['manager']:,} of managers, "
        f"{tally.worlds['scheduler']:,} of schedulers), {calls:,} calls compared, "
        f"{tally.steps:,} of them scheduler steps",
        f"{tally.cpu_s:,.0f} s of CPU, {wall_s:,.0f} s on the clock; "
        f"{len(tally.failures)} differences",
    ]
    missing = gaps(tally)
    if missing:
        lines.append("never reached: " + "; ".join(missing))
    return "\n".join(lines)


def table(tally: Tally) -> list[str]:
    others = sorted(set(tally.features) - set(FEATURES))
    width = max(map(len, [*FEATURES, *others]))
    lines = [f"{'feature':{width}}  {'count':>10}"]
    for name in [*FEATURES, *others]:
        reason = UNREACHABLE.get(name)
        note = f"  {reason}" if reason else ""
        lines.append(f"{name:{width}}  {tally.features[name]:>10,}{note}")
    return lines


def gaps(tally: Tally) -> list[str]:
    """Return the features that could have been reached and were not."""
    missing = [f for f in FEATURES if not tally.features[f] and f not in UNREACHABLE]
    return [f for f in missing if not f.startswith("given up")]  # rare, and nobody's aim

"""Where the prompt tokens of a run went, by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.reasons.causes import CAUSES, PAST, VETOED
from sim.reasons.stretches import NO_GROUP
from sim.reasons.words import Groups, group_text, share_text
from sim.tables import ALONE_PREFIX

if TYPE_CHECKING:
    import pandas as pd


def summarise(lookups: pd.DataFrame, reasons: pd.DataFrame) -> dict[str, Any]:
    """Return the content of ``reasons`` in ``summary.json``: tokens, JSON types only.

    Only lookups that led to a first admission count, so that ``hit_tokens`` and the tokens of all
    ``causes`` add up to ``prompt_tokens``. Lookups after a preemption are counted in ``resumed``.

    causes : by deciding group and cause; ``group`` is None where the cause is every group's
    vetoes : by group that could have used the tokens, group that could not, and its cause
    alone_tokens : by group, what it could have used on its own
    """
    admitted = lookups[lookups["admitted"] == 1]
    first = admitted[admitted["preemptions"] == 0]
    again = admitted[admitted["preemptions"] > 0]
    rows = reasons[reasons["lookup"].isin(first["lookup"])]
    alone = [c for c in lookups.columns if c.startswith(ALONE_PREFIX)]
    return {
        "lookups": len(lookups),
        "first_admissions": len(first),
        "prompt_tokens": int(first["tokens"].sum()),
        "hit_tokens": int(first["hit_tokens"].sum()),
        "causes": _causes(rows[rows["decides"] == 1]),
        "vetoes": _vetoes(rows[rows["cause"] == VETOED]),
        "alone_tokens": [int(first[c].sum()) for c in alone],
        "resumed": {
            "lookups": len(again),
            "tokens": int(again["tokens"].sum()),
            "hit_tokens": int(again["hit_tokens"].sum()),
        },
    }


def _causes(rows: pd.DataFrame) -> list[dict[str, Any]]:
    sums = rows.groupby(["group", "cause"])["tokens"].sum()
    found = [
        {"group": None if group == NO_GROUP else int(group), "cause": cause, "tokens": int(tokens)}
        for (group, cause), tokens in sums.items()
    ]
    return sorted(found, key=lambda c: (-c["tokens"], CAUSES.index(c["cause"])))


def _vetoes(rows: pd.DataFrame) -> list[dict[str, Any]]:
    sums = rows.groupby(["group", "by_group", "by_cause"])["tokens"].sum()
    found = [
        {"group": int(group), "by_group": int(by), "by_cause": cause, "tokens": int(tokens)}
        for (group, by, cause), tokens in sums.items()
    ]
    return sorted(found, key=lambda v: (-v["tokens"], v["by_group"], -v["group"]))


def veto_sentences(summary: dict[str, Any], groups: Groups) -> list[str]:
    """Say for each vetoing group what another one had, and why it was not there.

    Of the groups that had something the one with the most tokens is named, full attention first.
    """
    return [
        _veto_sentence(summary, groups, by)
        for by in dict.fromkeys(veto["by_group"] for veto in summary["vetoes"])
    ]


def _veto_sentence(summary: dict[str, Any], groups: Groups, by: int) -> str:
    vetoes = [v for v in summary["vetoes"] if v["by_group"] == by]
    totals: dict[int, int] = {}
    for veto in vetoes:
        totals[veto["group"]] = totals.get(veto["group"], 0) + veto["tokens"]
    had = max(totals, key=lambda g: (totals[g], groups[g]["kind"] == "full_attention", -g))
    causes = [v for v in vetoes if v["group"] == had]
    parts = [f"{share_text(v['tokens'], totals[had])} {PAST[v['by_cause']]}" for v in causes]
    return (
        f"Of {summary['prompt_tokens']:,} prompt tokens, {totals[had]:,} were cached by "
        f"{group_text(groups, had)} but vetoed by {group_text(groups, by)}, "
        f"of which {', '.join(parts)}."
    )


def cause_rows(summary: dict[str, Any], groups: Groups) -> list[tuple[str, str, str, str]]:
    """Return rows for people: why, whose doing, tokens, share; the first one is what was found."""
    total = summary["prompt_tokens"]
    rows = [_row("found in the cache", "", summary["hit_tokens"], total)]
    for cause in summary["causes"]:
        who = "" if cause["group"] is None else group_text(groups, cause["group"])
        rows.append(_row(cause["cause"].replace("_", " "), who, cause["tokens"], total))
    return rows


def _row(why: str, who: str, tokens: int, total: int) -> tuple[str, str, str, str]:
    return why, who, f"{tokens:,}", share_text(tokens, total)

"""The tables of docs/groupings.md, and the figures beside this file.

python results/groupings/make.py            everything
python results/groupings/make.py --check    only say whether the document is up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sim.layout.comparison import Comparison, Row, all_names, compare, compare_specs
from sim.layout.comparison_report import comparison_json
from sim.layout.grouping import GROUPING_HEURISTICS, LengthDistribution
from sim.layout.kv_cache_spec import FullAttentionSpec, MemoryLimits, SlidingWindowSpec
from sim.layout.parameters import Parametrised
from sim.layout.plans import MEMORY_PLANS, PlanInput
from sim.layout.settings import LayoutSettings
from sim.models import AttentionLayer, load_model
from sim.models.speculation import with_speculation

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "groupings.md"
MARK = "<!-- made by results/groupings/make.py: {} -->\n"
END = "<!-- end -->\n"
SETTINGS = LayoutSettings(
    kv_cache_memory_bytes=80 * 2**30, max_num_batched_tokens=8192, max_model_len=131072
)
NAMES = [*all_names(), "optimal:bytes_per_group=0"]

# Shapes that no released file gives. DFlash-like drafts (vllm-project/vllm PR 51742: five sliding
# layers and one full): 4 heads of 128, which has the target's bytes per token (2 heads of 256) and
# still is another spec; the window of 2048 is an assumption.
SLIDING_DRAFT = AttentionLayer(name="draft", num_kv_heads=4, head_size=128, sliding_window=2048)
FULL_DRAFT = AttentionLayer(name="draft", num_kv_heads=4, head_size=128)


@dataclass(frozen=True)
class Case:
    """One model with its settings; ``note`` says what is not in its name."""

    title: str
    model: str
    note: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    sliding_drafts: int = 0

    def comparison(self) -> Comparison:
        """Return all rules and plans on it."""
        settings = replace(SETTINGS, **self.changes)
        model = load_model(self.model)
        if self.sliding_drafts:
            tokens, layers = settings.num_speculative_tokens, self.sliding_drafts
            model = with_speculation(model, "draft_model", tokens, layers, SLIDING_DRAFT)
        longest = max(model.max_model_len, settings.max_model_len or 0)
        return compare(replace(model, max_model_len=longest), settings, names=NAMES)


ONE_TOKEN = {"num_speculative_tokens": 1}
QWEN = "Qwen--Qwen3.5-35B-A3B"
CASES = (
    Case("Gemma-3-27b", "google--gemma-3-27b-it", "52 sliding, 10 full"),
    Case("MiMo-V2-Flash", "XiaomiMiMo--MiMo-V2-Flash", "39 sliding (8 heads), 9 full (4 heads)"),
    Case(
        "gpt-oss-120b + EAGLE",
        "openai--gpt-oss-120b",
        "18 sliding, 18 + 1 full",
        ONE_TOKEN | {"speculative_method": "eagle3"},
    ),
    Case(
        "Qwen3.5-35B + one MTP layer",
        QWEN,
        "30 recurrent, 10 + 1 full; one speculative token",
        ONE_TOKEN | {"speculative_method": "mtp"},
    ),
    Case(
        "Qwen3.5-35B + five draft layers",
        QWEN,
        "30 recurrent, 10 full, 5 sliding drafts; one speculative token",
        ONE_TOKEN
        | {
            "speculative_method": "draft_model",
            "num_speculative_layers": 5,
            "draft_layer": SLIDING_DRAFT,
        },
    ),
    Case(
        "Qwen3.5-35B + five sliding and one full draft layer",
        QWEN,
        "30 recurrent, 10 full, 5 sliding drafts, 1 full draft; one speculative token",
        ONE_TOKEN | {"speculative_method": "draft_model", "draft_layer": FULL_DRAFT},
        sliding_drafts=5,
    ),
    Case("Zamba2-7B", "Zyphra--Zamba2-7B", "81 recurrent, 13 full; beyond its own 4096 tokens"),
    Case(
        "Zamba2-7B at 4096 tokens",
        "Zyphra--Zamba2-7B",
        "81 recurrent, 13 full",
        {"max_model_len": 4096},
    ),
    Case("Jamba-v0.1", "ai21labs--Jamba-v0.1", "28 recurrent, 4 full"),
    Case("Nemotron-3-Nano", "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "23 recurrent, 6 full"),
)


def twenty_and_thirty() -> Comparison:
    """Return the rules on the text's own example: 20 full and 30 sliding layers of one page."""
    shape = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype_bytes": 2}
    full, sliding = FullAttentionSpec(**shape), SlidingWindowSpec(**shape, sliding_window=1024)
    specs = {f"F{i}": full for i in range(20)} | {f"S{i}": sliding for i in range(30)}
    length = SETTINGS.max_model_len or 0
    given = PlanInput(
        (specs,),
        SETTINGS,
        MemoryLimits(length, SETTINGS.max_num_batched_tokens),
        length,
        LengthDistribution.of([(length, 1)]),
    )
    return compare_specs("20 full + 30 sliding", given, NAMES)


def comparisons() -> list[tuple[str, str, Comparison]]:
    """Return title, note and comparison of every case, in the document's order."""
    made = [(case.title, case.note, case.comparison()) for case in CASES]
    note = "8 heads of 128, a window of 1024"
    return [*made, ("20 full + 30 sliding", note, twenty_and_thirty())]


def table(comparison: Comparison) -> Iterator[str]:
    """Yield the rows of one case: rules with the same figures share a row, most tokens first."""
    yield "| rules and plans | groups | padding slots | weighted idle | page padding | tokens |"
    yield "|---|--:|--:|--:|--:|--:|"
    names: dict[tuple[str, ...], list[str]] = {}
    rows = [row for row in comparison.rows if row.figures]
    for row in sorted(rows, key=lambda row: (-row.figures.tokens, row.figures.num_groups)):
        names.setdefault(_cells(row), []).append(f"`{row.name}`")
    for cells, same in names.items():
        yield f"| {', '.join(same)} | {' | '.join(cells)} |"
    for row in comparison.rows:
        if row.refusal:
            yield f"| `{row.name}` | refused: {_short(row.refusal)} | | | | |"


def _cells(row: Row) -> tuple[str, ...]:
    made = row.figures
    assert made is not None
    return (
        f"{made.num_groups}",
        f"{made.missing_layers}",
        f"{float(made.idle_share):.2%}",
        f"{float(made.page_padding_share):.2%}",
        f"{made.tokens:,}",
    )


def _short(text: str) -> str:
    first = text.partition(". ")[0]
    return first.replace("|", "/")


def case_tables(made: Sequence[tuple[str, str, Comparison]]) -> str:
    """Return one table for each case."""
    lines: list[str] = []
    for title, note, comparison in made:
        lines += ["", f"### {title}", "", f"{note}.", "", *table(comparison)]
    return "\n".join([*lines[1:], ""])


BY_LENGTH = (1024, 4096, 32768, 131072)
BY_LENGTH_NAMES = ("vllm", "gcd", "padding_cost", "overhead_bound", "optimal", "lcm_page")


def length_table() -> str:
    """Return the table of Gemma-3-27b with requests of several lengths."""
    model = load_model("google--gemma-3-27b-it")
    made = [
        compare(model, SETTINGS, names=BY_LENGTH_NAMES, lengths=LengthDistribution.of([(n, 1)]))
        for n in BY_LENGTH
    ]
    lines = [
        "| rule or plan | " + " | ".join(f"{n} tokens" for n in BY_LENGTH) + " |",
        "|---|" + "--:|" * len(BY_LENGTH),
    ]
    for name in BY_LENGTH_NAMES:
        figures = [comparison.row(name).figures for comparison in made]
        cells = [
            f"{f.num_groups} groups, {float(f.idle_share):.1%}, {f.requests}" if f else "refused"
            for f in figures
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def entry_table(table: Mapping[str, Parametrised]) -> str:
    """Return a table of rules or plans: what they do, their parameters, where they come from."""
    lines = ["| name | what | parameters and defaults | source |", "|---|---|---|---|"]
    for name, entry in table.items():
        parameters = "; ".join(
            f"`{parameter}` ({_default(p.default)}): {p.text}"
            for parameter, p in entry.parameters.items()
        )
        lines.append(f"| `{name}` | {entry.summary} | {parameters or 'none'} | {entry.source} |")
    return "\n".join([*lines, ""])


def _default(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)


def parts(made: Sequence[tuple[str, str, Comparison]]) -> dict[str, str]:
    """Return the generated parts of the document by name."""
    return {
        "rules": entry_table(GROUPING_HEURISTICS),
        "plans": entry_table(MEMORY_PLANS),
        "lengths": length_table(),
        "cases": case_tables(made),
    }


def with_parts(text: str, made: Mapping[str, str]) -> str:
    """Return the document with its generated parts replaced."""
    for name, part in made.items():
        head, mark, rest = text.partition(MARK.format(name))
        if not mark:
            raise ValueError(f"{DOCUMENT.name} has no place for {name}")
        text = head + mark + "\n" + part + "\n" + END + rest.partition(END)[2]
    return text


def write(made: Sequence[tuple[str, str, Comparison]]) -> None:
    """Write the tables into the document, and the data beside this file."""
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(with_parts(text, parts(made)), encoding="utf-8")
    data = comparison_json(comparison for _, _, comparison in made)
    for entry, (title, note, _) in zip(data["models"], made, strict=True):
        entry |= {"case": title, "note": note}
        entry["settings"] = {k: v for k, v in entry["settings"].items() if v is not None}
    (HERE / "groupings.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


FIGURES = (
    "plot padding google--gemma-3-1b-it google--gemma-3-4b-it google--gemma-3-12b-it "
    "google--gemma-3-27b-it --kv-cache-memory 80GiB --out results/groupings/gemma_3",
    "plot padding ai21labs--Jamba-v0.1 ibm-ai-platform--Bamba-9B-v1 Zyphra--Zamba2-7B "
    "MiniMaxAI--MiniMax-Text-01 --kv-cache-memory 640GiB --lengths 4096 "
    "--out results/groupings/recurrent",
    "plot pareto google--gemma-3-27b-it --kv-cache-memory 80GiB --out results/groupings/gemma_3",
    "plot pareto Zyphra--Zamba2-7B --kv-cache-memory 80GiB --out results/groupings/recurrent",
)


def draw() -> None:
    """Draw the figures with the commands that the document names."""
    from sim.cli import main

    for command in FIGURES:
        if main(command.split()) != 0:
            raise RuntimeError(command)


def is_current(made: Sequence[tuple[str, str, Comparison]]) -> bool:
    """Return whether the document has exactly the tables that would be made now."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return with_parts(text, parts(made)) == text


if __name__ == "__main__":
    tables = comparisons()
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if is_current(tables) else "docs/groupings.md is not up to date")
    write(tables)
    draw()

"""The index is complete, and what it names exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.spec.index import ALL, APPENDIX_C, APPENDIX_D, EXAMPLES

TESTS = Path(__file__).parents[1]
SPEC = TESTS.parent / ".." / "shared" / "spec" / "manager.md"
MARK = "[run]"


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text())
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


@pytest.mark.parametrize("key", ALL)
def test_every_example_names_tests_that_exist_or_says_why_there_is_none(key):
    entry = ALL[key]
    assert bool(entry.tests) is not bool(entry.absent)
    for test in entry.tests:
        path, name = test.split("::")
        assert name.startswith("test_")
        assert name in functions_in(path), test


def test_few_examples_have_no_counterpart():
    """How the reference stores an entry of its index."""
    assert [key for key, entry in ALL.items() if entry.absent] == ["1.3"]


def marks(text: str) -> Counter[str]:
    """Return how many examples each section has; rows of appendix A count by their defect."""
    found: Counter[str] = Counter()
    section = ""
    for line in text.splitlines():
        heading = re.match(r"#{2,3} (?:Appendix )?([0-9A-Z][0-9.]*)", line)
        if heading:
            section = heading[1].rstrip(".")
            continue
        row = re.match(r"\| (Q\d+) \|", line)
        found[f"A.{row[1]}" if section == "A" and row else section] += line.count(MARK)
    return +found


def test_every_example_of_the_specification_has_an_entry():
    if not SPEC.exists():
        pytest.skip("the specification is not beside the project")
    in_text = marks(SPEC.read_text())
    del in_text[""]  # the sentence that explains the mark
    indexed = Counter(re.sub(r"^(\d+\.\d+)\.\d+$", r"\1", key) for key in EXAMPLES)
    assert indexed == in_text


def test_every_item_of_appendices_c_and_d_has_an_entry():
    if not SPEC.exists():
        pytest.skip("the specification is not beside the project")
    text = SPEC.read_text()
    items = {
        letter: re.split(r"^## ", text.split(f"## Appendix {letter}.")[1], flags=re.MULTILINE)[0]
        for letter in "CD"
    }
    for letter, entries in (("C", APPENDIX_C), ("D", APPENDIX_D)):
        assert [f"{letter}.{number}" for number in numbers(items[letter])] == list(entries)


def numbers(text: str) -> list[int]:
    """Return 1, 2, ... as far as the items go; other numbers in the text do not continue it."""
    found: list[int] = []
    for match in re.finditer(r"(?:^| )(\d+)\. (?=[A-Z0-9*])", text, flags=re.MULTILINE):
        if int(match[1]) == len(found) + 1:
            found.append(len(found) + 1)
    return found

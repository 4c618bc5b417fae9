"""Parameters of a plug-in: keys, defaults and texts from the classes themselves."""

from typing import Annotated, ClassVar

import pytest
from pydantic import Field

import workloads
from sim.cli.listing import default_text
from sim.cli.parameters import parameters
from sim.config import Strict
from sim.latency import LATENCY_MODELS


class Base(Strict):
    """How often.

    rate : per second
        mean rate
    """

    DEFAULTS: ClassVar[dict[str, float]] = {"rate": 2.0}
    kind: str = "even"
    rate: float | None = None


class Section(Base):
    """Adds a meaning.

    kind
        ``even`` or ``odd``
    """


class Params(Strict):
    """Parameters.

    path : what is read; None never
    low, high : bounds

    Not part of ``high``.
    """

    path: str
    low: int = 1
    high: Annotated[int, Field(ge=1)] = 9
    when: Section = Section(kind="odd")


def test_keys_defaults_and_texts_of_a_class_and_its_section():
    assert [tuple(p) for p in parameters(Params)] == [
        ("path", "needed", "what is read; null never"),
        ("low", 1, "bounds"),
        ("high", 9, "bounds"),
        ("when", "", ""),
        ("when.kind", "odd", "even or odd"),
        ("when.rate", 2.0, "per second: mean rate"),
    ]


@pytest.mark.parametrize(
    "entry", [*LATENCY_MODELS.values(), *workloads.WORKLOADS.values()], ids=lambda e: e.name
)
def test_every_parameter_says_what_it_means(entry):
    assert [p.key for p in parameters(entry.params) if not p.text] == []


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.0"), (True, "true"), (0, "0"), (None, "null"), ("ms", "ms")]
)
def test_defaults_are_written_as_in_yaml(value, text):
    assert default_text(value) == text

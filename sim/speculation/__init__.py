"""Speculative decoding as seen from outside the model: how many drafts are accepted."""

from __future__ import annotations

from collections.abc import Callable

from sim.config import Speculative, validated
from sim.registry import Registry
from sim.request import Request
from sim.speculation.acceptance import num_sampled
from sim.speculation.acceptance_model import AcceptanceModel
from sim.speculation.geometric import GEOMETRIC
from sim.speculation.per_position import PER_POSITION

ACCEPTANCE_MODELS: Registry[AcceptanceModel] = Registry(
    "speculative.acceptance.name", {model.name: model for model in (GEOMETRIC, PER_POSITION)}
)


def build_num_sampled(speculative: Speculative, seed: int) -> Callable[[Request, int], int]:
    """Return the function that a scenario's model of acceptance is.

    Raises ConfigError for an unknown model, an unknown parameter, or a value out of range.
    """
    entry = ACCEPTANCE_MODELS[speculative.acceptance.name]
    params = validated(entry.params, speculative.acceptance.params, "speculative.acceptance.params")
    return num_sampled(entry.rates(params, speculative.num_speculative_tokens), seed)

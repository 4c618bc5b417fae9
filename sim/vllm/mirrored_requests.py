"""The requests of vLLM's scheduler beside ours, and the tokens that they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sim.contents import Contents
from sim.errors import ConfigError
from sim.request import Request
from sim.scheduler.output import SchedulerOutput
from sim.vllm.hash_names import HashNames
from sim.vllm.requests import EOS
from sim.vllm.twins import Twins

_PADDING = 0
"""A token behind the end of a request: sampled with the last one and thrown away."""


class MirroredRequests:
    """Adds requests to vLLM's scheduler with the tokens that ours stand for."""

    def __init__(
        self, raw: Any, contents: Contents, names: HashNames, hash_block_size: int, is_hashed: bool
    ):
        self._raw = raw
        self._contents = contents
        self._twins = Twins(contents, hash_block_size, is_hashed, names)
        self._added: list[Request] = []

    def add_later(self, request: Request) -> None:
        """Note a request: its content is told only after it was added."""
        if request.num_encoder_tokens:
            allowed = "none: vLLM's scheduler gives them only with a multimodal input"
            raise ConfigError.one("num_encoder_tokens", request.num_encoder_tokens, allowed)
        self._added.append(request)

    def flush(self) -> None:
        """Add what was noted."""
        for request in self._added:
            self._raw.add_request(self._twins.made(request))
        self._added.clear()

    def learn(self, output: SchedulerOutput) -> None:
        """Name the blocks that the outputs of a step filled."""
        for request, _, _ in output.scheduled:
            if self._twins.known(request) is not None:
                self._twins.learn(request)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop requests that have ended."""
        for request_id in request_ids:
            self._twins.forget(request_id)

    def sampled_in(
        self, output: SchedulerOutput
    ) -> Callable[[Request, Mapping[str, int]], list[int]]:
        """Return the function (request, tokens by request) -> the ids that a step samples.

        It is made before the outputs are applied: where each request stands counts.
        """
        twins = [(r.request_id, self._twins.known(r)) for r, _, _ in output.scheduled]
        ends = {request_id: twin.num_tokens for request_id, twin in twins if twin is not None}

        def sampled(request: Request, num_sampled: Mapping[str, int]) -> list[int]:
            request_id = request.request_id
            if request_id not in ends or request_id in output.chunk_req_ids:
                return []
            first = ends[request_id]
            return self._tokens(request, first, first + num_sampled.get(request_id, 1))

        return sampled

    def _tokens(self, request: Request, first: int, last: int) -> list[int]:
        known = self._contents.num_tokens(request.request_id)
        tokens = self._contents.tokens(request.request_id, min(first, known), min(last, known))
        tokens += [_PADDING] * (last - first - len(tokens))
        if request.stop_after is not None:
            place = request.num_prompt_tokens + request.stop_after - 1 - first
            if 0 <= place < len(tokens):
                tokens[place] = EOS
        return tokens

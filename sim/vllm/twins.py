"""vLLM's record beside each of our requests, kept in step."""

from __future__ import annotations

from typing import Any

from sim.contents import Contents
from sim.request import Request
from sim.vllm.hash_names import HashNames
from sim.vllm.names import manager_names
from sim.vllm.requests import block_hasher, to_vllm_request


class Twins:
    """Makes vLLM's requests, and learns the hashes of their blocks.

    A twin has the tokens that our request stands for, so vLLM hashes real blocks.
    """

    def __init__(
        self,
        contents: Contents,
        hash_block_size: int,
        is_hashed: bool,
        names: HashNames | None = None,
    ):
        self.contents = contents
        self.names = names or HashNames()
        self._hasher = block_hasher(hash_block_size) if is_hashed else None
        self._status = manager_names().RequestStatus
        self._twins: dict[str, tuple[Request, Any]] = {}
        self._num_named: dict[str, int] = {}

    def of(self, request: Request) -> Any:
        """Return the twin, made if need be, with our request's tokens, progress and status."""
        twin = self.known(request) or self.made(request)
        twin.num_computed_tokens = request.num_computed_tokens
        twin.num_preemptions = request.num_preemptions
        twin.status = self._status[request.status.name]
        if twin.num_tokens < request.num_tokens:
            new = self.contents.tokens(request.request_id, twin.num_tokens, request.num_tokens)
            twin.append_output_token_ids(new)
        self.learn(request)
        return twin

    def known(self, request: Request) -> Any:
        """Return the twin as it is; None if there is none, or another request has the id now."""
        ours, twin = self._twins.get(request.request_id, (None, None))
        return twin if ours is request else None

    def made(self, request: Request) -> Any:
        """Return a new twin, with the prompt."""
        request_id = request.request_id
        prompt = self.contents.tokens(request_id, 0, request.num_prompt_tokens)
        salt = self.contents.cache_salt(request_id)
        twin = to_vllm_request(request, prompt, self._hasher, cache_salt=salt)
        self._twins[request_id], self._num_named[request_id] = (request, twin), 0
        self.learn(request)
        return twin

    def learn(self, request: Request) -> None:
        """Name the blocks that were hashed since the last call."""
        request_id = request.request_id
        hashes, known = self._twins[request_id][1].block_hashes, self._num_named[request_id]
        if known < len(hashes):
            self._num_named[request_id] = self.names.learn(hashes, request.prefix_ids, known)

    def forget(self, request_id: str) -> None:
        """Drop a request that has ended."""
        self._twins.pop(request_id, None)
        self._num_named.pop(request_id, None)
        self.contents.forget(request_id)

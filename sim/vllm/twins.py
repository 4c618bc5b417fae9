"""vLLM's record beside each of our requests, kept in step."""

from __future__ import annotations

from typing import Any

from sim.contents import Contents
from sim.request import Request
from sim.vllm.hash_names import HashNames
from sim.vllm.names import manager_names
from sim.vllm.requests import block_hasher, to_vllm_request


class Twins:
    """Makes vLLM's requests when they are first asked for, and brings them up to date.

    A twin has the tokens that our request stands for, so vLLM hashes real blocks.
    """

    def __init__(self, contents: Contents, hash_block_size: int, is_hashed: bool):
        self.contents = contents
        self.names = HashNames()
        self._hasher = block_hasher(hash_block_size) if is_hashed else None
        self._status = manager_names().RequestStatus
        self._twins: dict[str, tuple[Request, Any]] = {}
        self._num_named: dict[str, int] = {}

    def of(self, request: Request) -> Any:
        """Return the twin, with our request's tokens, progress and status."""
        known = self.knows(request)
        twin = self._twins[request.request_id][1] if known else self._make(request)
        twin.num_computed_tokens = request.num_computed_tokens
        twin.num_preemptions = request.num_preemptions
        twin.status = self._status[request.status.name]
        if twin.num_tokens < request.num_tokens:
            new = self.contents.tokens(request.request_id, twin.num_tokens, request.num_tokens)
            twin.append_output_token_ids(new)
        self._learn(request, twin)
        return twin

    def knows(self, request: Request) -> bool:
        """Return whether the request was asked for before."""
        found = self._twins.get(request.request_id)
        return found is not None and found[0] is request

    def _make(self, request: Request) -> Any:
        request_id = request.request_id
        prompt = self.contents.tokens(request_id, 0, request.num_prompt_tokens)
        salt = self.contents.cache_salt(request_id)
        twin = to_vllm_request(request, prompt, self._hasher, cache_salt=salt)
        self._twins[request_id] = (request, twin)
        self._num_named[request_id] = 0
        return twin

    def _learn(self, request: Request, twin: Any) -> None:
        request_id, hashes = request.request_id, twin.block_hashes
        known = self._num_named[request_id]
        if known < len(hashes):
            self._num_named[request_id] = self.names.learn(hashes, request.prefix_ids, known)

    def drop(self, request: Request) -> None:
        """Forget a request that has ended."""
        if self.knows(request):
            del self._twins[request.request_id], self._num_named[request.request_id]
        self.contents.forget(request.request_id)

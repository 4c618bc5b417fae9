"""What the requests of a run consist of, for those who need their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sim.core.request_content import RequestContent
from sim.request import RequestSpec
from sim.token_ids import token_ids

NamePrefixes = Callable[[RequestSpec], Sequence[int]]


class Contents:
    """The specs of requests that have not ended, and the names of their prefixes, by id."""

    def __init__(self) -> None:
        self._specs: dict[str, RequestSpec] = {}
        self._prefix_ids: dict[str, Sequence[int]] = {}

    def noting(self, name_prefixes: NamePrefixes) -> NamePrefixes:
        """Return the function that names prefixes and notes what it is asked about."""

        def name_and_note(spec: RequestSpec) -> Sequence[int]:
            prefix_ids = name_prefixes(spec)
            self.note(spec, prefix_ids)
            return prefix_ids

        return name_and_note

    def note(self, spec: RequestSpec, prefix_ids: Sequence[int] = ()) -> None:
        """Take a request; another one of this id must have ended."""
        self._specs[spec.request_id] = spec
        self._prefix_ids[spec.request_id] = prefix_ids

    def forget(self, request_id: str) -> None:
        """Drop a request that has ended."""
        self._specs.pop(request_id, None)
        self._prefix_ids.pop(request_id, None)

    def cache_salt(self, request_id: str) -> str | None:
        """Return the salt of a request."""
        return self._specs[request_id].cache_salt

    def num_tokens(self, request_id: str) -> int:
        """Return how many tokens prompt and output have together."""
        spec = self._specs[request_id]
        return spec.num_prompt_tokens + spec.num_output_tokens

    def request_content(self, request_id: str) -> RequestContent:
        """Return the content as those who write events want it."""
        spec = self._specs[request_id]
        tokens = partial(token_ids, (*spec.prompt, spec.output))
        prefix_ids = self._prefix_ids[request_id]
        return RequestContent(tokens, prefix_ids, spec.lora_name, spec.cache_salt)

    def tokens(self, request_id: str, first: int, last: int) -> list[int]:
        """Return the ids of tokens [first, last) of prompt and output together."""
        spec = self._specs[request_id]
        return token_ids((*spec.prompt, spec.output), first, last)

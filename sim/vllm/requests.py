"""From our requests to vLLM's: the same name, the same limits, real tokens."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sim.request import Request
from sim.vllm.names import manager_names

EOS = -1
"""A token id that no content has, so it is sampled only on purpose."""


def block_hasher(hash_block_size: int, seed: str = "0") -> Callable[[Any], list[bytes]]:
    """Return vLLM's hasher of blocks, with SHA-256 of canonical CBOR.

    The first parent is the digest of ``seed``, which vLLM takes from PYTHONHASHSEED; it is one for
    the process.
    """
    names = manager_names()
    with environment("PYTHONHASHSEED", seed):
        names.init_none_hash(names.sha256_cbor)
    return names.get_request_block_hasher(hash_block_size, names.sha256_cbor)


@contextmanager
def environment(name: str, value: str | None) -> Iterator[None]:
    """Set a variable of the environment, or take it away, for a while."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def to_vllm_request(
    request: Request,
    token_ids: Sequence[int],
    hasher: Callable[[Any], list[bytes]] | None = None,
    *,
    cache_salt: str | None = None,
) -> Any:
    """Return vLLM's request of the same id, prompt, limit, priority, adapter and arrival.

    token_ids : the prompt's, or more; the rest is cut off
    hasher : as ``block_hasher`` makes it; None without prefix caching

    Arrival is in nanoseconds, as ours: vLLM only compares it. A request whose output ends before
    ``max_tokens`` stops at the token ``EOS``.
    """
    names = manager_names()
    theirs = names.Request(
        request_id=request.request_id,
        prompt_token_ids=list(token_ids[: request.num_prompt_tokens]),
        sampling_params=_sampling_params(request.max_tokens, request.stop_after is not None),
        pooling_params=None,
        arrival_time=request.arrival_ns,
        lora_request=_adapter(request.lora_name) if request.lora_name else None,
        cache_salt=cache_salt,
        priority=request.priority,
        block_hasher=hasher,
    )
    theirs.skip_reading_prefix_cache = request.skip_reading_prefix_cache
    return theirs


@lru_cache(maxsize=4096)
def _sampling_params(max_tokens: int, stops_at_eos: bool) -> Any:
    params = manager_names().SamplingParams(max_tokens=max_tokens, ignore_eos=not stops_at_eos)
    params.update_from_generation_config({}, EOS)
    return params


_ADAPTERS: dict[str, int] = {}


@lru_cache(maxsize=4096)
def _adapter(name: str) -> Any:
    number = _ADAPTERS.setdefault(name, 1 + len(_ADAPTERS))
    return manager_names().LoRARequest(name, number, "/none")

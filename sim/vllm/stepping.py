"""One step of vLLM's scheduler with an answer that nobody computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.vllm.names import scheduler_names


def apply_output(scheduler: Any, output: Any, sampled: Mapping[str, Sequence[int]]) -> Any:
    """Hand vLLM's scheduler the tokens that a step sampled; return its ``EngineCoreOutputs``.

    sampled : ids of tokens by request; a request that is missing sampled nothing.
    """
    req_ids = list(output.num_scheduled_tokens)
    result = scheduler_names().ModelRunnerOutput(
        req_ids=req_ids,
        req_id_to_index={request_id: place for place, request_id in enumerate(req_ids)},
        sampled_token_ids=[list(sampled.get(request_id, ())) for request_id in req_ids],
    )
    return scheduler.update_from_output(output, result)


def set_drafts(scheduler: Any, num_drafts: Mapping[str, int], token_id: int = 0) -> None:
    """Tell vLLM's scheduler how many drafts each request has for its next step."""
    drafts = scheduler_names().DraftTokenIds(
        req_ids=list(num_drafts), draft_token_ids=[[token_id] * n for n in num_drafts.values()]
    )
    scheduler.update_draft_token_ids(drafts)


def ended_requests(outputs: Mapping[int, Any]) -> dict[str, str]:
    """Return why requests ended in this step, by id, in order."""
    return {
        output.request_id: str(output.finish_reason)
        for of_client in outputs.values()
        for output in of_client.outputs
        if output.finish_reason is not None
    }

"""The names and the types of the columns of the result tables."""

from __future__ import annotations

PARTS = (
    "remainder",
    "null_block",
    "free",
    "layer_padding",
    "page_padding",
    "reusable",
    "lookahead",
    "out_of_window",
    "tail",
    "live",
)
"""The parts of the KV memory, in the order in which a byte's part is decided."""

OUTCOMES = ("finished", "aborted", "rejected", "stuck")
"""How a request can end; ``stuck`` ones were left when nothing could go on."""

# A type with a capital letter (or "string") holds <NA> where the moment or the text never came.
REQUEST_COLUMNS = {
    "request_id": "string",
    "session_id": "string",
    "tags": "string",
    "arrival_ns": "int64",
    "first_scheduled_ns": "Int64",
    "first_token_ns": "Int64",
    "finish_ns": "Int64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "cached_tokens": "Int64",
    "preemptions": "int64",
    "outcome": "string",
    "reason": "string",
}
STEP_COLUMNS = (
    "step",
    "start_ns",
    "end_ns",
    "prefill_tokens",
    "decode_tokens",
    "num_running",
    "num_waiting",
    "preemptions",
    "free_blocks",
    "cached_free_blocks",
)
LOOKUP_COLUMNS = {
    "lookup": "int64",
    "request_id": "string",
    "step": "int64",
    "time_ns": "int64",
    "attempts": "int64",
    "admitted": "int64",
    "preemptions": "int64",
    "tokens": "int64",
    "hit_tokens": "int64",
    "blocks_taken": "int64",
    "cuts": "string",
}
REASON_COLUMNS = {
    "lookup": "int64",
    "group": "int64",
    "cause": "string",
    "first_token": "int64",
    "end_token": "int64",
    "tokens": "int64",
    "decides": "int64",
    "blocks": "int64",
    "by_group": "Int64",
    "by_cause": "string",
    "event_request": "string",
    "event_groups": "string",
    "event_ns": "Int64",
    "event_step": "Int64",
    "stored_by": "string",
    "stored_ns": "Int64",
    "stored_step": "Int64",
    "blocks_taken_since": "Int64",
}
ALONE_PREFIX = "alone_g"
WASTE_COLUMNS = ("step", "time_ns", *PARTS)
HELD_PREFIX = "held_blocks_g"


def step_columns(num_groups: int) -> tuple[str, ...]:
    """Return the columns of the step table: one of held blocks for each group at the end."""
    return (*STEP_COLUMNS, *(f"{HELD_PREFIX}{g}" for g in range(num_groups)))


def alone_columns(num_groups: int) -> tuple[str, ...]:
    """Return the last columns of the lookup table: what each group could have used alone."""
    return tuple(f"{ALONE_PREFIX}{g}" for g in range(num_groups))

"""Small tables written by hand, and larger ones that look like a run."""

import numpy as np

from sim.metrics.run_tables import RunTables
from sim.tables import (
    PARTS,
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    WASTE_COLUMNS,
    integer_frame,
    request_frame,
    step_columns,
)

MS = 1_000_000
REQUEST = {
    "request_id": "r",
    "session_id": None,
    "tags": None,
    "arrival_ns": 0,
    "first_scheduled_ns": 0,
    "first_token_ns": 1,
    "finish_ns": 2,
    "prompt_tokens": 10,
    "output_tokens": 1,
    "cached_tokens": 0,
    "preemptions": 0,
    "outcome": "finished",
    "reason": None,
}


def make_requests(*rows):
    return request_frame(
        [tuple({**REQUEST, **row}[name] for name in REQUEST_COLUMNS) for row in rows]
    )


def make_steps(*rows, num_groups=1):
    names = step_columns(num_groups)
    base = dict.fromkeys(names, 0)
    filled = [{**base, "step": i, **row} for i, row in enumerate(rows)]
    return integer_frame([tuple(row[name] for name in names) for row in filled], names)


def make_waste(*rows):
    base = dict.fromkeys(WASTE_COLUMNS, 0)
    filled = [{**base, "step": i, **row} for i, row in enumerate(rows)]
    return integer_frame([tuple(row[n] for n in WASTE_COLUMNS) for row in filled], WASTE_COLUMNS)


def make_tables(requests=(), steps=(), waste=(), *, num_groups=1, **counters):
    settings = {"num_blocks": 11, "kv_memory_bytes": 1000, **counters}
    return RunTables.of_frames(
        make_requests(*requests),
        make_steps(*steps, num_groups=num_groups),
        make_waste(*waste),
        **settings,
    )


def run_like_tables(num_requests=400, num_steps=300):
    """Tables with the shape of a loaded run: ramps, waves and long tails; nothing adds up in them
    but the parts of the memory."""
    rng = np.random.default_rng(7)
    arrival = np.cumsum(rng.exponential(0.2, num_requests) * 1e9).astype(int)
    wait = (rng.lognormal(-1, 1, num_requests) * 1e9).astype(int)
    prompt = rng.integers(200, 20_000, num_requests)
    share = np.clip(np.linspace(0, 0.9, num_requests) + rng.normal(0, 0.2, num_requests), 0, 1)
    output = rng.integers(2, 400, num_requests)
    tpot = (rng.lognormal(-3.6, 0.3, num_requests) * 1e9).astype(int)
    requests = [
        {
            "request_id": f"s{i}.0",
            "arrival_ns": int(arrival[i]),
            "first_scheduled_ns": int(arrival[i] + wait[i] // 2),
            "first_token_ns": int(arrival[i] + wait[i]),
            "finish_ns": int(arrival[i] + wait[i] + tpot[i] * (output[i] - 1)),
            "prompt_tokens": int(prompt[i]),
            "output_tokens": int(output[i]),
            "cached_tokens": int(prompt[i] * share[i]),
        }
        for i in range(num_requests)
    ]
    times = np.linspace(0, arrival[-1], num_steps).astype(int)
    fill = np.minimum(1, np.linspace(0.1, 1.6, num_steps)) * (
        0.85 + 0.15 * np.sin(np.linspace(0, 30, num_steps))
    )
    memory = 60 * 2**30
    shares = {"live": 0.4, "reusable": 0.33, "out_of_window": 0.11, "tail": 0.04}
    shares |= {"layer_padding": 0.07, "page_padding": 0.03, "lookahead": 0.0}
    waste = []
    for i in range(num_steps):
        row = {name: int(memory * fill[i] * part) for name, part in shares.items()}
        row |= {"null_block": 1_310_720, "remainder": 500_000}
        row["free"] = memory - sum(row.values())
        waste.append({**row, "time_ns": int(times[i])})
        assert sum(row[part] for part in PARTS) == memory
    steps = [
        {"start_ns": int(t), "end_ns": int(t) + 30 * MS, "free_blocks": int(1000 * (1 - f))}
        for t, f in zip(times, fill, strict=True)
    ]
    assert set(steps[0]) < set(STEP_COLUMNS)
    return make_tables(
        requests,
        steps,
        waste,
        num_blocks=1001,
        kv_memory_bytes=memory,
        spec_decode_num_drafts=100,
        spec_decode_num_draft_tokens=300,
        spec_decode_num_accepted_tokens=150,
    )

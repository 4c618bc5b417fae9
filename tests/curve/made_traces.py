"""Small traces: conversations that grow and branch, in Mooncake's form."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def made_rows(seed: int = 0, num_requests: int = 120, block_size: int = 32) -> list[Row]:
    """Prompts that share a system prompt, grow from one another, repeat, or end inside a block."""
    rng = random.Random(seed)
    fresh = iter(range(10**9))
    system = [next(fresh) for _ in range(3)]
    chats: list[list[int]] = []
    rows: list[Row] = []
    for number in range(num_requests):
        if chats and rng.random() < 0.7:
            chat = rng.choice(chats[-12:])
            chat = chat[: rng.randint(1, len(chat))] if rng.random() < 0.3 else chat
        else:
            chat = list(system) if rng.random() < 0.8 else []
        if not chat or rng.random() < 0.9:
            chat = [*chat, *(next(fresh) for _ in range(rng.randint(1, 6)))]
        chats.append(chat)
        ids, length = list(chat), len(chat) * block_size
        if rng.random() < 0.6:  # a last block that is not full
            length += rng.randint(1, block_size - 1) - (block_size if rng.random() < 0.5 else 0)
            if length > len(ids) * block_size:
                ids.append(next(fresh))
        rows.append(
            {
                "timestamp": number * 10,
                "input_length": length,
                "output_length": rng.randint(1, 3 * block_size),
                "hash_ids": ids,
            }
        )
    return rows


def write_trace(rows: list[Row], path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path

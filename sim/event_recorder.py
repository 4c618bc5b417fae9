"""KV events of a run: who asks for them, what they cost, where they go."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from sim.contents import Contents
from sim.core.block_hashes import BLOCK_HASHES
from sim.core.kv_events import KVEventBatch, KVEventLog
from sim.event_files import EVENT_FORMATS
from sim.layout.kv_cache_config import KVCacheConfig

DATA_PARALLEL_RANK = 0
"""Of a single engine; in vLLM the publisher fills it in."""


class EventRecorder:
    """Takes the events of each step out of a log and keeps them, encoded, in a temporary file.

    ``step_starts`` tells it each step's time: what happens until the next belongs to this one.
    Steps without events leave no batch. The file has no name and dies with the process.
    ``contents`` must be told of each request before its blocks are registered.

    hashes : a name of ``BLOCK_HASHES``; seed is what the first parent's digest is made of.
    """

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        hash_block_size: int,
        file_format: str,
        hashes: str = "prefix_id",
        seed: str = "0",
        context_parallel_size: int = 1,
    ):
        self.file_name = f"kv_events.{file_format}"
        self._encode = EVENT_FORMATS[file_format].encode
        self.contents = Contents()
        self.log = KVEventLog(
            kv_cache_config,
            hash_block_size,
            self.contents.request_content,
            BLOCK_HASHES[hashes](hash_block_size, seed),
            context_parallel_size,
        )
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._now_ns = 0

    # -- events --------------------------------------------------------------------------------
    def step_starts(self, now_ns: int) -> None:
        """Write down the events of the step before."""
        self.flush()
        self._now_ns = now_ns

    def flush(self) -> None:
        """Write down what has happened by now."""
        events = self.log.take_events()
        if events:
            batch = KVEventBatch(self._now_ns / 1e9, events, DATA_PARALLEL_RANK)  # type: ignore[arg-type]
            self._file.write(self._encode(batch))

    def save(self, path: Path) -> None:
        """Copy everything into a file."""
        self.flush()
        self._file.seek(0)
        with path.open("wb") as target:
            shutil.copyfileobj(self._file, target)

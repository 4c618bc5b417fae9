"""Files of KV events: batch after batch, in one of two formats, read back lazily."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

import msgspec

from sim.core.kv_events import KVEventBatch
from sim.errors import ConfigError
from sim.registry import Registry

_LENGTH_BYTES = 4


class EventFormat(Protocol):
    """How batches lie in a file, one behind the other."""

    def encode(self, batch: KVEventBatch) -> bytes:
        """Return the bytes of one batch."""

    def decode(self, file: IO[bytes]) -> Iterator[KVEventBatch]:
        """Yield the batches; raise msgspec.DecodeError or EOFError if the file is torn."""


class JsonLines:
    """One batch per line: the JSON array ``[ts, events, data_parallel_rank]``."""

    def encode(self, batch: KVEventBatch) -> bytes:
        """Return a line."""
        return msgspec.json.encode(batch) + b"\n"

    def decode(self, file: IO[bytes]) -> Iterator[KVEventBatch]:
        """Yield a batch per line."""
        decoder = msgspec.json.Decoder(KVEventBatch)
        return (decoder.decode(line) for line in file)


class MsgpackFrames:
    """Per batch 4 bytes, its length (big-endian), then the payload that vLLM would publish."""

    def encode(self, batch: KVEventBatch) -> bytes:
        """Return a frame."""
        payload = msgspec.msgpack.encode(batch)
        return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload

    def decode(self, file: IO[bytes]) -> Iterator[KVEventBatch]:
        """Yield a batch per frame."""
        decoder = msgspec.msgpack.Decoder(KVEventBatch)
        while head := file.read(_LENGTH_BYTES):
            length = int.from_bytes(head, "big")
            payload = file.read(length)
            if len(head) < _LENGTH_BYTES or len(payload) < length:
                raise EOFError("the last batch is incomplete")
            yield decoder.decode(payload)


EVENT_FORMATS: Registry[EventFormat] = Registry(
    "engine.kv_events", {"jsonl": JsonLines(), "msgpack": MsgpackFrames()}
)


def read_kv_events(path: Path | str) -> Iterator[KVEventBatch]:
    """Yield the batches of ``kv_events.jsonl`` or ``kv_events.msgpack``, in order.

    Raises ConfigError if the file is missing, of no known format, or torn.
    """
    path = Path(path)
    form = EVENT_FORMATS[path.suffix.removeprefix(".")]
    try:
        with path.open("rb") as file:
            yield from form.decode(file)
    except (OSError, EOFError, msgspec.MsgspecError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError.one("kv_events", str(path), f"a file of KV events ({reason})") from None

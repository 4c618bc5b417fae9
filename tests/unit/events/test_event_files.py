"""Event files: what they hold, what torn ones give, and that vLLM's own types read them."""

from __future__ import annotations

import json
import random
from collections import Counter

import msgspec
import pytest

from sim.core.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, replay
from sim.errors import ConfigError
from sim.event_files import EVENT_FORMATS, read_kv_events

FORMATS = list(EVENT_FORMATS)


def random_batches(seed: int, count: int = 20) -> list[KVEventBatch]:
    """Events with every field set and every field missing, over the whole range of integers."""
    rng = random.Random(seed)

    def event():
        kind = rng.randrange(6)
        if kind == 0:
            return AllBlocksCleared()
        hashes = [rng.randrange(2**64) for _ in range(rng.randrange(3))]
        if kind == 1:
            return BlockRemoved(block_hashes=hashes, medium="GPU", group_idx=rng.randrange(3))
        return BlockStored(
            block_hashes=hashes,
            parent_block_hash=rng.choice([None, 2**64 - 1]),
            token_ids=[rng.randrange(2**31) for _ in range(rng.randrange(9))],
            block_size=4,
            lora_id=None,
            medium="GPU",
            lora_name=rng.choice([None, "adapter"]),
            extra_keys=rng.choice([None, [None, ("adapter", "salt")]]),
            group_idx=rng.choice([None, 1]),
            kv_cache_spec_kind="sliding_window",
            kv_cache_spec_sliding_window=rng.choice([None, 512]),
        )

    return [
        KVEventBatch(rng.random(), [event() for _ in range(rng.randrange(1, 5))], 0)
        for _ in range(count)
    ]


def written(folder, name: str, batches):
    path = folder / f"kv_events.{name}"
    path.write_bytes(b"".join(map(EVENT_FORMATS[name].encode, batches)))
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_back(name, tmp_path):
    batches = random_batches(1)
    assert list(read_kv_events(written(tmp_path, name, batches))) == batches


def test_a_line_of_json_is_as_the_specification_says(tmp_path):
    """The batch is an array, an event a map with its type's name; defaults are left out."""
    stored = BlockStored(
        block_hashes=[7], parent_block_hash=None, token_ids=[1, 2], block_size=2, lora_id=None,
        medium="GPU", lora_name=None, group_idx=0,
    )  # fmt: skip
    removed = BlockRemoved(block_hashes=[7], medium="GPU", group_idx=0)
    batch = KVEventBatch(0.5, [stored, removed, AllBlocksCleared()], 0)
    path = written(tmp_path, "jsonl", [batch])
    assert json.loads(path.read_text()) == [
        0.5,
        [
            {
                "type": "BlockStored", "block_hashes": [7], "parent_block_hash": None,
                "token_ids": [1, 2], "block_size": 2, "lora_id": None, "medium": "GPU",
                "lora_name": None, "group_idx": 0,
            },
            {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU", "group_idx": 0},
            {"type": "AllBlocksCleared"},
        ],
        0,
    ]  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_torn_file_is_refused_wherever_it_is_cut(name, tmp_path):
    """A cut between two batches cannot be seen; any other is."""
    path = written(tmp_path, name, random_batches(2, count=2))
    whole = path.read_bytes()
    ends = {0, len(EVENT_FORMATS[name].encode(random_batches(2, count=2)[0])), len(whole)}
    newlines = {end - 1 for end in ends} if name == "jsonl" else set()
    for cut in sorted(set(range(len(whole))) - ends - newlines):
        path.write_bytes(whole[:cut])
        with pytest.raises(ConfigError, match=r"a file of KV events \("):
            list(read_kv_events(path))


@pytest.mark.parametrize("name", ["kv_events.parquet", "kv_events"])
def test_an_unknown_format_is_refused(name, tmp_path):
    with pytest.raises(ConfigError, match="known: jsonl, msgpack"):
        next(read_kv_events(tmp_path / name))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        next(read_kv_events(tmp_path / "kv_events.jsonl"))


def test_replay_counts_duplicates():
    def stored(*hashes):
        return BlockStored(
            block_hashes=list(hashes), parent_block_hash=None, token_ids=[], block_size=1,
            lora_id=None, medium="GPU", lora_name=None, group_idx=0,
        )  # fmt: skip

    removed = BlockRemoved(block_hashes=[7], medium="GPU", group_idx=0)
    index: Counter = Counter()
    replay([stored(7, 8), stored(7), removed], index)
    assert index == {(0, 7): 1, (0, 8): 1}
    replay([removed], index)
    assert dict(index) == {(0, 8): 1}
    replay([AllBlocksCleared()], index)
    assert not index


def test_types_of_vllm_read_our_payloads_and_write_the_same_bytes():
    theirs = pytest.importorskip("vllm.distributed.kv_events", reason="vLLM is not installed")
    for batch in random_batches(3, count=200):
        payload = EVENT_FORMATS["msgpack"].encode(batch)[4:]
        decoded = msgspec.msgpack.decode(payload, type=theirs.KVEventBatch)
        assert decoded.ts == batch.ts and decoded.data_parallel_rank == 0
        for mine, other in zip(batch.events, decoded.events, strict=True):
            assert type(other).__name__ == type(mine).__name__
            assert type(other).__module__.startswith("vllm.")
            for field in type(other).__struct_fields__:
                assert getattr(other, field) == getattr(mine, field), field
        assert msgspec.msgpack.encode(decoded) == payload

"""Layers of the model files against the full spec fields of the golden cases."""

import json
from pathlib import Path

import pytest

from sim.models import AttentionLayer, load_model, shard, split_pipeline, with_speculation
from sim.models.layers import CompressorStateLayer, StateTensor

DATA = Path(__file__).parents[2] / "data" / "golden_layout_specs.json"
CASES = [case for case in json.loads(DATA.read_text())["cases"] if case["model_file"]]
BYTES = {None: 2, "float32": 4}
CLASSES = {
    "full": "FullAttentionSpec",
    "sliding": "SlidingWindowSpec",
    "chunked": "ChunkedLocalAttentionSpec",
    "cross": "CrossAttentionSpec",
    "mla": "MLAAttentionSpec",
    "indexer": "MLAAttentionSpec",
    "compressed_mla_4": "MLAAttentionSpec",
    "compressed_mla_128": "MLAAttentionSpec",
    "indexer_4": "MLAAttentionSpec",
    "sliding_mla": "SlidingWindowMLASpec",
    "compressor_state_4": "SlidingWindowMLASpec",
    "compressor_state_128": "SlidingWindowMLASpec",
    "indexer_compressor_state": "SlidingWindowMLASpec",
}
SAME_FIELDS = ("head_size", "sliding_window", "attention_chunk_size", "num_kv_heads")


def model_of(case):
    settings = case["settings"]
    model = load_model(case["model_file"].removesuffix(".json"))
    tokens = settings["num_speculative_tokens"]
    if settings["mtp_layers"]:
        model = with_speculation(model, "mtp", tokens, settings["mtp_layers"])
    for shape in settings["draft_layers"]:
        draft = AttentionLayer(name="", **shape)
        model = with_speculation(model, "eagle", tokens, 1, draft)
    return shard(model, settings["tp"])


def golden_layers(case):
    return [(name, case["specs"][key]) for worker in case["workers"] for name, key in worker]


def state_tensors(model, layer):
    by_role = {"conv": 2, "ssm": BYTES[model.mamba_ssm_cache_dtype]}
    sizes = [tensor.dtype_bytes or by_role[tensor.role] for tensor in layer.tensors]
    return [list(tensor.shape) for tensor in layer.tensors], sizes


def check_attention(layer, spec):
    assert CLASSES[layer.kind] == spec["kind"]
    for name in SAME_FIELDS:
        if hasattr(layer, name):
            assert getattr(layer, name) == spec.get(name), name
    assert layer.indexes_kv_by_block_stride == spec["stride_indexed"]
    compressed = not isinstance(layer, CompressorStateLayer)  # states are kept for each token
    ratio = getattr(layer, "compress_ratio", 1) if compressed else 1
    assert ratio == spec.get("compress_ratio", 1)
    if "head_size_v" in spec:
        assert (layer.head_size_v or layer.head_size) == spec["head_size_v"]


@pytest.mark.parametrize("case", CASES, ids=[case["key"] for case in CASES])
def test_layers_give_the_golden_spec_fields(case):
    model = model_of(case)
    golden = golden_layers(case)
    assert [layer.name for layer in model.layers] == [name for name, _ in golden]
    for layer, (_, spec) in zip(model.layers, golden, strict=True):
        if spec["kind"] == "MambaSpec":
            assert layer.kind == spec["flavour"]
            assert state_tensors(model, layer) == (spec["shapes"], spec["dtype_bytes"])
        else:
            check_attention(layer, spec)


@pytest.mark.parametrize("case", CASES, ids=[case["key"] for case in CASES])
def test_stages_hold_the_golden_layers(case):
    stages = split_pipeline(model_of(case), split_at=case["settings"]["pp_split_at"])
    assert [list(stage) for stage in stages] == [
        [name for name, _ in worker] for worker in case["workers"]
    ]


def test_compressor_states_have_the_golden_block_sizes():
    case = next(case for case in CASES if "V4" in case["key"])
    layers = {layer.name: layer for layer in model_of(case).layers}
    states = [(name, spec) for name, spec in golden_layers(case) if "comp" in name]
    assert len(states) == 21 + 21 + 20
    for name, spec in states:
        assert layers[name].block_size == spec["block_size"]
        assert layers[name].dtype_bytes == spec["dtype_bytes"]


def test_a_tensor_of_its_own_dtype_ignores_the_settings():
    tensor = StateTensor("ssm", (3, 5), dtype_bytes=4)
    assert tensor.num_bytes({"ssm": 2}) == 60

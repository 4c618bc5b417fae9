"""Layers of one tensor-parallel rank, against the table of the specification and by hand."""

import pytest

from sim.errors import ConfigError
from sim.models import RecurrentLayer, load_model, shard, with_speculation
from sim.models.layers import StateTensor
from sim.models.sharding import shard_layer

BF16 = {"conv": 2, "ssm": 2}


def state_of(stem, ranks=1):
    layer = shard(load_model(stem), ranks).first_recurrent_layer
    return [tensor.shape for tensor in layer.tensors]


def refusal(stem, ranks):
    with pytest.raises(ConfigError) as caught:
        shard(load_model(stem), ranks)
    (line,) = caught.value.lines()
    return line


def test_one_rank_is_the_whole_model():
    model = load_model("Qwen--Qwen3-8B")
    assert shard(model, 1) is model


@pytest.mark.parametrize(("ranks", "heads"), [(2, 4), (4, 2), (8, 1), (16, 1), (32, 1)])
def test_kv_heads_divide_and_then_repeat(ranks, heads):
    model = shard(load_model("meta-llama--Llama-3.1-8B"), ranks)  # 8 KV heads, 32 query heads
    assert {layer.num_kv_heads for layer in model.layers} == {heads}
    assert {layer.head_size for layer in model.layers} == {128}
    assert model.tensor_parallel_size == ranks


def test_each_kind_of_layer_divides_its_own_heads():
    # full layers have 4 KV heads, sliding ones 8; keys and values keep their sizes
    layers = shard(load_model("XiaomiMiMo--MiMo-V2-Flash"), 8).layers
    assert {layer.num_kv_heads for layer in layers} == {1}
    four = shard(load_model("XiaomiMiMo--MiMo-V2-Flash"), 4).layers
    assert {(la.kind, la.num_kv_heads, la.head_size, la.head_size_v) for la in four} == {
        ("full", 1, 192, 128),
        ("sliding", 2, 192, 128),
    }


def test_cross_attention_divides_like_self_attention():
    layers = shard(load_model("openai--whisper-large-v3"), 4).layers  # 20 heads
    assert {(layer.kind, layer.num_kv_heads) for layer in layers} == {("full", 5), ("cross", 5)}


@pytest.mark.parametrize(
    "stem", ["deepseek-ai--DeepSeek-V3.2", "deepseek-ai--DeepSeek-V4-Flash", "zai-org--GLM-5.2"]
)
def test_latent_caches_and_indexers_are_whole_on_every_rank(stem):
    model = load_model(stem)
    assert shard(model, 8).layers == model.layers
    assert shard(model, 8).mtp_layers == model.mtp_layers


@pytest.mark.parametrize(
    ("ranks", "state_bytes", "token_bytes"),
    # spec/layout.md 3.2, Qwen3-Next and Qwen3-Next TP2 / TP4 / TP8; 2 KV heads of 256
    [(1, 1_097_728, 2048), (2, 548_864, 1024), (4, 274_432, 1024), (8, 137_216, 1024)],
)
def test_gated_delta_net_has_the_bytes_of_the_specification(ranks, state_bytes, token_bytes):
    model = shard(load_model("Qwen--Qwen3-Next-80B-A3B-Instruct"), ranks)
    assert model.first_recurrent_layer.state_bytes(BF16) == state_bytes
    assert model.first_attention_layer.kv_bytes_per_token(2) == token_bytes


def test_gated_delta_net_divides_key_and_value_heads():
    # 16 key heads and 32 value heads of 128: (2*128*16 + 128*32) / 4 = 2048
    assert state_of("Qwen--Qwen3-Next-80B-A3B-Instruct", 4) == [(3, 2048), (8, 128, 128)]


def test_minimax_has_the_bytes_of_the_specification():
    # 3.2: MiniMax-Text-01 TP8, 8*128*128*2 = 262144 and 512 bytes per token
    model = shard(load_model("MiniMaxAI--MiniMax-Text-01"), 8)
    assert model.first_recurrent_layer.state_bytes(BF16) == 262_144
    assert model.first_attention_layer.kv_bytes_per_token(2) == 512


def test_mamba1_divides_its_inner_channels():
    assert state_of("ai21labs--Jamba-v0.1", 2) == [(3, 4096), (4096, 16)]
    assert state_of("tiiuae--falcon-mamba-7b", 8) == [(3, 1024), (1024, 16)]


@pytest.mark.parametrize(
    ("stem", "ranks", "shapes"),
    [
        # 8 groups of 128: (8192 + 2*8*128) / 4 = 2560
        ("nvidia--Nemotron-H-8B-Base-8K", 4, [(3, 2560), (32, 64, 128)]),
        # one group becomes one per rank: (8192 + 2*2*128) / 2 = 4352, of 8448 unsharded
        ("ibm-ai-platform--Bamba-9B-v1", 2, [(3, 4352), (64, 64, 128)]),
        # 2 groups on 4 ranks become 4: (4096 + 2*4*256) / 4 = 1536
        ("tiiuae--Falcon-H1-34B-Instruct", 4, [(3, 1536), (8, 128, 256)]),
        # 8 groups on 16 ranks become 16: (8192 + 2*16*128) / 16 = 768
        ("mistralai--Mamba-Codestral-7B-v0.1", 16, [(3, 768), (8, 64, 128)]),
        # PLaMo-2 convolves no groups: 4096 / 2
        ("pfnet--plamo-2-1b", 2, [(3, 2048), (16, 128, 64)]),
    ],
)
def test_mamba2_divides_heads_and_repeats_groups(stem, ranks, shapes):
    assert state_of(stem, ranks) == shapes


def test_groups_beyond_the_ranks_that_do_not_divide_become_one_per_rank():
    # C14: 6 groups on 4 ranks count as 4: (8*16 + 2*4*32) / 4 = 96
    tensors = (StateTensor("conv", (3, 8 * 16 + 2 * 6 * 32)), StateTensor("ssm", (8, 16, 32)))
    layer = shard_layer(RecurrentLayer(name="L0", flavour="mamba2", tensors=tensors), 4)
    assert [tensor.shape for tensor in layer.tensors] == [(3, 96), (2, 16, 32)]


def test_kimi_delta_attention_keeps_its_own_dtype():
    model = shard(load_model("moonshotai--Kimi-Linear-48B-A3B-Instruct"), 4)
    conv, state = model.first_recurrent_layer.tensors
    assert (conv.shape, state.shape, state.dtype_bytes) == ((3, 3072), (8, 128, 128), 4)


def test_short_convolutions_and_linear_recurrences_divide_their_channels():
    assert state_of("LiquidAI--LFM2-1.2B", 4) == [(2, 512)]
    assert state_of("google--recurrentgemma-2b", 2) == [(3, 1280), (1280,)]


def test_lightning_heads_are_rounded_down():
    state = StateTensor("conv", (10, 16, 16))
    layer = shard_layer(RecurrentLayer(name="L0", flavour="lightning", tensors=(state,)), 4)
    assert [tensor.shape for tensor in layer.tensors] == [(2, 16, 16)]  # 10 // 4


def test_speculative_layers_and_the_aligned_state_are_divided_too():
    model = with_speculation(load_model("Zyphra--Zamba2-7B"), "eagle", 2)
    model = shard(model, 2)  # (7168 + 2*2*64) / 2 = 3712
    assert model.first_recurrent_layer.tensors[0].shape == (5, 3712)
    assert model.aligned_state.tensors[0].shape == (3, 3712)
    assert model.layers[-1].name == "draft.0"
    assert model.layers[-1].num_kv_heads == 16


@pytest.mark.parametrize(
    ("stem", "ranks", "said"),
    [
        ("meta-llama--Llama-3.1-8B", 3, "32 attention heads"),
        ("meta-llama--Llama-3.1-8B", 12, "32 attention heads"),
        ("microsoft--phi-4", 4, "10 KV heads of layer L0"),  # 40 query heads do divide
        ("microsoft--Phi-4-mini-instruct", 16, "24 attention heads"),  # 8 KV heads would repeat
        ("openai--whisper-large-v3", 8, "20 attention heads"),
        ("mistralai--Mamba-Codestral-7B-v0.1", 3, "128 heads of layer L0 (mamba2)"),
        ("tiiuae--falcon-mamba-7b", 3, "8192 inner channels of layer L0 (mamba1)"),
        ("Qwen--Qwen3-Next-80B-A3B-Instruct", 32, "16 key heads of layer L0.mamba (gdn)"),
        ("moonshotai--Kimi-Linear-48B-A3B-Instruct", 64, "32 heads of layer L0.mamba (kda)"),
        ("inclusionAI--Ring-mini-linear-2.0", 32, "at most the 16 heads"),
    ],
)
def test_a_degree_that_divides_neither_way_is_refused(stem, ranks, said):
    line = refusal(stem, ranks)
    assert line.startswith(f"tensor_parallel_size: {ranks}: ")
    assert said in line


@pytest.mark.parametrize("ranks", [0, -1, True, 1.0, "2", None, 65_537])
def test_a_degree_is_a_positive_integer(ranks):
    assert "an integer from 1 to 65536" in refusal("Qwen--Qwen3-8B", ranks)


def test_a_rank_s_layers_are_not_divided_again():
    with pytest.raises(ValueError, match="one rank's already"):
        shard(shard(load_model("Qwen--Qwen3-8B"), 2), 2)

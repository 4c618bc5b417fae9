"""Layers that speculative decoding adds, and states that it lengthens."""

import pytest

from sim.errors import ConfigError
from sim.models import AttentionLayer, load_model, shard, with_speculation

BF16 = {"conv": 2, "ssm": 2}
DRAFT = AttentionLayer(name="ignored", num_kv_heads=8, head_size=128)


def added(stem, method="mtp", tokens=1, *args):
    model = load_model(stem)
    return [la.name for la in with_speculation(model, method, tokens, *args).layers][
        len(model.layers) :
    ]


def refusal(stem, *args):
    with pytest.raises(ConfigError) as caught:
        with_speculation(load_model(stem), *args)
    return str(caught.value)


@pytest.mark.parametrize(
    ("stem", "names"),
    [
        ("deepseek-ai--DeepSeek-V3", ["L61"]),
        ("deepseek-ai--DeepSeek-V3.2", ["L61.attn", "L61.idx"]),
        ("deepseek-ai--DeepSeek-V4-Flash", ["L43.swa"]),  # ratio 0 behind the last layer
        ("zai-org--GLM-4.5-Air", ["L46"]),
        ("zai-org--GLM-5.2", ["L78.attn", "L78.idx"]),  # (78 - 3 + 1) % 4 == 0
        ("stepfun-ai--Step-3.5-Flash", ["L45", "L46", "L47"]),
        ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B", ["L88.attn"]),
        ("Qwen--Qwen3-Next-80B-A3B-Instruct", ["L48.attn"]),  # no key names it
        ("Qwen--Qwen3.5-35B-A3B", ["L40.attn"]),
    ],
)
def test_mtp_layers_follow_the_model_s(stem, names):
    assert added(stem) == names
    assert added(stem, "mtp", 4) == names  # tokens do not change the number of layers


def test_step_s_mtp_layers_have_the_types_that_the_list_goes_on_with():
    mtp = load_model("stepfun-ai--Step-3.5-Flash").mtp_layers
    assert [layer.kind for layer in mtp] == ["sliding"] * 3
    assert {layer.num_kv_heads for layer in mtp} == {8}


def test_fewer_mtp_layers_may_be_asked_for():
    assert added("stepfun-ai--Step-3.5-Flash", "mtp", 1, 2) == ["L45", "L46"]
    assert added("deepseek-ai--DeepSeek-V3.2", "mtp", 1, 1) == ["L61.attn", "L61.idx"]


def test_a_draft_has_its_own_shape_or_the_target_s():
    model = load_model("openai--gpt-oss-20b")  # 8 heads of 64
    own = with_speculation(model, "draft_model", 3, 2, DRAFT).layers[-2:]
    assert [(la.name, la.kind, la.head_size) for la in own] == [
        ("draft.0", "full", 128),
        ("draft.1", "full", 128),
    ]
    like = with_speculation(model, "eagle", 3).layers[-1]
    assert (like.name, like.kind, like.num_kv_heads, like.head_size) == ("draft.0", "full", 8, 64)


def test_a_draft_like_a_sliding_or_latent_target_is_full_and_dense():
    mistral = with_speculation(load_model("mistralai--Mistral-7B-v0.1"), "eagle", 1).layers[-1]
    assert mistral.kind == "full"
    sparse = with_speculation(load_model("deepseek-ai--DeepSeek-V3.2"), "eagle", 1).layers[-1]
    assert (sparse.kind, sparse.is_sparse) == ("mla", False)


def test_mtp_and_draft_layers_may_come_together():
    model = with_speculation(load_model("Qwen--Qwen3.5-35B-A3B"), "mtp", 2)
    both = with_speculation(model, "draft_model", 2, 5, DRAFT)
    assert [layer.name for layer in both.layers[40:]] == [
        "L40.attn", "draft.0", "draft.1", "draft.2", "draft.3", "draft.4",
    ]  # fmt: skip
    more = with_speculation(both, "eagle", 2, 1, DRAFT)
    assert more.layers[-1].name == "draft.5"
    assert more.first_recurrent_layer.tensors[0].shape[0] == 5  # 3 + 2, once
    assert more.num_speculative_tokens == 2


def test_a_draft_of_a_divided_model_is_divided():
    model = shard(load_model("openai--gpt-oss-20b"), 4)
    assert with_speculation(model, "eagle", 1, 1, DRAFT).layers[-1].num_kv_heads == 2
    assert with_speculation(model, "eagle", 1).layers[-1].num_kv_heads == 2


def test_gated_delta_net_keeps_the_speculative_tokens():
    # spec/layout.md 3.2: 81920 + 1048576 = 1130496 bytes with 2 tokens
    model = with_speculation(load_model("Qwen--Qwen3-Next-80B-A3B-Instruct"), "mtp", 2)
    assert model.first_recurrent_layer.tensors[0].shape == (5, 8192)
    assert model.aligned_state.state_bytes(BF16) == 1_130_496


@pytest.mark.parametrize(
    ("stem", "length", "aligned"),
    [
        ("nvidia--Nemotron-H-8B-Base-8K", 5, 5),
        ("mistralai--Mamba-Codestral-7B-v0.1", 5, 5),
        ("Zyphra--Zamba2-7B", 5, 3),  # C9: these model classes forget the tokens
        ("tiiuae--Falcon-H1-7B-Instruct", 5, 3),
        ("ibm-granite--granite-4.0-h-small", 5, 3),
        ("pfnet--plamo-2-1b", 5, 3),
        ("ai21labs--Jamba-v0.1", 3, 3),  # Mamba-1, KDA and short convolutions do not grow
        ("moonshotai--Kimi-Linear-48B-A3B-Instruct", 3, 3),
        ("LiquidAI--LFM2-1.2B", 2, 2),
    ],
)
def test_which_convolutions_grow_by_two_tokens(stem, length, aligned):
    model = with_speculation(load_model(stem), "ngram", 2)
    assert model.first_recurrent_layer.tensors[0].shape[0] == length
    assert model.aligned_state.tensors[0].shape[0] == aligned


def test_ngrams_add_no_layers():
    assert added("Qwen--Qwen3-8B", "ngram", 3) == []


def test_hidden_states_are_one_cache_of_all_the_extracted_layers():
    # spec/layout.md 6.6: Qwen3-Next + hidden 4 x 2048 bf16 is 16384 bytes per token
    model = load_model("Qwen--Qwen3-Next-80B-A3B-Instruct")
    layer = with_speculation(model, "extract_hidden_states", 1, 4).layers[-1]
    assert (layer.kind, layer.kv_bytes_per_token(2)) == ("hidden_state", 16_384)
    assert shard(with_speculation(model, "extract_hidden_states", 1, 4), 2).layers[-1] == layer


def test_no_tokens_add_layers_all_the_same():
    assert added("deepseek-ai--DeepSeek-V3", "mtp", 0) == ["L61"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("mtq", 1), "speculative_method: mtq: known: mtp, "),
        (("mtp", 1), "has no MTP layers"),
        (("eagle", -1), "num_speculative_tokens: -1: an integer from 0"),
        (("eagle", True), "num_speculative_tokens: True"),
        (("eagle", "2"), "num_speculative_tokens: 2"),
        (("eagle", 1, 0), "num_speculative_layers: 0: an integer from 1"),
        (("eagle", 1, 10**6), "num_speculative_layers"),
    ],
)
def test_wrong_speculation_is_one_line(args, said):
    line = refusal("Qwen--Qwen3-8B", *args)
    assert said in line
    assert "\n" not in line


def test_more_mtp_layers_than_there_are_is_refused():
    assert "at most 1 for deepseek-ai--DeepSeek-V3" in refusal(
        "deepseek-ai--DeepSeek-V3", "mtp", 1, 2
    )


def test_a_model_without_attention_gives_a_draft_no_shape():
    assert "has no layer to repeat" in refusal("tiiuae--falcon-mamba-7b", "eagle", 1)

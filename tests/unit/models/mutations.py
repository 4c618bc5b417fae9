"""Mutations of the carried configs, as Hypothesis strategies."""

import copy
import json

from hypothesis import strategies as st

from sim.configs_dir import configs_dir

PATHS = sorted((configs_dir() / "models").glob("*.json"))
CONFIGS = {path.stem: json.loads(path.read_text()) for path in PATHS}
ARCHITECTURES = [config["architectures"] for config in CONFIGS.values()]

SIZES = st.integers(1, 300) | st.sampled_from([2**31, 2**31 + 1, 2**63, 10**30])
WORDS = ["auto", "float32", "sliding_attention", "mamba", "M*E-", "LLLG", "3,4,5", "hybrid"]
VALUES = st.one_of(
    SIZES,
    st.integers(-3, 0),
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([*WORDS, [], {}, [[]], ["full_attention"], [[1]], {"num_heads": 0}]),
    st.sampled_from(ARCHITECTURES),
    st.lists(st.sampled_from(["full_attention", "mamba", "attention", 0, 1, 3, 128]), max_size=50),
)
# keys that rules read and that most of the files leave out
OPTIONAL = [
    "attn_layer_indices", "block_ffn_dim_multiplier", "conv_dim", "full_attn_idxs", "head_dim",
    "hybrid_layer_ids", "index_topk_freq", "indexer_types", "layer_types", "layers_block_type",
    "max_window_layers", "moe_layers", "moe_layers_enum", "mtp_num_hidden_layers",
    "no_rope_layers", "num_kv_shared_layers", "num_nextn_predict_layers", "q_lora_rank",
    "sliding_window", "sliding_window_pattern", "torch_dtype", "use_cla", "use_sliding_window",
]  # fmt: skip
VERBS = ["set", "set", "set", "entry", "cut", "remove"]

# where (a number picks one of a config's own keys), what, with which value
CHANGES = st.tuples(
    st.integers(0, 60) | st.sampled_from(OPTIONAL), st.sampled_from(VERBS), VALUES, st.integers(0)
)
CHANGE_LISTS = st.lists(CHANGES, min_size=1, max_size=4)


def mutated(config, changes):
    """Return a changed copy; nested sections are changed like the file itself."""
    config = copy.deepcopy(config)
    places = [(config, key) for key in config if key != "_facts"]
    sections = [value for value in config.values() if isinstance(value, dict)]
    places += [(inner, key) for inner in sections for key in inner if key != "expected"]
    for where, verb, value, number in changes:
        if isinstance(where, str):
            _change(config.get("text_config", config), where, verb, value, number)
        else:
            holder, key = places[where % len(places)]
            _change(holder, key, verb, value, number)
    return config


def _change(holder, key, verb, value, number):
    if not isinstance(holder, dict):
        return
    present = holder.get(key)
    if verb == "remove":
        holder.pop(key, None)
    elif verb == "entry" and isinstance(present, list) and present:
        present[number % len(present)] = value
    elif verb == "cut" and isinstance(present, list | str):
        holder[key] = present[: number % (len(present) + 1)]
    else:
        holder[key] = value

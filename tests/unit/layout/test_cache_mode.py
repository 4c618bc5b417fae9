import pytest

from sim.errors import ConfigError
from sim.layout.cache_mode import resolve_cache_mode
from sim.models import ModelConfig, load_model
from sim.models.model_config import ModelDims, RecurrentLayer, StateTensor

EXPERIMENTAL = (
    "Warning: Prefix caching in Mamba cache 'align' mode is currently enabled. Its support for "
    "Mamba layers is experimental. Please report any issues you may observe."
)


@pytest.fixture
def jamba_fixture():
    return load_model("ai21labs--Jamba-v0.1")


@pytest.fixture
def llama_fixture():
    return load_model("meta-llama--Llama-3.1-8B")


@pytest.fixture
def delta_net_fixture():
    """A recurrent model that does not declare mode ``all``."""
    layer = RecurrentLayer(name="L0.mamba", flavour="gdn", tensors=(StateTensor("ssm", (4, 4)),))
    dims = ModelDims(8, 1, 1, 8, 100, 100)
    return ModelConfig("made", "DeltaNetForCausalLM", 1024, 2, (layer,), dims)


def test_caching_is_on_for_attention_and_off_with_recurrent_layers(jamba_fixture, llama_fixture):
    assert resolve_cache_mode(llama_fixture, None, None).enable_prefix_caching
    mode = resolve_cache_mode(jamba_fixture, None, None)
    assert (mode.enable_prefix_caching, mode.mamba_cache_mode, mode.log_lines) == (
        False, "none", ()
    )  # fmt: skip


def test_the_user_s_switch_counts(llama_fixture):
    assert not resolve_cache_mode(llama_fixture, False, None).enable_prefix_caching


def test_align_with_caching_warns_that_it_is_experimental(jamba_fixture):
    mode = resolve_cache_mode(jamba_fixture, True, "align")
    assert (mode.enable_prefix_caching, mode.mamba_cache_mode) == (True, "align")
    assert mode.log_lines == (EXPERIMENTAL,)


@pytest.mark.parametrize("enable", [None, False])
def test_a_mode_without_caching_becomes_none_and_says_so(jamba_fixture, enable):
    mode = resolve_cache_mode(jamba_fixture, enable, "align")
    assert (mode.enable_prefix_caching, mode.mamba_cache_mode) == (False, "none")
    assert mode.log_lines == ("Mamba cache mode is set to 'none' when prefix caching is disabled",)


@pytest.mark.parametrize("mode", [None, "none"])
def test_caching_without_a_mode_is_all_where_the_model_declares_it(jamba_fixture, mode):
    chosen = resolve_cache_mode(jamba_fixture, True, mode)
    assert chosen.mamba_cache_mode == "all"
    assert chosen.log_lines == (
        "Mamba cache mode is set to 'all' for JambaForCausalLM by default when prefix caching is "
        "enabled",
        EXPERIMENTAL.replace("'align'", "'all'"),
    )


def test_all_counts_where_prefixes_are_cached(jamba_fixture):
    chosen = resolve_cache_mode(jamba_fixture, True, "all")
    assert (chosen.mamba_cache_mode, len(chosen.log_lines)) == ("all", 1)
    off = resolve_cache_mode(jamba_fixture, None, "all")
    assert (off.enable_prefix_caching, off.mamba_cache_mode) == (False, "none")
    assert off.log_lines == ("Mamba cache mode is set to 'none' when prefix caching is disabled",)


def test_caching_is_off_for_an_encoder_with_a_decoder():
    mode = resolve_cache_mode(load_model("openai--whisper-large-v3"), None, None)
    assert not mode.enable_prefix_caching


def test_a_model_without_support_for_all_gets_align_by_default(delta_net_fixture):
    mode = resolve_cache_mode(delta_net_fixture, True, None)
    assert mode.mamba_cache_mode == "align"
    assert mode.log_lines == (
        "Mamba cache mode is set to 'align' for DeltaNetForCausalLM by default when prefix "
        "caching is enabled",
        EXPERIMENTAL,
    )


def test_a_model_without_support_for_all_falls_back_to_align(delta_net_fixture):
    mode = resolve_cache_mode(delta_net_fixture, True, "all")
    assert mode.mamba_cache_mode == "align"
    assert mode.log_lines == (
        "Hybrid or mamba-based model detected without support for prefix caching with Mamba cache "
        "'all' mode: falling back to 'align' mode.",
        EXPERIMENTAL,
    )


def test_without_recurrent_layers_the_mode_means_nothing(llama_fixture):
    mode = resolve_cache_mode(llama_fixture, None, "align")
    assert (mode.mamba_cache_mode, mode.log_lines) == ("none", ())


def test_an_unknown_mode_lists_the_known_ones(llama_fixture):
    with pytest.raises(ConfigError, match="known: align, none, all; did you mean align"):
        resolve_cache_mode(llama_fixture, None, "alignn")

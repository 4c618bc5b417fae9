"""Behaviour cases of public issues (spec/real_cases.md): small inputs, values worked out by hand.

Each case runs through ``simulate`` (or the command line), as a user would run it, where a model
with that block size is known; otherwise through the scheduler on a pool of that shape. B1 is in
tests of its own. vLLM 0.25.1's own scheduler, given the prompts of B3, B4, B6 and B7, has the same
hits and the same chunks.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from types import SimpleNamespace

import pytest

from sim.cli import main
from sim.config import Scenario, validated
from sim.core.integrity import check_integrity
from sim.engine_core import EngineCore
from sim.layout.plan import LayoutSettings, plan_layout
from sim.layout.plan_specs import plan_specs
from sim.layout.specs_file import specs_from
from sim.models import load_model
from sim.observer import Observer
from sim.request import Request
from sim.simulation import assemble, build_manager, build_scheduler, simulate
from sim.startup import startup_notes
from tests.conftest import load_implementation
from tests.helpers import full, mamba
from tests.unit.scheduler.serving import Serving

SIM = load_implementation("sim")
QWEN = "Qwen--Qwen3.5-9B"  # attention block 528 in align mode
NEMOTRON = "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B"  # attention block 4160, 8320 in fp8
LLAMA = "meta-llama--Llama-3.1-8B"
SCOUT = "meta-llama--Llama-4-Scout-17B-16E-Instruct"
ALIGN = {"enable_prefix_caching": True, "mamba_cache_mode": "align"}


def scenario(folder, prompts, model, *, cache=None, scheduler=None, output=1, **more):
    """Return a scenario that serves prompts (lists of token names) one after the other."""
    path = folder / "trace.jsonl"
    names: dict[object, int] = {}
    with path.open("w") as file:
        for prompt in prompts:
            ids = [names.setdefault(token, len(names)) for token in prompt]
            row = {"timestamp": 0, "input_length": len(ids), "output_length": output}
            file.write(json.dumps({**row, "hash_ids": ids}) + "\n")
    arrival = {"kind": "closed", "concurrency": 1}
    params = {"path": str(path), "block_size": 1, "arrival": arrival}
    given = {"model": model, "workload": {"name": "mooncake", "params": params}, **more}
    given |= {"cache": {**ALIGN, **(cache or {})}, "latency": {"name": "constant"}}
    return validated(Scenario, {**given, "scheduler": scheduler or {}})


def cached_tokens(folder, prompts, model=QWEN, **more):
    """Serve prompts one after the other; return the hit of each at its first admission."""
    result = simulate(scenario(folder, prompts, model, **more))
    assert list(result.requests.outcome) == ["finished"] * len(prompts)
    return list(result.requests.cached_tokens)


def prompt(shared, total, name):
    """Return ``shared`` tokens that every prompt has, then tokens of its own."""
    return [*range(shared), *((name, i) for i in range(total - shared))]


def align_serving(block_size, *, budget=16384, num_blocks=60, **settings):
    """Return a scheduler in front of one full and one recurrent group, in align mode."""
    limits = {"max_num_batched_tokens": budget, "max_model_len": 65536}
    specs = [full(block_size), mamba(block_size)]
    return Serving(SIM, specs, num_blocks=num_blocks, align=block_size, limits=limits, **settings)


def serve(serving, request_id, num_tokens, *, max_tokens=1, **more):
    """Serve one request to its end; return it and its tokens by step."""
    request = serving.add(request_id, num_tokens, max_tokens=max_tokens, **more)
    chunks = []
    while not request.status.is_finished:
        chunks.append(serving.step().num_scheduled_tokens[request_id])
    check_integrity(serving.manager)
    return request, chunks


# -- B3: a checkpoint in unique tokens is of no use ---------------------------------------------
@pytest.mark.parametrize(("shared", "hits"), [(1600, [0, 1584]), (1500, [0, 0])])
def test_b3_states_in_unique_tokens_are_of_no_use(tmp_path, shared, hits):
    """2,200 tokens, blocks of 528, chunks of 2,048: states at 3 x 528 = 1584 and at 2112."""
    prompts = [prompt(shared, 2200, name) for name in "ab"]
    scheduler = {"max_num_batched_tokens": 2048}
    assert cached_tokens(tmp_path, prompts, scheduler=scheduler) == hits


def test_b3_the_second_sibling_leaves_a_state_where_the_prefix_is_known_to_be_shared(tmp_path):
    """Attention knows 1056 of 1500 shared tokens: the second request's chunk ends there (6.8)."""
    prompts = [prompt(1500, 2200, name) for name in "abc"]
    scheduler = {"max_num_batched_tokens": 2048}
    assert cached_tokens(tmp_path, prompts, scheduler=scheduler) == [0, 0, 1056]


# -- B4: hits are whole blocks ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("num_tokens", "hit"), [(500, 0), (552, 528), (979, 528), (1057, 1056), (1056, 0)]
)
def test_b4_a_prompt_sent_again_hits_its_whole_blocks(tmp_path, num_tokens, hit):
    """528 of 552 are 95.7 %, 528 of 979 are 53.9 %.

    1056 tokens end on a block: their one state is at 1056, and a hit may reach 1055 at most.
    """
    again = [prompt(num_tokens, num_tokens, name) for name in "ab"]
    control = prompt(0, num_tokens, "c")
    assert cached_tokens(tmp_path, [*again, control]) == [0, hit, 0]
    assert {552: 95.7, 979: 53.9}.get(num_tokens, 0) in (0, round(100 * hit / num_tokens, 1))


@pytest.mark.parametrize("block_size", [528, 1920, 2096])
@pytest.mark.parametrize("shared", [100, 1000, 2096, 3000, 3840, 4192, 6000, 10000, 16000])
def test_b4_cached_is_the_floor_of_the_shared_tokens(block_size, shared):
    """A prompt, then a longer one that begins with it; a control shares nothing."""
    serving = align_serving(block_size, num_blocks=200)
    serve(serving, "a", shared, shared=shared)
    longer, _ = serve(serving, "b", shared + 500, shared=shared)
    assert longer.num_cached_tokens == shared // block_size * block_size
    control, _ = serve(serving, "c", shared + 500)
    assert control.num_cached_tokens == 0


# -- B5: blocks longer than the model -----------------------------------------------------------
@pytest.mark.parametrize(
    ("max_model_len", "num_tokens", "hits"),
    [(4096, 3536, [0, 0, 0]), (16384, 12816, [0, 8320, 8320])],
)
def test_b5_block_of_8320(tmp_path, max_model_len, num_tokens, hits):
    """Three equal prompts: 0 of 10,608 queried tokens, and 16,640 (2 x 8320) of 38,448."""
    prompts = [prompt(num_tokens, num_tokens, name) for name in "abc"]
    given = scenario(
        tmp_path,
        prompts,
        NEMOTRON,
        cache={"kv_cache_dtype": "fp8"},
        scheduler={"max_model_len": max_model_len, "max_num_batched_tokens": 16384},
        hardware="b200-180gb",
    )
    assembly = assemble(given)
    assert assembly.layout.block_size == 8320
    notes = [note for note in assembly.notes if note.startswith("prefix caching")]
    assert notes == (
        ["prefix caching has no effect: hits are multiples of 8,320 tokens, max_model_len is 4,096"]
        if max_model_len == 4096
        else []
    )
    result = simulate(given)
    assert list(result.requests.cached_tokens) == hits
    assert int(result.requests.prompt_tokens.sum()) == {4096: 10608, 16384: 38448}[max_model_len]


@pytest.mark.parametrize(("max_model_len", "is_inert"), [(529, True), (530, False)])
def test_b5_the_note_begins_where_the_first_hit_is_impossible(tmp_path, max_model_len, is_inert):
    """The longest prompt has max_model_len - 1 tokens, and its last one is computed again."""
    longest = max_model_len - 1
    prompts = [prompt(longest, longest, name) for name in "ab"]
    limits = {"max_model_len": max_model_len, "max_num_batched_tokens": 2048}
    notes = assemble(scenario(tmp_path, prompts, QWEN, scheduler=limits)).notes
    assert any("prefix caching has no effect" in note for note in notes) is is_inert
    assert cached_tokens(tmp_path, prompts, scheduler=limits) == [0, 0 if is_inert else 528]


# -- B6: two long chats in turn -----------------------------------------------------------------
def test_b6_alternating_chats_reuse_nothing(tmp_path):
    """A, B, A, blocks of 528: one full group and three recurrent ones, 26 usable blocks.

    A chat of 5,300 tokens takes 11 full blocks and, in each recurrent group, the state at 5280 and
    the running one: 17. When A decodes, its states at 5280 are free, before any of its attention
    blocks. B takes the 9 blocks never used and 4 of A's without content for its 5,280 tokens, then
    4 more for the rest: A's three states and the last of A's attention blocks.
    """
    cache = {"num_gpu_blocks_override": 27}
    limits = {"max_model_len": 5400, "max_num_batched_tokens": 8192, "async_scheduling": False}
    chats = {name: prompt(0, 5300, name) for name in "ab"}
    given = {"cache": cache, "scheduler": limits, "output": 8}
    assert cached_tokens(tmp_path, [chats[name] for name in "aba"], **given) == [0, 0, 0]
    # The same chat twice in a row finds its states.
    assert cached_tokens(tmp_path, [chats[name] for name in "aa"], **given) == [0, 5280]


def test_b6_attention_has_the_prefix_and_the_recurrent_group_has_not():
    """Blocks of 2176, 12 usable: the same account with one recurrent group, 6 + 2 blocks a chat.

    B takes 4 never used blocks, 2 of A's without content, then A's state and its last full block.
    """
    serving = align_serving(2176, num_blocks=13)
    num_tokens = 5 * 2176 + 100
    serve(serving, "a", num_tokens, max_tokens=8)
    serve(serving, "b", num_tokens, max_tokens=8)
    again = serving.prefixes.request("a2", [("a", i) for i in range(num_tokens)])
    coordinator = serving.manager.coordinator
    rows, lengths = coordinator.find_longest_cache_hit_per_group(again.prefix_ids, num_tokens - 1)
    assert list(lengths) == [4 * 2176, 0]
    assert [len(row) for row in rows] == [4, 0]
    assert serving.manager.get_computed_blocks(again)[1] == 0


# -- B7: one state per chunk end ----------------------------------------------------------------
@pytest.mark.parametrize(("shared", "hit"), [(2000, 0), (1616, 0), (3300, 3200)])
def test_b7_one_state_per_chunk_end(shared, hit):
    """4,278 tokens, blocks of 1600: chunks end at 3200, the last whole block, and at 4278.

    The report has a third end, 4272 = 267 x 16, between the two: its engine cuts the tail once
    more at the last 16 tokens. The split rule of 0.25.1 leaves the tail whole (6.8), and nothing
    but 3200 is a boundary that a later request can hit.
    """
    serving = align_serving(1600)
    _, chunks = serve(serving, "a", 4278, shared=shared)
    assert chunks == [3200, 1078]
    sibling, _ = serve(serving, "b", 4278, shared=shared)
    assert sibling.num_cached_tokens == hit


# -- B12: blocks without content go first -------------------------------------------------------
def test_b12_unhashed_blocks_do_not_evict_real_cache():
    manager = Serving(SIM, [full(4)], num_blocks=4).manager
    pool = manager.block_pool
    h1, p1, h2 = pool.get_new_blocks(3, 0)
    pool.register(h1, 0, 100)
    pool.register(h2, 0, 101)
    pool.free_blocks([h1, p1, h2])
    assert pool.get_new_blocks(1, 0) == [p1]
    assert pool.get_cached_block(100, [0]) == [h1]
    assert pool.get_new_blocks(2, 0) == [h1, h2]


# -- B14: one block is the null block -----------------------------------------------------------
def never_runs(length, needed, usable, servable):
    return (
        f"a request of max_model_len {length:,} tokens never runs: it needs {needed:,} blocks and "
        f"the pool has {usable:,} beside the null block, which hold {servable:,} tokens of one "
        "request"
    )


def pool_notes(entries, **settings):
    """Return the layout of these layers and the remarks about its pool."""
    settings = {"kv_cache_memory_bytes": 2**50, "max_num_batched_tokens": 8192, **settings}
    layout = plan_specs(specs_from(entries, "case"), LayoutSettings(**settings))
    given = validated(Scenario, {"model": LLAMA})
    roomy = SimpleNamespace(memory_bytes=2**60, name="roomy")
    return layout, startup_notes(given, load_model(LLAMA), roomy, layout)


def full_layer(block_size):
    return {"kind": "full", "layers": 1, "block_size": block_size, "page_bytes": 4096 * block_size}


@pytest.mark.parametrize(
    ("block_size", "num_blocks", "length", "servable"),
    [
        (16, 64, 1024, 1008),  # 63 x 16
        (128, 8, 1024, 896),  # 7 x 128: a CPU pool whose auto-fit says 1024
        (8192, 13, 106496, 98304),  # 12 x 8192
    ],
)
def test_b14_start_up_says_that_the_longest_request_never_runs(
    block_size, num_blocks, length, servable
):
    entries = [full_layer(block_size)]
    layout, notes = pool_notes(entries, max_model_len=length, num_gpu_blocks_override=num_blocks)
    assert layout.log_lines[-1].endswith(" tokens per request: 1.00x")
    assert notes == [never_runs(length, num_blocks, num_blocks - 1, servable)]
    more = {"max_model_len": length, "num_gpu_blocks_override": num_blocks + 1}
    assert pool_notes(entries, **more)[1] == []


def test_b14_states_of_draft_tokens_count_into_the_need():
    """16 / 1024 / 3 drafts: 64 blocks + 1 + 3 states + the null block are 69; 68 serve 1,008."""
    state = {"kind": "mamba", "layers": 1, "block_size": 8192, "page_bytes": 65536}
    entries = {"layers": [state, full_layer(16)], "num_speculative_blocks": 3}
    notes = {
        num_blocks: pool_notes(entries, max_model_len=1024, num_gpu_blocks_override=num_blocks)[1]
        for num_blocks in (68, 69)
    }
    assert notes == {68: [never_runs(1024, 68, 67, 1008)], 69: []}


@pytest.mark.parametrize(("batched", "is_short"), [(64, True), (8192, False)])
@pytest.mark.parametrize(("window", "length"), [(32, 1024), (100, 1000), (200, 900)])
def test_b14_the_note_says_what_the_manager_does(window, length, batched, is_short):
    """A full and a sliding group; a pool of exactly the need, and one block more.

    The need of the sliding group is cdiv(window - 1 + batched, 16) + 1 blocks. Where that is more
    than the length has, the need counts one block too many, and the null block is made up for.
    """
    entries = [full_layer(16), {**full_layer(16), "kind": "swa", "window": window}]
    settings = {"max_model_len": length, "max_num_batched_tokens": batched}
    needed = pool_notes(entries, **settings)[0].capacity.blocks_per_request
    for num_blocks, runs in ((needed, not is_short), (needed + 1, True)):
        layout, notes = pool_notes(entries, **settings, num_gpu_blocks_override=num_blocks)
        assert bool(notes) is not runs
        specs = [group.kv_cache_spec for group in layout.kv_cache_config.kv_cache_groups]
        serving = Serving(SIM, specs, num_blocks=num_blocks, limits=settings)
        request = serving.add("a", length - 1, max_tokens=1)
        serving.steps(length // batched + 1)
        assert request.status.is_finished is runs
        assert serving.manager.usage == 0


@pytest.mark.parametrize(
    ("model", "is_align"),
    [
        (LLAMA, False),
        ("google--gemma-3-27b-it", False),
        ("ai21labs--Jamba-v0.1", False),
        (QWEN, True),
        (NEMOTRON, True),
        (SCOUT, False),
    ],
)
def test_b14_the_note_and_the_engine_agree(model, is_align):
    """Pools from the planner's need on: the engine refuses the longest request where we say so."""
    told = set()
    for length, more in product((1009, 1024, 5000), range(3)):
        cache = {"kv_cache_memory_bytes": "600GiB", **(ALIGN if is_align else {})}
        given = {"model": model, "cache": cache, "scheduler": {"max_model_len": length}}
        needed = assemble(validated(Scenario, given)).layout.capacity.blocks_per_request
        cache["num_gpu_blocks_override"] = needed + more
        assembly = assemble(validated(Scenario, given))
        core = EngineCore(build_scheduler(assembly, build_manager(assembly)), lambda work: 1, None)
        is_told = any("never runs" in note for note in assembly.notes)
        for num_prompt_tokens in (1, length - 1):
            request = Request("a", num_prompt_tokens, length - num_prompt_tokens)
            assert bool(core.admission.refusal(request)) is is_told
        told.add(is_told)
    assert False in told


def exact_pool(folder, lengths, **scheduler):
    """Return a scenario with 64 blocks of 16 for a model length of 1,024: 1.00x."""
    scheduler = {"max_model_len": 1024, "max_num_batched_tokens": 2048, **scheduler}
    prompts = [prompt(0, length, i) for i, length in enumerate(lengths)]
    cache = {"mamba_cache_mode": None, "num_gpu_blocks_override": 64}
    return scenario(folder, prompts, LLAMA, cache=cache, scheduler=scheduler)


def test_b14_a_pool_of_exactly_the_needed_size_rejects_or_waits_for_ever(tmp_path):
    """1,008 prompt tokens fill 63 blocks; one more needs a 64th, which is the null block."""
    result = simulate(exact_pool(tmp_path, [1008, 1009, 1000]))
    assert list(result.requests.outcome) == ["finished", "rejected", "finished"]
    assert result.requests.reason[1] == "1,010 tokens need 64 blocks, the pool has 63"
    # As the engine itself: it waits, at 0 % usage, and everything behind it waits too.
    waits = simulate(exact_pool(tmp_path, [1008, 1009, 1000], unschedulable="wait")).requests
    assert list(waits.outcome) == ["finished", "stuck"]
    assert waits.reason[1].startswith("waiting with 1,009 tokens")


def test_b14_the_command_line_prints_the_remark(tmp_path, capsys):
    simple = ["--model", LLAMA, "--workload-param", "num_requests=1", "--latency", "constant"]
    limits = ["--max-model-len", "1024", "--num-gpu-blocks-override", "64", "--no-figures"]
    code = main(["run", *simple, *limits, "--out", str(tmp_path / "run")])
    assert code == 0
    assert " ".join(capsys.readouterr().err.split()).count(never_runs(1024, 64, 63, 1008)) == 1


# -- B39: many groups cost time -----------------------------------------------------------------
class MetadataCost(Observer):
    """Counts what the host writes into block tables, by group: the cost of many groups."""

    __slots__ = ("calls", "entries")

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.entries: Counter[int] = Counter()

    def table_append(self, request_id, group_id, block_ids):
        self.calls[group_id] += 1
        self.entries[group_id] += len(block_ids)


def scout(folder, **latency):
    given = scenario(
        folder,
        [prompt(0, 160, name) for name in "ab"],
        SCOUT,
        cache={"mamba_cache_mode": None, "kv_cache_memory_bytes": "20GiB"},
        scheduler={
            "max_model_len": 16384,
            "max_num_batched_tokens": 16384,
            "async_scheduling": False,
        },
    )
    return given.model_copy(
        update={"latency": given.latency.model_copy(update={"name": "affine", "params": latency})}
    )


def test_b39_llama_4_is_four_groups_of_twelve():
    """12 full and 36 chunked layers."""
    settings = LayoutSettings(
        kv_cache_memory_bytes=20 * 2**30, max_model_len=16384, max_num_batched_tokens=16384
    )
    groups = plan_layout(load_model(SCOUT), settings).kv_cache_config.kv_cache_groups
    kinds = Counter((g.kv_cache_spec.kind, len(g.layer_names)) for g in groups)
    assert kinds == {("full_attention", 12): 1, ("chunked_local_attention", 12): 3}


def test_b39_every_group_has_its_own_tables_to_write(tmp_path):
    """160 tokens are 10 blocks of 16; one request after the other, four tables each."""
    cost = MetadataCost()
    simulate(scout(tmp_path), observer=cost)
    assert cost.entries == dict.fromkeys(range(4), 20)
    assert sum(cost.entries.values()) == 4 * 20
    assert set(cost.calls.values()) == {2}


def test_b39_host_time_of_groups_is_a_term_of_the_step(tmp_path):
    """500 us a group make 2 ms more in each step of a model of four groups, the report's figure."""
    times = [
        simulate(scout(tmp_path, kv_group_us=value)).steps.eval("end_ns - start_ns")
        for value in (0.0, 500.0)
    ]
    assert len(times[0]) == len(times[1])
    assert set(times[1] - times[0]) == {2_000_000}

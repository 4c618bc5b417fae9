"""Groups and tensors as characters."""

from sim.layout.drawing import layout_drawing
from sim.layout_scenario import LayoutRequest


def drawn(model, **keys):
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    return layout_drawing(LayoutRequest.of(model, None, dotted).plan()).splitlines()


def test_gemma_3_27b_shows_seven_groups_of_ten_tensors():
    # spec/layout.md 6.5 and 7: 9,9,9,9,8,8 sliding and 10 full; tensor 8 has five layers, 9 one
    lines = drawn("google/gemma-3-27b-it", cache__kv_cache_memory_bytes="20GiB")
    assert lines[3:6] == [
        "group 0-3  ■■■■■■■■■·  9 x sliding_window 1,024, 16 tokens a block",
        "group 4-5  ■■■■■■■■··  8 x sliding_window 1,024, 16 tokens a block",
        "group 6    ■■■■■■■■■■  10 x full_attention, 16 tokens a block",
    ]
    assert lines[7] == "tensor 0: 2 GiB: L0, L1, L2, L3, L4, L6, L5"
    assert lines[-1] == "... and 5 more tensors"


def test_bundle_of_more_tensors_than_a_line_goes_on_below():
    # DeepSeek-V3.2: 61 layers with two caches each in one bundle (spec/layout.md 13)
    lines = drawn("deepseek-ai/DeepSeek-V3.2", cache__kv_cache_dtype="fp8_ds_mla")
    rows = [line.split()[2] for line in lines if line.startswith("group 0")]
    assert [len(row) for row in rows] == [64, 58]
    assert set("".join(rows)) == {"■"}
    rulers = [line for line in lines if line.startswith("tensor  ")]
    assert rulers[1].split()[1:] == ["70", "80", "90", "100", "110", "120"]
    assert rulers[1].index("70") - rulers[1].index("tensor") == len("group 0  ") + 6


def test_packed_tensors_say_where_they_lie():
    lines = drawn("openai/gpt-oss-20b", cache__enable_cross_layers_blocks=True)
    # 12 slots of 32768 bytes: one allocation, records 32768 bytes apart
    assert any("at byte 32,768 of each 393,216: " in line for line in lines)


def test_layers_that_share_a_cache_are_named():
    lines = drawn("google/gemma-3n-E4B-it", cache__kv_cache_memory_bytes="8GiB")
    assert "cache of L19 also read by: L24, L29, L34" in lines


def test_stages_are_drawn_one_by_one():
    lines = drawn(
        "google/gemma-3-27b-it",
        cache__kv_cache_memory_bytes="20GiB",
        parallel__pipeline_parallel_layers="31,31",
    )
    assert [line for line in lines if line.startswith("worker")] == ["worker 0", "worker 1"]

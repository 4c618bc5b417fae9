"""Which test proves which example of the behavioural specification (spec/manager.md).

A key is the section and, where a section has several ``[run]`` marks, their number in order of the
text; ``A.Qn`` are the marks of appendix A, ``C.n`` the items of appendix C, ``D.n`` those of D.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """``tests``: file::test, from the folder of tests. ``absent``: why ours has no such thing."""

    what: str
    tests: tuple[str, ...] = ()
    absent: str = ""


def example(what: str, *tests: str, absent: str = "") -> Example:
    return Example(what, tests, absent)


POOL = "unit/core/test_block_pool.py::"
FULL = "unit/core/test_full_attention.py::"
WINDOW = "unit/core/test_sliding_window.py::"
STATE = "unit/core/test_mamba.py::"
GROUPS = "unit/core/test_kv_cache_coordinator.py::"
MANAGER = "unit/core/test_kv_cache_manager.py::"
SCHEDULER = "unit/scheduler/test_scheduler.py::"
ALIGN = "unit/scheduler/test_align.py::"
S1 = "spec/test_section_1_pool.py::"
S2 = "spec/test_section_2_hashing.py::"
S3 = "spec/test_section_3_managers.py::"
S4 = "spec/test_section_4_coordinators.py::"
S5 = "spec/test_section_5_manager.py::"
S6 = "spec/test_section_6_scheduler.py::"
S7 = "spec/test_section_7_events.py::"
C = "spec/test_appendix_c.py::"
COMPAT = "spec/test_compat.py::"

EXAMPLES = {
    "1.1": example(
        "five null entries are freed", S1 + "test_null_entries_cost_nothing_and_free_nothing"
    ),
    "1.3": example(
        "an entry of the index that had two blocks stays a dict",
        absent="storage of the reference's index; its meaning is tested: "
        "unit/core/test_block_pool.py::test_the_earliest_surviving_duplicate_is_found",
    ),
    "1.4.1": example(
        "queue 5,4,6,7,8,9,10,3,2,1", POOL + "test_free_order_of_two_requests_that_share_a_prefix"
    ),
    "1.4.2": example("life of a partial entry", S1 + "test_life_of_a_partial_entry"),
    "1.4.3": example("eviction by id moves no block", POOL + "test_eviction_by_id_moves_no_block"),
    "2.2": example(
        "hashes are the same in each process if the seed is",
        "test_determinism.py::test_two_processes_with_different_hash_seeds_write_the_same_bytes",
    ),
    "2.3": example(
        "an identity stands for the whole prefix",
        S2 + "test_another_token_changes_exactly_the_blocks_from_its_own_on",
        S2 + "test_an_identity_stands_for_the_whole_prefix",
    ),
    "2.4": example(
        "extra keys: adapter, then salt in the first block; without multimodal items, embeddings",
        S7 + "test_extra_keys_in_their_order",
        S7 + "test_extra_keys_are_computed_at_the_groups_block_boundaries",
    ),
    "3.1": example(
        "2 new + 3 evictable = 5",
        S3 + "test_five_blocks_are_two_new_and_three_evictable",
        FULL + "test_five_blocks_are_two_new_and_three_from_the_queue",
    ),
    "3.2": example(
        "common prefix 3, then 0", FULL + "test_common_prefix_counts_requests_that_hold_blocks"
    ),
    "3.3.1": example("a window of one token", WINDOW + "test_a_window_of_one_token"),
    "3.3.2": example(
        "the table for 15 tokens",
        WINDOW + "test_hits_of_the_document_example",
        WINDOW + "test_hits_of_the_document_example_with_eagle",
        WINDOW + "test_a_prefix_shorter_than_the_window_is_a_hit",
    ),
    "3.3.3": example("alignment 16", WINDOW + "test_hits_end_on_aligned_boundaries"),
    "3.3.4": example("masks", WINDOW + "test_masks"),
    "3.3.5": example(
        "21, 11, 14 blocks; chunks; caps",
        WINDOW + "test_prefill_in_one_step_then_eleven_then_fourteen",
        WINDOW + "test_prefill_in_chunks_of_one_block",
        WINDOW + "test_admission_counts_the_window_only",
    ),
    "3.4": example("rows of chunked local attention", S3 + "test_rows_of_chunked_local"),
    "3.5.1": example("mode all", S3 + "test_tables_of_mode_all"),
    "3.5.2": example("mode align", STATE + "test_align_tables_without_speculation"),
    "3.5.3": example(
        "mode align, two speculative blocks",
        STATE + "test_align_tables_with_two_speculative_blocks_and_the_documented_ids",
    ),
    "3.7": example("a window over generated tokens", S3 + "test_a_window_over_generated_tokens"),
    "3.8": example(
        "the factory cannot build the sink manager",
        S3 + "test_the_factory_cannot_build_the_sink_manager",
    ),
    "4": example("no group, caching on", S4 + "test_no_group_and_caching_is_refused"),
    "4.2": example(
        "[2,1,3,..]", S4 + "test_without_caching_blocks_return_to_the_front_of_the_queue"
    ),
    "4.3": example("context parallelism", S4 + "test_context_parallel_ranks_make_larger_blocks"),
    "4.4.1": example(
        "merged specs", GROUPS + "test_specs_are_merged_and_their_managers_share_the_eagle_flag"
    ),
    "4.4.2": example(
        "the fixed point, also with eagle",
        GROUPS + "test_lookups_of_the_fixed_point",
        GROUPS + "test_the_fixed_point",
        GROUPS + "test_the_fixed_point_with_one_eagle_group",
    ),
    "4.4.3": example("mixed sizes", GROUPS + "test_mixed_sizes_with_eagle"),
    "4.4.4": example("17 blocks considered", GROUPS + "test_mixed_sizes_with_eagle"),
    "4.4.5": example("4 and 16 considered", GROUPS + "test_mixed_sizes_without_eagle"),
    "5.2": example(
        "16 tokens hit 12, 17 hit 16",
        S5 + "test_a_fully_cached_prompt_computes_its_last_token",
        FULL + "test_the_last_token_is_always_computed",
    ),
    "5.3": example(
        "external tokens",
        S5 + "test_external_tokens_and_new_ones_in_one_call",
        S5 + "test_an_asynchronous_load_is_registered_when_it_is_there",
    ),
    "5.5": example(
        "a refused attempt is counted again",
        S5 + "test_an_attempt_that_is_refused_is_counted_again",
        SCHEDULER + "test_a_blocked_request_is_counted_in_every_step",
    ),
    "6.2": example(
        "skipped requests keep their order",
        S6 + "test_skipped_requests_keep_their_order_in_front_of_older_ones",
        S6 + "test_skipped_requests_go_before_older_skipped_ones",
    ),
    "6.3": example(
        "budget, threshold, chunking, gate, watermark",
        SCHEDULER + "test_budget_is_shared_in_order",
        SCHEDULER + "test_long_prefill_threshold",
        SCHEDULER + "test_without_chunked_prefill_a_prompt_waits_for_the_whole_budget",
        SCHEDULER + "test_gate_keeps_the_second_request_out",
        SCHEDULER + "test_without_the_gate_the_second_request_is_admitted_and_preempted",
        SCHEDULER + "test_watermark",
    ),
    "6.5": example(
        "the third is preempted; 13 / 4 per attempt", SCHEDULER + "test_preemption_by_recomputation"
    ),
    "6.6": example("three drafts, one accepted", S6 + "test_three_drafts_one_accepted"),
    "6.8": example("results of the split", ALIGN + "test_split_results"),
    "6.10": example("placeholders", S6 + "test_placeholders_of_asynchronous_scheduling"),
    "7.1": example(
        "fewer hashes than tokens",
        S7 + "test_first_chunk_of_a_recurrent_group_has_one_hash_for_eight_tokens",
        S7 + "test_two_of_every_four_window_blocks_are_eight_hashes_for_64_tokens",
        S7 + "test_an_event_without_a_hash_is_sent_all_the_same",
        S7 + "test_leading_nulls_of_a_hit_are_outside_the_range",
        S7 + "test_leading_nulls_of_an_external_load_are_outside_the_range",
    ),
    "A.Q1": example(
        "a hit of 64 with rows [1,2,3]",
        GROUPS + "test_a_hit_can_exceed_the_full_attention_rows",
        COMPAT + "test_q1_a_hit_exceeds_the_full_attention_rows",
    ),
    "A.Q3": example(
        "a hit of 64 with 8 rows",
        GROUPS + "test_only_the_first_full_attention_entry_is_truncated",
        COMPAT + "test_q3_the_second_full_attention_entry_keeps_too_many_rows",
    ),
    "A.Q9": example(
        "negative counts inflate the free count",
        S1 + "test_too_many_and_negative_counts_are_refused",
        POOL + "test_too_many_or_negative_counts_change_nothing",
    ),
}

APPENDIX_C = {
    "C.1": EXAMPLES["1.4.1"],
    "C.2": EXAMPLES["3.3.2"],
    "C.3": example(
        "the trio, and the free queue after it",
        *EXAMPLES["3.3.5"].tests,
        WINDOW + "test_free_queue_after_the_112_token_request",
    ),
    "C.4": example("masks", WINDOW + "test_masks", STATE + "test_masks"),
    "C.5": EXAMPLES["3.4"],
    "C.6": example(
        "recurrent tables, and the refusal within a step",
        *EXAMPLES["3.5.1"].tests,
        *EXAMPLES["3.5.2"].tests,
        *EXAMPLES["3.5.3"].tests,
        STATE + "test_a_state_made_in_this_step_is_refused",
        C + "test_c6_a_state_made_in_this_step_is_refused_until_the_next",
    ),
    "C.7": EXAMPLES["4.4.2"],
    "C.8": example("retention", GROUPS + "test_retention_is_checked_at_construction"),
    "C.9": example(
        "a partial entry's events", C + "test_c9_life_of_a_partial_entry_with_its_events"
    ),
    "C.10": example(
        "scheduler examples, queries 40, 20, 20, 20",
        *(test for key in ("6.3", "6.5", "6.6", "6.8", "6.10") for test in EXAMPLES[key].tests),
        SCHEDULER + "test_a_blocked_request_is_counted_in_every_step",
    ),
    "C.11": example(
        "reset",
        C + "test_c11_reset_while_used_and_after",
        POOL + "test_reset_is_refused_while_a_block_is_used_and_keeps_the_queue",
    ),
    "C.12": example(
        "eagle, one group", FULL + "test_eagle_drops_one_block_in_a_model_of_one_group"
    ),
}

APPENDIX_D = {
    "D.1": example(
        "write mask of one eagle window",
        S4 + "test_one_sliding_group_with_eagle_writes_the_extra_block",
    ),
    "D.2": example(
        "the hint is inherited (Q13)",
        COMPAT + "test_q13_a_request_inherits_the_hint_of_the_lookup_before_it",
        GROUPS + "test_there_is_no_hint_with_one_group_or_without_caching",
    ),
    "D.3": example(
        "common prefix of states and without caching",
        S3 + "test_common_prefix_of_recurrent_groups_is_zero",
        S4 + "test_without_caching_blocks_return_to_the_front_of_the_queue",
    ),
    "D.4": example(
        "a negative number of external blocks",
        COMPAT + "test_q3_external_tokens_behind_a_longer_table_take_no_block",
    ),
    "D.5": example(
        "with external tokens a prediction is short by one, and the allocation may raise half way",
        S5 + "test_external_tokens_make_an_align_group_predict_one_block_too_few",
    ),
    "D.6": example(
        "full attention tolerates a longer lookup",
        S3 + "test_full_attention_tolerates_a_length_beyond_its_identities",
    ),
    "D.7": example("w = 1", WINDOW + "test_a_window_of_one_token"),
    "D.8": example(
        "a request that can never fit: empty steps for ever",
        SCHEDULER + "test_the_null_block_is_missing_from_the_pool",
        "golden/test_real_cases_behaviour.py::test_b14_a_pool_of_exactly_the_needed_size_rejects_or_waits_for_ever",
    ),
    "D.9": example("empty entries", S3 + "test_reading_an_unknown_request_inserts_nothing"),
    "D.10": example("Q7", COMPAT + "test_q7_a_skipped_victim_makes_the_loop_pass_over_a_request"),
    "D.11": example(
        "rows belong to the call; the refusal compares keys",
        S3 + "test_rows_belong_to_the_call",
        STATE + "test_the_refusal_compares_content_not_blocks",
    ),
}

ALL = {**EXAMPLES, **APPENDIX_C, **APPENDIX_D}

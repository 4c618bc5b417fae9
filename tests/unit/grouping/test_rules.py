"""Group sizes by hand, and from the public cases of spec/real_cases.md B27."""

from fractions import Fraction

import pytest

from sim.errors import ConfigError
from sim.layout.grouping import GROUPING_HEURISTICS, heuristic_for
from sim.layout.grouping.approximate_gcd import approximate_divisor
from tests.unit.grouping.buckets import (
    buckets_of,
    full,
    lengths_of,
    limits,
    named,
    padding_slots,
    sliding,
)

# spec/layout.md B, "policies on the same inputs": padding slots and groups. Worked out again by
# hand: with c = ceil(n / g) groups a bucket has c * longest - n slots idle.
# Bamba at g = 5: 29 in 6 groups, 1 idle; 3 in one group, 2 idle: 3 slots + 7 groups = 10. The
# document's table names g = 6 there (4 + 6, the same 10); by its own words for Jamba ties go to
# fewer slots.
BY_HAND = {
    (52, 10): {"vllm": (8, 7), "max_layers": (42, 2), "gcd": (0, 31), "padding_cost": (3, 5)},
    (36, 13): {"vllm": (3, 4), "max_layers": (23, 2), "gcd": (0, 49), "padding_cost": (3, 4)},
    (29, 3): {"vllm": (1, 11), "max_layers": (26, 2), "gcd": (0, 32), "padding_cost": (3, 7)},
    (81, 13): {"vllm": (10, 8), "max_layers": (68, 2), "gcd": (0, 94), "padding_cost": (4, 7)},
    (20, 7): {"vllm": (1, 4), "max_layers": (13, 2), "gcd": (0, 27), "padding_cost": (1, 4)},
    (12, 13): {"vllm": (1, 2), "max_layers": (1, 2), "gcd": (0, 25), "padding_cost": (1, 2)},
    (20, 30): {"vllm": (10, 3), "max_layers": (10, 2), "gcd": (0, 5), "padding_cost": (0, 5)},
    (28, 4): {"vllm": (0, 8), "max_layers": (24, 2), "gcd": (0, 8), "padding_cost": (0, 8)},
    (30, 10, 5, 1): {
        "vllm": (0, 46),
        "max_layers": (74, 4),
        "gcd": (0, 46),
        "padding_cost": (4, 10),
    },
}
MINIMUM = {(12, 13): (11, 3)}  # where the plain minimum differs from the engine's rule
TABLE = [
    (sizes, rule, expected)
    for sizes, by_rule in BY_HAND.items()
    for rule, expected in by_rule.items()
] + [
    (sizes, "min_layers", MINIMUM.get(sizes, by_rule["vllm"])) for sizes, by_rule in BY_HAND.items()
]


def split(rule, *sizes, **options):
    return GROUPING_HEURISTICS[rule](buckets_of(*sizes, **options))


@pytest.mark.parametrize(("sizes", "rule", "expected"), TABLE)
def test_policies_of_appendix_b(sizes, rule, expected):
    plan = split(rule, *sizes)
    assert (padding_slots(plan), len(plan.groups)) == expected


@pytest.mark.parametrize(
    ("sizes", "group_size"),
    [
        ((12, 18), 12),
        ((12, 17), 17),
        ((8, 9), 9),
        ((2, 3), 2),
        ((20, 29), 29),
        ((20, 30), 20),
        ((30, 10, 5, 1), 1),  # buckets between the two do not matter
        ((52, 10), 10),
        ((13, 12), 13),
        ((19, 18), 19),  # B27
        ((9, 7), 9),
        ((16, 26), 16),
    ],
)
def test_vllm_takes_the_largest_bucket_below_one_and_a_half(sizes, group_size):
    assert split("vllm", *sizes).group_size == group_size
    assert split("vllm", *sizes[::-1]).group_size == group_size


@pytest.mark.parametrize(
    ("sizes", "num_groups"),
    [((30, 10, 5, 1), 46), ((1, 12, 12, 12, 36), 73), ((1, 30), 31), ((36, 1), 37)],
)
def test_a_few_odd_layers_make_one_group_of_each_layer(sizes, num_groups):
    # B27: Qwen3.6 + drafter, an auxiliary state, YOCO's one full layer, a PLE layer
    assert len(split("vllm", *sizes).groups) == num_groups


@pytest.mark.parametrize(
    ("rule", "num_groups"),
    [("exclude_singletons", 10), ("pr_51742", 10), ("vllm_0_11", 46)],
)
def test_leaving_out_singletons_mends_the_drafter_of_b27(rule, num_groups):
    assert len(split(rule, 30, 10, 5, 1).groups) == num_groups


def test_near_equal_buckets_have_moved_from_the_minimum_to_1_25_to_1_5():
    # PR 29303: 19 and 18; PR 36684: 17 and 12 are 1.42 apart
    assert split("vllm_0_11:ratio=1", 19, 18).group_size == 18
    assert split("vllm_0_11", 19, 18).group_size == 19
    assert split("vllm_0_11", 17, 12).group_size == 12
    assert split("vllm", 17, 12).group_size == 17
    assert split("vllm_0_11", 15, 12).group_size == 12  # exactly 1.25: strict
    assert split("pr_29303", 19, 18) == split("vllm_0_11", 19, 18)


def test_only_singletons_leave_singletons():
    assert lengths_of(split("exclude_singletons", 1, 1)) == [1, 1]
    assert lengths_of(split("pr_51742", 1, 1)) == [1, 1]


def test_singletons_left_out_before_or_without_the_near_equal_rule():
    # 12/13/1: the minimum without the singleton is 12; 13 < 1.5 x 12
    assert split("exclude_singletons", 12, 13, 1).group_size == 12
    assert split("pr_51742", 12, 13, 1).group_size == 13


def test_padding_is_counted_against_the_longest_real_group():
    # 30/10 in elevens: groups of 10, 10, 10 and 10, so nothing is missing
    plan = split("fixed:size=11", 30, 10)
    assert lengths_of(plan) == [10, 10, 10, 10]
    assert [plan.padding_of(bucket) for bucket in buckets_of(30, 10)] == [0, 0]


def test_per_layer_is_one_group_each():
    assert lengths_of(split("per_layer", 3, 2)) == [1] * 5


def test_padding_cost_weighs_a_group_with_c():
    # 52/10: g = 26 has 16 idle slots and 3 groups, g = 13 has 3 and 5, g = 10 has 8 and 7
    assert split("padding_cost:c=7", 52, 10).group_size == 26  # 16 + 21 = 37 against 3 + 35 = 38
    assert split("padding_cost:c=6", 52, 10).group_size == 13  # 3 + 30 = 33 against 16 + 18 = 34
    assert split("padding_cost:c=0", 52, 10).group_size == 1


def test_ties_of_padding_cost_and_of_pr_49472_end_on_opposite_sides():
    # 28/4: g = 4 has 0 + 8, g = 7 has 3 + 5
    assert split("padding_cost", 28, 4).group_size == 4
    assert split("pr_49472", 28, 4).group_size == 7
    # MiMo with a draft: 5 has 2 + 11, 10 has 7 + 6; the text of PR 58175 says that it is 10
    assert split("pr_49472", 39, 9, 5).group_size == 10


def test_approximate_gcd_is_the_rule_of_deepseek_v4():
    # spec/layout.md 6.3 step 3
    assert approximate_divisor([21, 43, 21, 20], 21) == 22
    assert approximate_divisor([11, 21, 11, 10], 11) == 11
    assert [approximate_divisor(s, s[0]) for s in ([3, 10, 4], [5, 12], [4, 10], [7, 5])] == [
        5,
        6,
        5,
        7,
    ]


def test_approximate_gcd_starts_at_the_smallest_bucket():
    # 52/10 from 10: rounding up takes 8 at 10, 4 at 11, 8 + 2 at 12, 3 at 13, 16 at 26
    assert split("approximate_gcd", 52, 10).group_size == 13


def test_pr_31275_as_its_description_says():
    # clean ratios keep zero padding, n + 1 : n pads the smaller type, 20:30 gets 10, 9:7 and 3:7
    # cannot stay under 10 % with three layers or more (2 of 18 slots; 2 of 12)
    sizes = [(25, 5), (24, 8), (6, 5), (20, 30), (9, 7), (3, 7)]
    assert [split("pr_31275", *s).group_size for s in sizes] == [5, 8, 6, 10, 1, 1]


def test_pr_36143_is_the_engine_s_rule_until_a_size_is_named():
    assert split("pr_36143", 52, 10) == split("vllm", 52, 10)
    assert split("pr_36143:size=4", 52, 10).group_size == 4


def with_full(sizes, *which):
    kinds = [full(num_kv_heads=8, head_size=128, non_causal=bool(i)) for i in range(len(sizes))]
    return [
        named(i, kinds[i] if i in which else sliding(sliding_window=1024 + i), n)
        for i, n in enumerate(sizes)
    ]


def test_pr_58175_never_pads_full_attention():
    # 9 full, 39 sliding, 5 draft: width 5 becomes 3, and 18 groups instead of 11
    rule, engine = GROUPING_HEURISTICS["pr_58175"], GROUPING_HEURISTICS["vllm"]
    mimo = with_full((9, 39, 5), 0)
    assert (rule(mimo).group_size, len(rule(mimo).groups)) == (3, 18)
    assert (engine(mimo).group_size, len(engine(mimo).groups)) == (5, 11)
    assert rule(with_full((12, 13), 0)).group_size == 13  # near-equal buckets stay
    assert rule(with_full((12, 18, 30), 0, 1)).group_size == 6  # divides 12 and 18
    assert rule(with_full((10, 52))).group_size == 10  # no full attention: as the engine


# -- rules that weigh groups with the blocks that they hold ------------------------------------
def gemma():
    """52 sliding and 10 full: at 131072 tokens and 8192 in a batch 577 and 8192 blocks."""
    return buckets_of(52, 10, blocks=[577, 8192])


@pytest.mark.parametrize(
    ("percent", "longest"),
    [
        # idle of held pages: g = 10: 8 x 577 of 11654 x 10, 3.96 %;
        # g = 11: 3 x 577 + 8192 = 9923 of 11077 x 11, 8.14 %; g = 12 gives the same groups;
        # g = 13: 3 x 8192 of 10500 x 13, 18.0 %; g = 5: 3 x 577 of 22731 x 5, 1.5 %
        ("10", 11),
        ("8.2", 11),
        ("8.1", 10),
        ("3.9", 5),
        ("0", 2),
        ("20", 13),
        ("100", 52),
    ],
)
def test_overhead_bound_takes_the_largest_size_within_the_bound(percent, longest):
    plan = GROUPING_HEURISTICS[f"overhead_bound:percent={percent}"](gemma())
    assert max(lengths_of(plan)) == longest


def test_overhead_bound_can_count_slots_alike():
    # 3 of 65 slots are 4.6 %; at g = 14 52 layers take 4 groups of 13, so 13 again; 18 has 2 + 8
    # of 72 slots, 13.9 %
    rule = GROUPING_HEURISTICS["overhead_bound:percent=10,weighted=false"]
    assert max(lengths_of(rule(gemma()))) == 13


@pytest.mark.parametrize(
    ("bytes_per_group", "group_size"),
    [
        # a page is 65536; price p in pages: g = 2: 31 p; g = 5: 3 x 577 + 13 p;
        # g = 10: 8 x 577 + 7 p; g = 11: 9923 + 6 p; g = 13: 3 x 8192 + 5 p
        ("0", 2),
        (str(90 * 65536), 2),  # 2790 against 1731 + 1170 = 2901
        (str(100 * 65536), 5),  # 3100 against 1731 + 1300 = 3031
        (str(400 * 65536), 5),  # 6931 against 4616 + 2800 = 7416
        (str(500 * 65536), 10),  # 8231 against 8116
        (str(10000 * 65536), 11),  # 69923 against 74616 and 74576
    ],
)
def test_optimal_trades_weighted_idle_bytes_against_groups(bytes_per_group, group_size):
    rule = GROUPING_HEURISTICS[f"optimal:bytes_per_group={bytes_per_group}"]
    assert rule(gemma()).group_size == group_size


def test_ties_of_optimal_go_to_fewer_idle_bytes_and_then_to_fewer_groups():
    # 20/30 without a price: 1, 2, 5 and 10 leave nothing idle
    assert split("optimal:bytes_per_group=0", 20, 30).group_size == 10
    # 2/1, weights 1: g = 1 is 3 groups, g = 2 one idle page and 2 groups: a tie at one page
    assert split("optimal:bytes_per_group=65536", 2, 1).group_size == 1


def test_optimal_is_the_least_cost_of_all_sizes():
    # the same sum written out over every group of every size
    buckets = buckets_of(52, 10, 7, blocks=[577, 8192, 33])
    costs = {}
    for size in range(1, 53):
        groups = [
            (b, len(range(first, len(b), -(-len(b) // size))))
            for b in buckets
            for first in range(-(-len(b) // size))
        ]
        longest = max(n for _, n in groups)
        idle = sum(b.blocks * (longest - n) * 65536 for b, n in groups)
        # 1 % of what the request fills: (52 x 577 + 10 x 8192 + 7 x 33) pages
        costs[size] = idle + Fraction(112155 * 65536, 100) * len(groups)
    chosen = GROUPING_HEURISTICS["optimal"](buckets).group_size
    assert costs[chosen] == min(costs.values())


def test_a_group_costs_one_percent_of_a_request_unless_something_else_is_said():
    # 111924 pages, 1119 a group: g = 10: 4616 + 7 x 1119 = 12450 is less than 16278 at 5 and
    # 16638 at 11; at 10 % a group costs 11192: g = 13: 24576 + 55962, g = 11: 9923 + 67154
    assert GROUPING_HEURISTICS["optimal"](gemma()).group_size == 10
    assert GROUPING_HEURISTICS["optimal:percent=10"](gemma()).group_size == 11


# -- weights, and the text that names a rule ---------------------------------------------------
def test_weights_come_from_the_specs_and_the_longest_request():
    seen = []
    GROUPING_HEURISTICS.register("test_only_weights", lambda buckets: seen.append(buckets))
    try:
        rule = heuristic_for("test_only_weights", limits())
        rule([named(0, sliding(), 52), named(1, full(), 10)])
    finally:
        del GROUPING_HEURISTICS._entries["test_only_weights"]
    # 8192 blocks; ceil((1023 + 8192) / 16) + 1 = 577
    assert [bucket.blocks for bucket in seen[0]] == [577, 8192]


def test_lengths_change_what_overhead_bound_allows():
    # at 1024 tokens: 64 full blocks, and 64 + 1 sliding ones: slots count nearly alike, so 13:
    # 3 x 64 of 13 x (4 x 65 + 64) = 4.6 %
    buckets = [named(0, sliding(), 52), named(1, full(), 10)]
    long = heuristic_for("overhead_bound", limits())(buckets)
    short = heuristic_for("overhead_bound:lengths=1024", limits())(buckets)
    assert (max(lengths_of(long)), max(lengths_of(short))) == (11, 13)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("vlm", "cache.grouping: vlm: known: vllm, "),
        ("gcd:size=3", "cache.grouping.gcd: size: no parameters: it has none"),
        ("fixed:sise=3", "cache.grouping.fixed: sise: known: size; did you mean size?"),
        ("fixed:size=0", "cache.grouping.fixed.size: 0: an integer from 1 to"),
        ("fixed:size", "cache.grouping.fixed.size: : an integer"),
        ("padding_cost:c=-1", "cache.grouping.padding_cost.c: -1: a number from 0"),
        ("padding_cost:c=1e999999999", "cache.grouping.padding_cost.c: 1e999999999: a number"),
        ("overhead_bound:weighted=yes", "cache.grouping.overhead_bound.weighted: yes: true or"),
        ("optimal:lengths=5*", "cache.grouping.optimal.lengths: 5*: LENGTH or LENGTH*TIMES"),
        ("optimal:lengths=131073", "cache.grouping.lengths: 131073: lengths of at most"),
        ("optimal:bytes_per_group=1XB", "cache.grouping.optimal.bytes_per_group: 1XB: a number"),
        ("lcm_page", "cache.grouping: lcm_page: a memory plan"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_in_one_line(text, line):
    with pytest.raises(ConfigError) as refusal:
        heuristic_for(text, limits())
    (shown,) = refusal.value.lines()
    assert shown.startswith(line)


def test_numbers_are_read_exactly():
    assert GROUPING_HEURISTICS["padding_cost:c=0.1"].values == {"c": Fraction(1, 10)}
    given = GROUPING_HEURISTICS["overhead_bound:percent=5, weighted=false"].values
    assert (given["percent"], given["weighted"]) == (5, False)

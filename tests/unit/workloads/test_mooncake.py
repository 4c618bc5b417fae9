import gzip
import json
import lzma
import pickle
from pathlib import Path

import pytest
import simpy
from pydantic import ValidationError

from sim.prefix_ids import PrefixIds
from sim.request import Span
from workloads.errors import TraceFormatError
from workloads.mooncake import MooncakeParams, TraceArrival, count, process, requests
from workloads.streams import Streams
from workloads.trace_file import MAX_LINE_BYTES

TRACES = Path(__file__).parents[3] / ".." / "shared" / "traces"


def line(timestamp=0, input_length=10, output_length=3, hash_ids=(0, 1, 2), **more) -> dict:
    return {
        "timestamp": timestamp,
        "input_length": input_length,
        "output_length": output_length,
        "hash_ids": list(hash_ids),
        **more,
    }


@pytest.fixture
def trace(tmp_path):
    """Write rows (dicts, or text as it is) and return parameters with blocks of 4 tokens."""

    def write(*rows, **params) -> MooncakeParams:
        path = tmp_path / "trace.jsonl"
        texts = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return MooncakeParams(path=path, **{"block_size": 4, **params})

    return write


def specs(params: MooncakeParams) -> list:
    return [spec for _, spec in requests(params)]


def arrivals(params: MooncakeParams) -> list[int]:
    return [at for at, _ in requests(params)]


def refused(params: MooncakeParams) -> TraceFormatError:
    with pytest.raises(TraceFormatError) as caught:
        list(requests(params))
    return caught.value


class TestSpans:
    def test_full_blocks_are_spans_of_their_ids_and_the_rest_is_private(self, trace):
        # 10 tokens: two full blocks of 4; the listed third id covers 2 tokens only
        (spec,) = specs(trace(line(input_length=10, hash_ids=[7, 8, 9])))
        assert spec.prompt == (
            Span("trace:7", 0, 4),
            Span("trace:8", 0, 4),
            Span("r0.prompt", 0, 2),
        )
        assert spec.output == Span("r0.output", 0, 3)

    def test_a_list_without_the_partial_block_gives_the_same_spans(self, trace):
        listed = specs(trace(line(input_length=10, hash_ids=[7, 8, 9])))
        assert specs(trace(line(input_length=10, hash_ids=[7, 8]))) == listed

    def test_a_prompt_of_whole_blocks_has_no_private_part(self, trace):
        (spec,) = specs(trace(line(input_length=8, hash_ids=[7, 8])))
        assert spec.prompt == (Span("trace:7", 0, 4), Span("trace:8", 0, 4))

    def test_a_prompt_below_one_block_is_private(self, trace):
        for ids in ([], [5]):
            (spec,) = specs(trace(line(input_length=3, hash_ids=ids)))
            assert spec.prompt == (Span("r0.prompt", 0, 3),)

    def test_the_same_partial_block_is_not_shared(self, trace):
        ids = PrefixIds(1)
        first, second = (ids.of(s).tolist() for s in specs(trace(line(), line())))
        assert first[:8] == second[:8]
        assert not set(first[8:]) & set(second[8:])

    def test_ids_that_do_not_chain_are_chained(self, trace):
        # block 5 behind block 1 is not block 5 behind block 2, though the id says so
        ids = PrefixIds(4)
        rows = [line(input_length=8, output_length=1, hash_ids=h) for h in ([1, 5], [2, 5], [1, 5])]
        assert [ids.of(s).tolist() for s in specs(trace(*rows))] == [[0, 1], [2, 3], [0, 1]]

    def test_an_output_of_zero_tokens_counts_as_one_and_is_tagged(self, trace):
        zero, one = specs(trace(line(output_length=0), line(output_length=1)))
        assert (zero.num_output_tokens, zero.tags) == (1, ("zero_output",))
        assert (one.num_output_tokens, one.tags) == (1, ())


class TestFields:
    def test_requests_are_numbered_in_file_order_also_at_one_instant(self, trace):
        params = trace(line(5, 4, hash_ids=[1]), line(5, 5, hash_ids=[1]), line(6, 6, hash_ids=[1]))
        found = list(requests(params))
        assert [(at, s.request_id, s.num_prompt_tokens) for at, s in found] == [
            (5_000_000, "r0", 4),
            (5_000_000, "r1", 5),
            (6_000_000, "r2", 6),
        ]

    def test_other_keys_are_ignored_and_session_id_is_kept(self, trace):
        params = trace(
            line(session_id=3, line=17, original_hash_ids=[1], delay=None),
            line(session_id="trace_0001/agent_002"),
            line(session_id=None),
            line(),
        )
        assert [s.session_id for s in specs(params)] == ["3", "trace_0001/agent_002", None, None]

    def test_short_names_mean_the_same(self, trace):
        short = {"ts": 2, "il": 10, "ol": 3, "bh": ["0", "1", "2"], "cached": 0}
        assert list(requests(trace(short))) == list(requests(trace(line(timestamp=2))))

    def test_blank_lines_and_carriage_returns_and_a_byte_order_mark_are_fine(self, tmp_path):
        text = f"{json.dumps(line())}\r\n\r\n  \n{json.dumps(line(1))}"
        path = tmp_path / "t.jsonl"
        path.write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert arrivals(MooncakeParams(path=path, block_size=4)) == [0, 1_000_000]

    def test_max_requests_takes_the_head_and_does_not_look_further(self, trace):
        params = trace(line(), line(1), "not json", max_requests=2)
        assert count(params) == 2

    def test_empty_prompts_are_left_out_on_demand(self, trace):
        rows = [line(), line(1, 0, hash_ids=[]), line(2)]
        params = trace(*rows, skip_empty=True)
        assert [(at, s.request_id) for at, s in requests(params)] == [(0, "r0"), (2_000_000, "r1")]
        assert refused(trace(*rows)).key.endswith("trace.jsonl:2:input_length")


class TestTime:
    @pytest.mark.parametrize(
        ("unit", "value", "expected"),
        [
            ("ms", 3, 3_000_000),
            ("ms", 46.927, 46_927_000),
            ("s", 1.5, 1_500_000_000),
            ("us", 2, 2_000),
            ("ns", 7, 7),
            # 2**53 + 1 is no float: whole numbers stay exact
            ("ns", 2**53 + 1, 2**53 + 1),
        ],
    )
    def test_instants_are_whole_nanoseconds(self, trace, unit, value, expected):
        assert arrivals(trace(line(value), time_unit=unit)) == [expected]

    def test_half_a_nanosecond_goes_to_the_even_number(self, trace):
        # 1, 3, 5 ns at twice the rate: 0.5, 1.5, 2.5
        rows = [line(t) for t in (1, 3, 5)]
        params = trace(*rows, time_unit="ns", arrival=TraceArrival(arrival_scale=2.0))
        assert arrivals(params) == [0, 2, 2]

    def test_arrival_scale_multiplies_the_rate(self, trace):
        rows = [line(t) for t in (0, 1, 3, 3_536_999)]
        slow = trace(*rows, arrival=TraceArrival(arrival_scale=0.2))
        # a fifth of the rate: five times as late, to the nanosecond
        assert arrivals(slow) == [0, 5_000_000, 15_000_000, 17_684_995_000_000]
        fast = trace(*rows, arrival=TraceArrival(arrival_scale=4.0))
        assert arrivals(fast) == [0, 250_000, 750_000, 884_249_750_000]


BAD_LINES = [
    ("timestamp", {"timestamp": -1}),
    ("timestamp", {"timestamp": float("nan")}),
    ("timestamp", {"timestamp": float("inf")}),
    ("timestamp", {"timestamp": True}),
    ("timestamp", {"timestamp": "5"}),
    ("timestamp", {"timestamp": None}),
    ("timestamp", {"timestamp": 10**400}),
    ("timestamp", {"timestamp": 1e300}),
    ("timestamp", {"timestamp": 0.5}),  # earlier than the line before
    ("input_length", {"input_length": -10}),
    ("input_length", {"input_length": 0, "hash_ids": []}),
    ("input_length", {"input_length": 10.0}),
    ("input_length", {"input_length": True, "hash_ids": []}),
    ("input_length", {"input_length": 2**31}),
    ("output_length", {"output_length": -1}),
    ("output_length", {"output_length": 2.5}),
    ("output_length", {"output_length": False}),
    ("output_length", {"output_length": 10**30}),
    ("hash_ids", {"hash_ids": [0]}),
    ("hash_ids", {"hash_ids": [0, 1, 2, 3]}),
    ("hash_ids", {"hash_ids": []}),
    ("hash_ids", {"input_length": 8}),  # whole blocks: no partial one to list
    ("hash_ids", {"hash_ids": [0, True]}),
    ("hash_ids", {"hash_ids": [0, 1.0]}),
    ("hash_ids", {"hash_ids": [0, "x"]}),
    ("hash_ids", {"hash_ids": [0, ""]}),
    ("hash_ids", {"hash_ids": [0, None]}),
    ("hash_ids", {"hash_ids": "012"}),
    ("hash_ids", {"hash_ids": None}),
    ("session_id", {"session_id": [1]}),
    ("session_id", {"session_id": 1.5}),
    ("session_id", {"session_id": "\ud800"}),
]


class TestErrors:
    @pytest.mark.parametrize(("field", "change"), BAD_LINES, ids=repr)
    def test_a_wrong_value_is_named_with_line_and_field(self, trace, field, change):
        error = refused(trace(line(1), {**line(1), **change}))
        assert (error.line, error.field) == (2, field)
        assert str(error).startswith(f"{error.path}:2:{field}: ")

    @pytest.mark.parametrize("field", ["timestamp", "input_length", "output_length", "hash_ids"])
    def test_a_missing_field_is_named(self, trace, field):
        row = line()
        del row[field]
        error = refused(trace(row))
        assert (error.line, error.field, error.value) == (1, field, "missing")

    def test_the_id_list_says_what_would_fit(self, trace):
        error = refused(trace(line(hash_ids=[0])))
        assert str(error).endswith(
            "trace.jsonl:1:hash_ids: 1 ids: 2 or 3 ids for 10 tokens in blocks of 4"
        )

    @pytest.mark.parametrize(
        "text",
        [
            '{"timestamp": 0, "input_length": 10, "outp',
            "[1, 2]",
            "7",
            "null",
            "x",
            "{}{}",
            "[" * 100_000,
            '{"timestamp": ' + "9" * 5000 + "}",
        ],
        ids=lambda text: text[:12],
    )
    def test_a_line_that_is_not_one_object_is_named(self, trace, text):
        error = refused(trace(line(), text))
        assert (error.line, error.field) == (2, None)
        assert len(str(error)) < 400

    def test_an_error_survives_a_copy(self, trace):
        error = refused(trace("x"))
        copied = pickle.loads(pickle.dumps(error))
        assert (str(copied), copied.line) == (str(error), 1)

    def test_good_lines_come_before_the_bad_one_is_found(self, trace):
        found = requests(trace(line(), "x"))
        assert next(found)[1].request_id == "r0"
        with pytest.raises(TraceFormatError):
            next(found)

    def test_not_utf8(self, tmp_path):
        path = tmp_path / "t.jsonl"
        path.write_bytes(json.dumps(line()).encode() + b'\n{"\xff": 1}\n')
        error = refused(MooncakeParams(path=path, block_size=4))
        assert (error.line, error.allowed) == (2, "UTF-8 text")

    @pytest.mark.parametrize(
        "content", [b"", b"\n \n", gzip.compress(b"", mtime=0), lzma.compress(b"\n")]
    )
    def test_an_empty_file(self, tmp_path, content):
        path = tmp_path / "t.jsonl"
        path.write_bytes(content)
        error = refused(MooncakeParams(path=path))
        assert (error.line, error.value) == (None, "empty")

    def test_a_file_that_is_not_there_or_not_a_file(self, tmp_path):
        for path in (tmp_path / "absent.jsonl", tmp_path, "/dev/zero", "a\0b"):
            error = refused(MooncakeParams(path=path))
            assert (error.line, error.value) == (None, "not there")

    def test_a_line_without_end(self, tmp_path):
        path = tmp_path / "t.jsonl.gz"
        path.write_bytes(gzip.compress(b" " * (MAX_LINE_BYTES + 1), 1))
        # blank as far as it goes, so no request; one letter more makes it a line
        assert refused(MooncakeParams(path=path)).value == "empty"
        path.write_bytes(gzip.compress(b"{" + b" " * MAX_LINE_BYTES, 1))
        assert refused(MooncakeParams(path=path)).allowed == "a line of at most 16777216 bytes"


class TestCompression:
    CONTENT = "".join(json.dumps(line(t)) + "\n" for t in range(500)).encode()

    @pytest.mark.parametrize("name", ["t.jsonl", "t.gz", "t.xz"])
    @pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
    def test_bytes_and_not_the_name_tell_the_compression(self, tmp_path, name, pack):
        path = tmp_path / name
        path.write_bytes(pack(self.CONTENT))
        assert count(MooncakeParams(path=path, block_size=4)) == 500

    @pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
    @pytest.mark.parametrize("keep", [0.5, 0.99])
    def test_a_cut_file_is_an_error(self, tmp_path, pack, keep):
        path = tmp_path / "t"
        packed = pack(self.CONTENT)
        path.write_bytes(packed[: int(len(packed) * keep)])
        error = refused(MooncakeParams(path=path, block_size=4))
        assert error.allowed == "a whole file: plain, gzip or xz"
        assert error.line >= 1

    def test_garbage_behind_the_end_of_gzip_is_an_error(self, tmp_path):
        path = tmp_path / "t.gz"
        path.write_bytes(gzip.compress(self.CONTENT) + b"garbage")
        error = refused(MooncakeParams(path=path, block_size=4))
        assert (error.line, error.allowed) == (501, "a whole file: plain, gzip or xz")


class TestProcess:
    def test_reads_the_next_line_only_when_the_one_before_is_submitted(self, trace):
        # the bad third line comes to light at 4 ms, when the second has been submitted
        env = simpy.Environment(0)
        submitted = []
        params = trace(line(1), line(4), "x")
        env.process(process(env, lambda s: submitted.append((env.now, s)), Streams(0), params))
        with pytest.raises(TraceFormatError):
            env.run()
        assert [at for at, _ in submitted] == [1_000_000, 4_000_000]
        assert env.now == 4_000_000


class TestParameters:
    @pytest.mark.parametrize(
        ("place", "data"),
        [
            (("path",), {}),
            (("path",), {"path": ""}),
            (("path",), {"path": 5}),
            (("block_size",), {"path": "t", "block_size": 0}),
            (("block_size",), {"path": "t", "block_size": 16.0}),
            (("time_unit",), {"path": "t", "time_unit": "min"}),
            (("max_requests",), {"path": "t", "max_requests": 0}),
            (("arrival", "rate_per_s"), {"path": "t", "arrival": {"rate_per_s": 1.0}}),
            (("arrival", "kind"), {"path": "t", "arrival": {"kind": "open"}}),
            (("blocksize",), {"path": "t", "blocksize": 16}),
        ],
    )
    def test_wrong_parameters_are_refused_by_name(self, place, data):
        with pytest.raises(ValidationError) as caught:
            MooncakeParams(**data)
        assert [error["loc"] for error in caught.value.errors()] == [place]

    def test_a_path_is_kept_as_text(self):
        assert MooncakeParams(path=Path("a/b.gz")).path == "a/b.gz"


@pytest.mark.traces
@pytest.mark.parametrize(
    ("name", "params", "num_requests"),
    [
        ("mooncake_conversation_trace.jsonl.gz", {}, 12_031),
        ("mooncake_synthetic_trace.jsonl.gz", {}, 3_993),
        ("mooncake_toolagent_trace_head10.jsonl", {}, 10),
        ("dynamo_mooncake_trace_1000.jsonl", {}, 1_000),
        pytest.param(
            "derived_kvcachetester_subset60_merged.jsonl.gz",
            {"block_size": 64},
            1_560,
            marks=pytest.mark.slow,
        ),
        ("derived_lmcache_agent_miniswe_cl100k_blk16.jsonl.gz", {"block_size": 16}, 402),
        # 746 rows, 53 of them with an empty input
        (
            "derived_lmcache_agent_magagent_cl100k_blk16.jsonl.gz",
            {"block_size": 16, "skip_empty": True},
            693,
        ),
        ("derived_lmcache_agent_taubench_cl100k_blk16.jsonl.gz", {"block_size": 16}, 471),
        (
            "derived_llmservingsim_sharegpt-llama-3.1-8b-300-sps10_blk16.jsonl.gz",
            {"block_size": 16},
            300,
        ),
        ("rtpllm_trace_30min.jsonl.gz", {"block_size": 1024}, 8_332),
        ("qwenbailian_thinking_first_row.jsonl", {"block_size": 16, "time_unit": "s"}, 1),
    ],
)
def test_public_traces_are_read_whole(name, params, num_requests):
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"{name} is not there")
    assert count(MooncakeParams(path=path, **params)) == num_requests

"""The table and the figure of the cliff in docs/reasons.md: where prefix hits fall to zero.

python results/b1_cliff/make.py

Sessions of one prompt length are sent round robin to Gemma 4 31B with an fp8 cache: five groups of
10 sliding layers (window 1024, block 16) and one of 10 full layers (block 32). Only the manager and
the scheduler run, so there is no time in it. Source of the case: vllm-project/vllm issue 48435.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import lcm
from pathlib import Path
from typing import Any

from sim.core.attention import register_attention_kind
from sim.core.attention.sliding_window import SlidingWindowManager
from sim.core.kv_cache_manager import KVCacheManager
from sim.layout.kv_cache_config import KVCacheConfig, KVCacheGroupSpec
from sim.layout.kv_cache_spec import FullAttentionSpec, SlidingWindowSpec
from sim.plots import save_figure
from sim.prefix_ids import PrefixIds
from sim.request import Request, RequestSpec, Span
from sim.scheduler.scheduler import Scheduler, SchedulerLimits

HERE = Path(__file__).parent
NUM_SLIDING_GROUPS = 5
MAX_MODEL_LEN = 65_536
LARGEST_POOL = 40_000

# -- what becomes of blocks that leave the window before the request ends ---------------------


class AscendingSpec(SlidingWindowSpec):
    """A window whose left blocks are freed first to last instead of last to first."""


class AtTheEndSpec(SlidingWindowSpec):
    """A window that keeps all blocks until the request ends."""


class AtOnceSpec(SlidingWindowSpec):
    """A window whose left blocks lose their content and are the next to be taken."""


class _Reversing:
    """The pool, but lists of blocks are freed the other way round."""

    def __init__(self, pool: Any):
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def free_blocks(self, ordered_blocks: Sequence[int]) -> None:
        self._pool.free_blocks(ordered_blocks[::-1])


class _Forgetting(_Reversing):
    """The pool, but blocks that are freed are not findable any more."""

    def free_blocks(self, ordered_blocks: Sequence[int]) -> None:
        self._pool.evict_blocks(ordered_blocks)
        self._pool.free_blocks(ordered_blocks)


class _OtherPool(SlidingWindowManager):
    pool_class: type[_Reversing]

    def remove_skipped_blocks(self, *args: Any, **kwargs: Any) -> None:
        pool = self.block_pool
        self.block_pool = self.pool_class(pool)  # type: ignore[assignment]
        super().remove_skipped_blocks(*args, **kwargs)
        self.block_pool = pool


class AscendingManager(_OtherPool):
    """See ``AscendingSpec``."""

    pool_class = _Reversing


class AtOnceManager(_OtherPool):
    """See ``AtOnceSpec``."""

    pool_class = _Forgetting


class AtTheEndManager(SlidingWindowManager):
    """See ``AtTheEndSpec``."""

    def remove_skipped_blocks(self, *args: Any, **kwargs: Any) -> None:
        """Free nothing."""


WINDOWS = {
    "descending": SlidingWindowSpec,
    "ascending": AscendingSpec,
    "at once": AtOnceSpec,
    "at the end": AtTheEndSpec,
}
_MANAGERS = {
    AscendingSpec: AscendingManager,
    AtOnceSpec: AtOnceManager,
    AtTheEndSpec: AtTheEndManager,
}

# -- one case ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One pool, one scheduler, one stream of requests; the defaults are the reported case."""

    sessions: int = 8
    blocks: int = 11_545
    chunk: int = 8192
    prompt: int = 4564
    suffix: int = 64
    output: int = 1
    window: int = 1024
    sliding_block: int = 16
    full_block: int = 32
    eager_free: str = "descending"
    retention: int | None = None
    rounds: int = 4

    def manager(self) -> KVCacheManager:
        """Return an empty cache manager."""
        window = WINDOWS[self.eager_free]
        heads: dict[str, Any] = {"head_size": 256, "dtype_bytes": 1}
        sliding = window(
            block_size=self.sliding_block, num_kv_heads=8, sliding_window=self.window, **heads
        )
        full = FullAttentionSpec(block_size=self.full_block, num_kv_heads=4, **heads)
        specs = [sliding] * NUM_SLIDING_GROUPS + [full]
        groups = tuple(KVCacheGroupSpec((f"layer.{g}",), spec) for g, spec in enumerate(specs))
        return KVCacheManager(
            KVCacheConfig(self.blocks, (), groups),
            MAX_MODEL_LEN,
            scheduler_block_size=lcm(self.sliding_block, self.full_block),
            hash_block_size=self.sliding_block,
            max_num_batched_tokens=self.chunk,
            retention_interval=self.retention,
        )

    def specs(self) -> Iterator[RequestSpec]:
        """Yield the requests: round by round, session by session."""
        for turn in range(self.rounds):
            for session in range(self.sessions):
                request_id = f"c{session}.{turn}"
                spans = [Span(f"c{session}", 0, self.prompt - self.suffix)]
                if self.suffix:
                    spans.append(Span(f"{request_id}.suffix", 0, self.suffix))
                output = Span(f"{request_id}.output", 0, self.output)
                yield RequestSpec(request_id, tuple(spans), output)

    def hits(self) -> list[int]:
        """Return the tokens found, one number per request."""
        limits = SchedulerLimits(self.chunk, 8, MAX_MODEL_LEN)
        scheduler = Scheduler(self.manager(), limits)
        identities = PrefixIds(self.sliding_block)
        return [self._serve(scheduler, spec, identities) for spec in self.specs()]

    def _serve(self, scheduler: Scheduler, spec: RequestSpec, identities: PrefixIds) -> int:
        request = Request(
            spec.request_id,
            spec.num_prompt_tokens,
            spec.num_output_tokens,
            identities.of(spec).tolist(),
        )
        scheduler.add_request(request)
        while scheduler.requests:
            scheduler.update_from_output(scheduler.schedule())
        return request.num_cached_tokens

    def steady(self) -> list[int]:
        """Return the hits of the last round."""
        return self.hits()[-self.sessions :]


def most_sessions(case: Case) -> int:
    """Return the most sessions that all find something in the last round."""
    sessions = 0
    while min(replace(case, sessions=sessions + 1).steady()) > 0:
        sessions += 1
    return sessions


def fewest_blocks(case: Case) -> int | None:
    """Return the smallest pool in which all sessions find something in the last round.

    None: not even in one that holds everything that was ever stored.
    """
    low, high = 500, LARGEST_POOL
    if min(replace(case, blocks=high).steady()) == 0:
        return None
    while low < high:
        middle = (low + high) // 2
        if min(replace(case, blocks=middle).steady()) > 0:
            high = middle
        else:
            low = middle + 1
    return low


# -- the table --------------------------------------------------------------------------------
REPORTED = Case()
SMALL_CHUNKS = Case(blocks=7051, chunk=2048)

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("as reported", {}),
    *((f"chunk {n:,}", {"chunk": n}) for n in (512, 2048, 4096)),
    ("window 512", {"window": 512}),
    *((f"chunk 2,048, window {n:,}", {"chunk": 2048, "window": n}) for n in (512, 2048)),
    *(
        (f"full block {n:,}, sliding block {m}", {"full_block": n, "sliding_block": m})
        for n, m in ((16, 16), (64, 16), (128, 16), (64, 32), (2048, 16))
    ),
    *(
        (f"chunk 2,048, window left {order}", {"chunk": 2048, "eager_free": order})
        for order in ("ascending", "at once", "at the end")
    ),
    ("64 output tokens", {"output": 64}),
    *(
        (f"64 output tokens, window left {order}", {"output": 64, "eager_free": order})
        for order in ("ascending", "at once", "at the end")
    ),
    ("no new suffix", {"suffix": 0}),
    ("retention interval 0", {"retention": 0}),
    ("retention interval 0, no new suffix", {"retention": 0, "suffix": 0}),
    ("retention interval 2,048", {"retention": 2048}),
]


def rows() -> Iterator[dict[str, Any]]:
    """Yield for each variant the sessions that fit 11,545 blocks, and the blocks that 8 need."""
    for name, changes in VARIANTS:
        case = replace(REPORTED, **changes)
        yield {
            "variant": name,
            "most_sessions": most_sessions(case),
            "fewest_blocks_for_8": fewest_blocks(case) or "never",
        }


def write_table(path: Path) -> list[dict[str, Any]]:
    """Write the table and return it."""
    table = list(rows())
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return table


# -- the figure -------------------------------------------------------------------------------
def hit_rates(case: Case, most: int) -> list[float]:
    """Return the share of prompt tokens found in the last round, for 1, 2, ... sessions."""
    rates = []
    for sessions in range(1, most + 1):
        steady = replace(case, sessions=sessions).steady()
        rates.append(100 * sum(steady) / (sessions * case.prompt))
    return rates


def draw(figure: Any, table: Sequence[dict[str, Any]]) -> None:
    """Draw the cliff, and what moves it."""
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    _draw_cliff(left)
    _draw_movers(right, table)


def _draw_cliff(axes: Any) -> None:
    most = 12
    lines = [
        (REPORTED, "11,545 blocks, chunk 8,192", "C0", "o-"),
        (SMALL_CHUNKS, "7,051 blocks, chunk 2,048", "C1", "s--"),
        (replace(REPORTED, retention=2048), "11,545 blocks, retention 2,048", "C2", "^:"),
    ]
    for case, label, colour, style in lines:
        axes.plot(range(1, most + 1), hit_rates(case, most), style, color=colour, label=label)
    axes.set_xlabel("sessions sent round robin, 4,564 tokens each", fontsize=14)
    axes.set_ylabel("prompt tokens found in the cache [%]", fontsize=14)
    axes.set_xticks(range(1, most + 1))
    axes.set_ylim(-3, 132)
    axes.set_yticks(range(0, 101, 20))
    axes.tick_params(labelsize=12)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize=12.5)
    axes.set_title("All or nothing", fontsize=15)


def _draw_movers(axes: Any, table: Sequence[dict[str, Any]]) -> None:
    names = [row["variant"] for row in table]
    found = [row["fewest_blocks_for_8"] for row in table]
    values = [0 if value == "never" else value for value in found]
    axes.axvline(values[0], color="C0", linewidth=1, zorder=0)
    axes.barh(names, values, color=["C0", *["0.65"] * (len(values) - 1)])
    for place, value in enumerate(values):
        text = f"{value:,}" if value else "never: what it needs is not kept"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        axes.text(value + 200, place, text, va="center", fontsize=12, bbox=box)
    axes.set_xlim(0, max(values) * 1.2)
    axes.invert_yaxis()
    axes.tick_params(labelsize=12)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("smallest pool in which 8 sessions hit [blocks]", fontsize=14)
    axes.set_title("What moves the cliff", fontsize=15)


def main() -> None:
    """Write everything beside this file."""
    for spec, manager in _MANAGERS.items():
        register_attention_kind(spec, manager)
    table = write_table(HERE / "cliff.csv")
    save_figure(lambda figure: draw(figure, table), HERE, "cliff", (12.5, 7.5))
    for row in table:
        print(*row.values(), sep=", ")


if __name__ == "__main__":
    main()

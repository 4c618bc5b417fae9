"""Plays the operations of a manager world on one side, one record after every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.differential.side import ManagerSide
from tests.differential.world import Content, World


class Record(NamedTuple):
    """One call: what was asked in plain words, the answer, and everything that can be seen after.

    An answer ("error", type) ends the world: after an error the two sides owe each other nothing.
    """

    asked: tuple[Any, ...]
    answer: Any
    seen: tuple[Any, ...] | None


@dataclass
class Live:
    """A request that has been made: the side's record, and what the caller knows of it."""

    number: int
    request: Any
    max_tokens: int
    outputs: int = 0
    encoder: int = 0

    @property
    def name(self) -> str:
        return self.request.request_id


class ManagerPlay:
    """The caller's part: it chooses from what the side has answered, never from what is inside."""

    def __init__(self, world: World, content: Content, side: ManagerSide, errors: tuple):
        self.world, self.content, self.side, self.errors = world, content, side, errors
        self.manager = side.manager
        self.unborn = list(range(len(world.requests)))[::-1]
        self.waiting: list[Live] = []
        self.running: list[Live] = []
        self.loading: list[Live] = []
        self.parked: list[list[int]] = []
        self.asked: tuple[Any, ...] = ()

    def records(self) -> Iterator[Record]:
        """Play all operations; those that need what is not there are left out."""
        for place, (verb, *numbers) in enumerate(self.world.ops):
            call: Callable[..., Any] = getattr(self, verb)
            self.side.at(place * 1000)
            try:
                answer = call(*numbers)
            except self.errors as error:
                yield Record(self.asked, ("error", type(error).__name__, str(error)), None)
                return
            if answer is not NOTHING:
                yield Record(self.asked, answer, self.side.snapshot())

    def ask(self, *what: Any) -> None:
        self.asked = what

    # -- requests --------------------------------------------------------------------------
    def come(self) -> Any:
        if not self.unborn:
            return NOTHING
        number = self.unborn.pop()
        told = self.world.requests[number]
        live = Live(number, self.side.request(number), told["max_tokens"])
        live.encoder = told.get("encoder", 0)
        self.waiting.append(live)
        self.ask("come", live.name)
        return live.request.num_tokens

    def admit(
        self,
        which: int,
        parts: int = 1,
        lookahead: int = 0,
        gate: int = 0,
        others: int = 1,
        external: int = 0,
        delay: int = 0,
        reserved: int = 0,
    ) -> Any:
        """Look a waiting request up and allocate its first chunk."""
        live = self._of(self.waiting, which) or self._of_new()
        if live is None:
            return NOTHING
        rows, found, hit = self.side.look_up(live.request)
        return self._admit(
            live, rows, found, hit, parts, lookahead, gate, others, external, delay, reserved
        )

    def _admit(
        self, live, rows, found, hit, parts, lookahead, gate, others, external, delay, reserved
    ):
        rest = live.request.num_tokens - hit
        external = min(external, rest if delay else rest - 1)
        delay = delay and external > 0
        num_new = 0 if delay else max(1, (rest - external) // max(parts, 1))
        settings = {"num_new_computed_tokens": hit}
        self._optional(
            settings,
            num_lookahead_tokens=0 if delay else lookahead,
            num_external_computed_tokens=external,
            delay_cache_blocks=bool(delay),
            num_encoder_tokens=live.encoder,
            full_sequence_must_fit=bool(gate),
            reserved_blocks=reserved,
        )
        if not others:
            settings["has_scheduled_reqs"] = False
        self.ask("admit", live.name, num_new, settings)
        new = self.side.allocate(live.request, num_new, rows, **settings)
        if new is None:
            return found, hit, None
        self.waiting.remove(live)
        self.side.set_status(live.request, "RUNNING")
        live.request.num_computed_tokens = hit + external + num_new
        (self.loading if delay else self.running).append(live)
        return found, hit, new

    @staticmethod
    def _optional(settings: dict[str, Any], **values: Any) -> None:
        settings.update({key: value for key, value in values.items() if value})

    def loaded(self, which: int, lost: int = 0) -> Any:
        """An asynchronous load ends: what arrived is registered, and the request goes on."""
        live = self._of(self.loading, which)
        if live is None:
            return NOTHING
        request = live.request
        arrived = max(request.num_computed_tokens - lost, 1)
        self.ask("loaded", live.name, arrived)
        self.manager.cache_blocks(request, arrived)
        request.num_computed_tokens = min(arrived, request.num_tokens - 1)
        self.side.set_status(request, "WAITING")  # until its next allocation succeeds
        self.loading.remove(live)
        self.running.append(live)
        return True

    def go_on(
        self,
        which: int,
        parts: int = 1,
        drafts: int = 0,
        accepted: int = 0,
        lookahead: int = 0,
        gate: int = 0,
        reserved: int = 0,
    ) -> Any:
        """Allocate the next chunk of a running request, or its next token with drafts."""
        live = self._of(self.running, which)
        if live is None:
            return NOTHING
        request = live.request
        if request.num_computed_tokens >= request.num_tokens:
            if not self._room(live):
                return self.free(which)
            self._append(live, 1)
        computed = request.num_computed_tokens
        rest = request.num_tokens - computed
        drafts = min(drafts, self._room(live)) if rest == 1 else 0
        num_new = max(1, rest // max(parts, 1)) + drafts
        settings: dict[str, Any] = {}
        self._optional(
            settings,
            num_lookahead_tokens=lookahead,
            full_sequence_must_fit=bool(gate),
            reserved_blocks=reserved,
        )
        self.ask("go on", live.name, computed, num_new, settings, drafts - min(accepted, drafts))
        new = self.side.allocate(request, num_new, None, **settings)
        if new is not None:
            self.side.set_status(request, "RUNNING")
            accepted = min(accepted, drafts)
            self._append(live, accepted)
            request.num_computed_tokens = computed + num_new - (drafts - accepted)
        return new

    def _room(self, live: Live) -> int:
        """Tokens that may still be generated."""
        left = self.world.max_model_len - live.request.num_tokens - 1
        return max(0, min(live.max_tokens - live.outputs, left))

    def _append(self, live: Live, count: int) -> None:
        if count:
            self.side.append(live.number, live.request, count)
            live.outputs += count

    def free(self, which: int) -> Any:
        live = self._of(self.running, which)
        if live is None:
            return NOTHING
        self.ask("free", live.name)
        self.running.remove(live)
        return self.side.free(live.request)

    def free_waiting(self, which: int) -> Any:
        """Free a request that was never admitted: legal, and changes nothing."""
        live = self._of(self.waiting, which)
        if live is None:
            return NOTHING
        self.ask("free waiting", live.name)
        self.waiting.remove(live)
        return self.side.free(live.request)

    def preempt(self, which: int) -> Any:
        live = self._of(self.running, which)
        if live is None:
            return NOTHING
        self.ask("preempt", live.name)
        self.running.remove(live)
        self.side.free(live.request)
        self.side.set_status(live.request, "PREEMPTED")
        live.request.num_computed_tokens = 0
        live.request.num_preemptions += 1
        self.waiting.insert(0, live)
        return None

    def park(self, which: int) -> Any:
        """Take a request's blocks away but keep them from the pool: a deferred free."""
        live = self._of(self.running, which)
        if live is None:
            return NOTHING
        self.ask("park", live.name)
        self.running.remove(live)
        self.parked.append(self.side.pop_for_free(live.request))
        return self.parked[-1]

    def give_back(self) -> Any:
        if not self.parked:
            return NOTHING
        ids = self.parked.pop(0)[::-1]
        self.ask("give back", ids)
        return self.side.free_ids(ids)

    # -- the pool ---------------------------------------------------------------------------
    def new_step(self) -> Any:
        self.ask("new step")
        return self.manager.new_step_starts()

    def reset(self, everything: int = 0) -> Any:
        """Reset the cache; with the flag, free everything that runs before."""
        if everything:
            for live in [*self.running[::-1], *self.loading[::-1]]:
                self.side.free(live.request)
            self.running, self.loading = [], []
            while self.parked:
                self.give_back()
        self.ask("reset", everything)
        return self.manager.reset_prefix_cache()

    def evict(self, *block_ids: int) -> Any:
        if self.world.num_blocks < 2:
            return NOTHING
        ids = sorted({1 + b % max(self.world.num_blocks - 1, 1) for b in block_ids})
        self.ask("evict", ids)
        return self.manager.evict_blocks(set(ids))

    def partial(self, which: int, group: int, part: int) -> Any:
        """Register a block that is not full at a hash block boundary inside it."""
        live = self._of(self.running, which)
        sizes, fine = self.world.block_sizes, self.world.hash_size
        groups = [g for g, size in enumerate(sizes) if size > fine]
        if live is None or not groups or not self.world.enable_caching:
            return NOTHING
        group_id = groups[group % len(groups)]
        size = sizes[group_id]
        table = self.table(live, group_id)
        known = min(live.request.num_computed_tokens, live.request.num_tokens)
        ends = [e for e in range(fine, known + 1, fine) if e % size and e // size < len(table)]
        if not ends:
            return NOTHING
        # The block that is not full yet is what a caller has in mind; any other one is legal too.
        end = ends[-1 - part % min(len(ends), 4)]
        block_id = table[end // size]
        self.ask("partial", live.name, group_id, block_id, end)
        return self.side.partial(live.request, group_id, block_id, end)

    def table(self, live: Live, group_id: int) -> list[int]:
        return list(self.manager.get_block_ids(live.name)[group_id])

    # -- questions ----------------------------------------------------------------------------
    def look_up(self, which: int) -> Any:
        live = self._of(self.waiting + self.running, which)
        if live is None:
            return NOTHING
        self.ask("look up", live.name)
        return self.side.look_up(live.request)[1:]

    def look_up_direct(self, which: int, length: int, per_group: int = 0) -> Any:
        """Ask the coordinator for any length that the identities reach (D.6)."""
        live = self._of(self.waiting + self.running, which)
        if live is None or not self.world.enable_caching:
            return NOTHING
        if per_group and not self._is_hybrid():
            return NOTHING
        longest = length % (live.request.num_tokens + 1)
        self.ask("look up", live.name, longest, "per group" if per_group else "all")
        return self.side.look_up_direct(live.request, longest, bool(per_group))

    def _is_hybrid(self) -> bool:
        return self.world.enable_caching and len(self.world.groups) > 1

    def common(self, which: int) -> Any:
        """Only of a request with blocks: asking for another one makes the reference count it."""
        live = self._of(self.running, which)
        if live is None:
            return NOTHING
        self.ask("common prefix", live.name)
        return list(self.manager.get_num_common_prefix_blocks(live.name))

    def slide(self, which: int, ahead: int = 0) -> Any:
        """Clear what is outside the window, as the end of a request with a connector does."""
        live = self._of(self.running, which)
        if live is None:
            return NOTHING
        total = max(live.request.num_computed_tokens - ahead, 0)
        prompt = live.request.num_prompt_tokens if "rswa" in self.world.kinds else None
        more = {} if prompt is None or ahead % 2 else {"num_prompt_tokens": prompt}
        self.ask("slide", live.name, total, more)
        return self.manager.remove_skipped_blocks(live.name, total, **more)

    def cache(self, which: int, less: int = 0) -> Any:
        live = self._of(self.running, which)
        if live is None or "cross" in self.world.kinds:
            return NOTHING
        request = live.request
        known = min(request.num_computed_tokens, request.num_tokens)
        self.ask("cache", live.name, max(known - less, 0))
        return self.manager.cache_blocks(request, max(known - less, 0))

    def ids_for_computed(self, which: int, less: int = 0) -> Any:
        live = self._of(self.running, which)
        if live is None:
            return NOTHING
        count = max(live.request.num_computed_tokens - less, 0)
        self.ask("ids for computed", live.name, count)
        rows = self.manager.get_block_ids_for_computed_tokens(live.name, count)
        return tuple(list(row) for row in rows)

    def take_new_ids(self) -> Any:
        self.ask("take new ids")
        return self.side.take_new_block_ids()

    def take_stats(self) -> Any:
        self.ask("take statistics")
        return self.side.take_stats()

    # -- choosing -----------------------------------------------------------------------------
    @staticmethod
    def _of(lives: list[Live], which: int) -> Live | None:
        return lives[which % len(lives)] if lives else None

    def _of_new(self) -> Live | None:
        """Bring the next request if none waits."""
        return None if self.come() is NOTHING else self.waiting[-1]


NOTHING = object()

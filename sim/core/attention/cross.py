"""Cross attention: the encoder's output, taken once and shared with nobody."""

from __future__ import annotations

from collections.abc import Sequence

from sim.core.single_type_kv_cache_manager import NEVER, SingleTypeKVCacheManager
from sim.errors import ConfigError, InvariantError
from sim.units import cdiv


class CrossAttentionManager(SingleTypeKVCacheManager):
    """Blocks for the encoder's tokens, all of them in the step that runs the encoder.

    The coordinator tells it the number of encoder tokens where other kinds get the request's
    length; 0 in every other step.

    Source: spec/manager.md 3.6.
    """

    reads_encoder = True

    def check_lookups(self, alignment_tokens: int) -> None:
        """Refuse prefix caching, at which the reference fails later."""
        raise ConfigError.one("enable_prefix_caching", True, "false with cross attention")

    def add_local_computed_blocks(
        self, request_id: str, new_computed_blocks: Sequence[int], num_computed_tokens: int
    ) -> None:
        """Store nothing: there are no hits."""
        if new_computed_blocks:
            raise InvariantError(f"request {request_id} has hits in a cross-attention group")

    def allocate_external_computed_blocks(
        self, request_id: str, num_local_computed_tokens: int, num_external_computed_tokens: int
    ) -> None:
        """Take nothing: tokens from elsewhere are the decoder's."""

    def cache_blocks(
        self,
        request_id: str,
        prefix_ids: Sequence[int],
        num_tokens: int,
        num_prompt_tokens: int,
        retention_interval: int | None = None,
    ) -> None:
        """Raise ValueError: prefixes name the decoder's tokens."""
        raise ValueError("prefix caching does not exist for cross attention")

    def find_longest_cache_hit(
        self,
        prefix_ids: Sequence[int],
        max_length: int,
        group_ids: Sequence[int],
        drop_eagle_block: bool,
        alignment_tokens: int,
    ) -> tuple[list[int], ...]:
        """Raise NotImplementedError."""
        raise NotImplementedError("prefix caching does not exist for cross attention")

    def quiet_until(self, request_id: str, num_computed_tokens: int) -> int:
        """Return never: a step without encoder tokens changes nothing."""
        return NEVER

    @property
    def held_period(self) -> int:
        """Tokens after which the need for blocks repeats: it does not change."""
        return 1

    def num_blocks_held(
        self,
        num_computed_tokens: int,
        num_new_tokens: int = 1,
        num_prompt_tokens: int | None = None,
        num_encoder_tokens: int = 0,
    ) -> int:
        """Return the blocks of the encoder's tokens."""
        return cdiv(num_encoder_tokens, self.block_size)

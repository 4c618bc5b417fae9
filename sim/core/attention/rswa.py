"""Reference windows: the prompt is kept whole, of the generated tokens only the last."""

from __future__ import annotations

from typing import Any

from sim.core.attention.full import FullAttentionManager
from sim.units import cdiv


class RSWAManager(FullAttentionManager):
    """A token reads the whole prompt and the last ``rswa_window`` tokens.

    Hits are those of full attention: what the window left behind stays cached until it is evicted.

    Source: spec/manager.md 3.7.
    """

    def __init__(self, kv_cache_spec: Any, *args: Any, **kwargs: Any):
        super().__init__(kv_cache_spec, *args, **kwargs)
        self.rswa_window: int = kv_cache_spec.rswa_window

    def remove_skipped_blocks(
        self, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Free the blocks between the prompt and the window; nothing if the prompt is unknown."""
        if num_prompt_tokens is not None:
            gap = self._gap(total_computed_tokens, num_prompt_tokens)
            self._clear_between(request_id, gap.start, gap.stop)

    def _gap(self, num_computed_tokens: int, num_prompt_tokens: int) -> range:
        """Table entries that lie behind the prompt and before the window."""
        window_start = max(num_prompt_tokens, num_computed_tokens - self.rswa_window)
        return range(cdiv(num_prompt_tokens, self.block_size), window_start // self.block_size)

    def num_blocks_held(
        self,
        num_computed_tokens: int,
        num_new_tokens: int = 1,
        num_prompt_tokens: int | None = None,
        num_encoder_tokens: int = 0,
    ) -> int:
        """Return the blocks of the prompt and of the window."""
        whole = super().num_blocks_held(num_computed_tokens, num_new_tokens)
        if num_prompt_tokens is None:
            return whole
        return whole - len(self._gap(num_computed_tokens, num_prompt_tokens))

    def _next_clearing(self, num_computed_tokens: int) -> int:
        # The prompt only delays it.
        block = max(num_computed_tokens - self.rswa_window, 0) // self.block_size
        return (block + 1) * self.block_size + self.rswa_window + 1

"""Why a prompt token was not found in the cache: the names, and what they mean in words."""

from __future__ import annotations

NEW = "new"
NEVER_CACHED = "never_cached"
EVICTED = "evicted"
RESET = "reset"
MASKED = "masked"
NOT_KEPT = "not_kept"
EAGLE = "eagle"
VETOED = "vetoed"
UNALIGNED = "unaligned"
LAST_TOKEN = "last_token"
RULE = "rule"

MEANINGS = {
    NEW: "in no block that had ever been full: new content, or an earlier request's last tokens",
    NEVER_CACHED: "other groups had seen this content, this group had not",
    EVICTED: "it was cached, but its block was handed out again before",
    RESET: "it was cached, but the whole cache was reset before",
    MASKED: "it was computed, but not registered, because the registration mask leaves it out",
    NOT_KEPT: "it was computed, but no block was kept there: out of the window, or no checkpoint",
    EAGLE: "cached, but the block behind it, which speculation drops, was not",
    VETOED: "this group could have used it, another group could not",
    UNALIGNED: "seen before, but a hit must end on a boundary that lies before it",
    LAST_TOKEN: "the last token is always computed, for its logits",
    RULE: "all groups had it; a rule of the reference's lookup gives it up (quirks Q1 to Q4)",
}
"""Every cause, in the order of reports. Each token behind a hit has one, seen from each group."""

PAST = {
    NEVER_CACHED: "had never been cached there",
    EVICTED: "had been evicted there before",
    RESET: "had been lost there in a reset",
    MASKED: "had been left out there by the registration mask",
    NOT_KEPT: "had not been kept there",
    EAGLE: "had no cached block behind them there, which speculation drops",
}
"""Of content that a group lacks: what had become of it in that group."""

CAUSES = tuple(MEANINGS)

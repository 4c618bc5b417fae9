"""Several engines behind a router on one clock: questions about where cached prefixes are."""

"""Why a lookup found no more: an observer, its tables, and what they say in words."""

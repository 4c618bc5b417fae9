"""``python -m tests.differential.replay FILE...``: play worlds on both sides, call by call."""

from __future__ import annotations

import sys
from itertools import zip_longest
from pathlib import Path

from tests.differential.compare import Difference, check, is_nonsense
from tests.differential.play import our_play, their_play
from tests.differential.world import World


def replay(world: World) -> bool:
    """Print every call and its answer; return whether both sides agreed to the end."""
    both = zip_longest(our_play(world).records(), their_play(world).records())
    for number, (mine, other) in enumerate(both):
        told = other or mine
        print(f"{number}: {told.asked}\n     {told.answer}")
        if is_nonsense(other):
            return True
        try:
            check(number, mine, other)
        except Difference as difference:
            print(difference)
            return False
    return True


if __name__ == "__main__":
    worlds = [World.loads(Path(name).read_text().splitlines()[0]) for name in sys.argv[1:]]
    sys.exit(not all(replay(world) for world in worlds))

"""``python -m sim`` is ``kvsim``."""

from sim.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

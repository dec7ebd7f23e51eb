"""`python -m awa_pool.cli`: the same as `awa-pool`."""

from __future__ import annotations

import sys

from .entry import main

if __name__ == "__main__":
    sys.exit(main())

"""The pool of the demo as a process of its own, which ends with the demo however that ends."""

from __future__ import annotations

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    from awa_pool.cli import main

    sys.exit(main(sys.argv[1:]))

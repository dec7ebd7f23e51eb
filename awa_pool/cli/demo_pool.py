"""The pool of the demo as a process of its own. Should the demo be killed, it ends too and tidies up in its place."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys

from awa_pool import embedded

from .entry import main

PR_SET_PDEATHSIG = 1


def run(root: str, data_dir: str, words: list[str]) -> int:
    """Run the command line `words` on the server in `data_dir`, which belongs to the folder `root`."""
    demo = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with embedded.server(data_dir) as dsn:
        os.environ["AWA_POOL_DSN"] = dsn
        status = main(words)
    if os.getppid() != demo:
        shutil.rmtree(root, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], sys.argv[3:]))

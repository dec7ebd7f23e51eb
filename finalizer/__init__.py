"""The finalizer process; imported as `awa_pool.finalizer` only."""

if __name__ != "awa_pool.finalizer":
    raise ImportError(
        "import awa_pool.finalizer: a second copy under the bare name would have an identity of its own"
    )

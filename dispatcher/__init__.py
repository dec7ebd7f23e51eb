"""The dispatcher process; imported as `awa_pool.dispatcher` only."""

if __name__ != "awa_pool.dispatcher":
    raise ImportError(
        "import awa_pool.dispatcher: a second copy under the bare name would have an identity of its own"
    )

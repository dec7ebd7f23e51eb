"""The child of `app_facts`: imports an app, answers with one JSON document on the descriptor it was given."""

from __future__ import annotations

import json
import os
import sys

from awa_pool.errors import ConfigError
from awa_pool.worker.loading import load_named


def probe(spec: str) -> dict[str, str | None]:
    """Return the app's database address, or what is wrong with the app."""
    try:
        return {"dsn": getattr(load_named(spec), "dsn", None)}
    except ConfigError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    # The folder of this module is not the user's: only the given path counts.
    answer = json.dumps(probe(sys.argv[1])).encode()
    with os.fdopen(int(sys.argv[2]), "wb") as out:
        out.write(answer)
    sys.stdout.flush()
    os._exit(0)  # an app that started threads at import must not keep this child

"""The child of `app_facts`: imports an app, answers with one JSON document on the descriptor it was given."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from awa_pool.errors import ConfigError
from awa_pool.worker.loading import load_named


def probe(spec: str) -> dict[str, Any]:
    """Return the app's database address and the queues of its tasks, or what is wrong with the app."""
    try:
        client = load_named(spec)
        registry = getattr(client, "registry", None)
        return {"dsn": getattr(client, "dsn", None), "queues": registry.queues() if registry else []}
    except ConfigError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    # The folder of this module is not the user's: only the given path counts.
    answer = json.dumps(probe(sys.argv[1])).encode()
    with os.fdopen(int(sys.argv[2]), "wb") as out:
        out.write(answer)
    sys.stdout.flush()
    os._exit(0)  # an app that started threads at import must not keep this child

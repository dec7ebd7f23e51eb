"""The receiver's app, mounted in another one under a server that is not ours, with either client."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from apps.receiving import client as app
from callbacks_rig import parked
from general_rig import Queue
from pool_rig import wait_until
from starlette.applications import Starlette
from starlette.routing import Mount

from awa_pool import AsyncClient, Client
from awa_pool.receiver import SIGNATURE_HEADER, asgi_app, build_callback_url, sign

SECRET = "m" * 32


@contextlib.contextmanager
def service(client: Client | AsyncClient) -> Iterator[str]:
    """A service of somebody's own -> its address."""
    routes = [Mount("/hooks", asgi_app(client, secrets=SECRET, max_body_bytes=2048, read_timeout_s=1))]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_config=None, ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until("the service to listen", lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)


def post(base: str, callback_id: str, action: str, document: Any) -> tuple[int, dict[str, Any]]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = {"Content-Type": "application/json", SIGNATURE_HEADER: sign(SECRET, callback_id, action, body)}
    url = build_callback_url(base, callback_id, action, prefix="/hooks")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_service_of_ones_own_takes_answers(
    dsn: str, q: Queue, kind: type[Client | AsyncClient], tmp_path: Any
) -> None:
    client = kind(dsn)
    client.registry = app.registry
    args = {"broken": str(tmp_path / "broken"), "heard": str(tmp_path / "heard")}
    (tmp_path / "broken").touch()
    with service(client) as base:
        attempt, callback = parked(q, kind="order", args=args)
        status, told = post(base, callback, "complete", {"payload": 1})
        assert status == 500 and "ship_it" in told["function"]
        (tmp_path / "broken").unlink()
        with ThreadPoolExecutor(4) as threads:
            several = [threads.submit(post, base, callback, "complete", {"payload": 1}) for _ in range(4)]
            first, *others = sorted(done.result()[0] for done in several)
            assert first == 200 and set(others) <= {404, 503}
        assert q.state(attempt.job_id) == "completed" and (tmp_path / "heard").exists()
        assert post(base, callback, "complete", b"[")[0] == 400
        assert post(base, callback, "complete", b" " * 3000)[0] == 413
        with pytest.raises(urllib.error.HTTPError) as nothing:
            urllib.request.urlopen(f"{base}/hooks/metrics", timeout=60)
        with nothing.value as answer:
            assert answer.code == 404 and "POST to" in json.load(answer)["error"]
    if isinstance(client, Client):
        client.close()

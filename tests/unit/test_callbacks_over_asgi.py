"""The receiver's app without a server: senders that go, databases that keep silent, and what is told of surprises."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from awa_pool import AsyncClient, Client, ConfigError, SchemaMismatch, StoreConflict, StoreRefused
from awa_pool.receiver import asgi_app, doors
from awa_pool.receiver.serving import is_loopback, listening_socket
from awa_pool.store.callbacks import Answered

PATH = f"/{uuid4()}/complete"


async def ask(app: Any, *chunks: bytes | None, path: str = PATH, kind: str = "http") -> list[dict[str, Any]]:
    """Send one POST in these pieces, None being the sender's end -> what the app has sent."""
    sent: list[dict[str, Any]] = []
    pieces = list(chunks or [b""])
    scope = {
        "type": kind, "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [], "client": None, "server": ("x", 80),
        "subprotocols": [],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        piece = pieces.pop(0) if pieces else None
        if piece is None:
            return {"type": f"{kind}.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def told(sent: Sequence[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


class Raising(Client):
    """A client whose answers end in one way."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__("host=x")
        self.problem = problem

    def complete_external(self, *_: Any, **__: Any) -> Any:
        raise self.problem


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (SchemaMismatch("schema awa_pool has version 1 at 10.0.0.7"), 503),
        (StoreConflict("deadlock at 10.0.0.7"), 503),
        (StoreRefused("permission denied at 10.0.0.7"), 500),
        (ConfigError("rules need a library at 10.0.0.7"), 500),
        (RuntimeError("surprise at 10.0.0.7"), 500),
    ],
)
def test_what_is_nobodys_business_stays_in_the_log(
    problem: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    app = asgi_app(Raising(problem), allow_unsigned=True)
    with caplog.at_level(logging.INFO, "awa_pool.receiver"):
        found, document = told(asyncio.run(ask(app)))
    assert found == status and "10.0.0.7" not in document["error"] and "send it again" in document["error"]
    assert "10.0.0.7" in caplog.text
    assert PATH[9:-9] not in caplog.text


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_database_that_keeps_silent_costs_the_sender_a_bounded_time(
    kind: type[Client | AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "ANSWER_S", 0.1)
    stop = threading.Event()

    class Silent(kind):  # type: ignore[misc, valid-type]
        if kind is Client:

            def complete_external(self, *_: Any, **__: Any) -> Any:
                stop.wait(60)
        else:

            async def complete_external(self, *_: Any, **__: Any) -> Any:
                await asyncio.sleep(60)

    async def several() -> list[tuple[int, dict[str, Any]]]:
        app = asgi_app(Silent("host=x"), allow_unsigned=True)
        found = await asyncio.gather(*(ask(app, path=f"/{uuid4()}/complete") for _ in range(9)))
        stop.set()
        return [told(sent) for sent in found]

    for status, document in asyncio.run(several()):
        assert status == 503 and "did not answer in time" in document["error"]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_answer_that_does_not_end_keeps_others_to_its_callback_alone_away(
    kind: type[Client | AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "ANSWER_S", 0.2)
    stop = threading.Event()
    begun: list[str] = []
    done = Answered(7, 1, "completed")

    class Held(kind):  # type: ignore[misc, valid-type]
        if kind is Client:

            def complete_external(self, callback_id: str, *_: Any, **__: Any) -> Any:
                begun.append(callback_id)
                if callback_id in PATH and not stop.is_set():
                    stop.wait(60)
                return done
        else:

            async def complete_external(self, callback_id: str, *_: Any, **__: Any) -> Any:
                begun.append(callback_id)
                if callback_id in PATH and not stop.is_set():
                    await asyncio.sleep(60)
                return done

    async def several() -> None:
        app = asgi_app(Held("host=x"), allow_unsigned=True)
        found = [told(sent) for sent in await asyncio.gather(*(ask(app) for _ in range(9)))]
        assert [status for status, _ in found] == [503] * 9
        assert ["another answer" in document["error"] for _, document in found] == [False] + [True] * 8
        assert told(await ask(app, path=f"/{uuid4()}/complete"))[0] == 200
        if kind is Client:  # its thread is still in that call
            assert "another answer" in told(await ask(app))[1]["error"]
        stop.set()
        while told(await ask(app))[0] == 503:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(several(), 60))
    assert len(begun) == 3


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
def test_whatever_user_code_raises_is_answered_as_json(kind: type[BaseException]) -> None:
    app = asgi_app(Raising(kind("at 10.0.0.7")), allow_unsigned=True)
    status, document = told(asyncio.run(ask(app)))
    assert status == 500 and "send it again" in document["error"]


def test_a_sender_that_goes_halfway_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    app = asgi_app(Raising(AssertionError("asked")), allow_unsigned=True)
    with caplog.at_level(logging.INFO, "awa_pool.receiver"):
        asyncio.run(ask(app, b'{"payload"', None))
    assert "asked" not in caplog.text and " 200 " not in caplog.text


def test_a_web_socket_is_refused() -> None:
    app = asgi_app(Raising(AssertionError("asked")), allow_unsigned=True)
    assert asyncio.run(ask(app, kind="websocket"))[0]["type"] == "websocket.close"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_socket_is_one_that_asyncio_lets_send_at_once(host: str) -> None:
    """Without TCP_NODELAY each answer on a kept connection waits 40 ms; asyncio sets it where the protocol is named."""
    with listening_socket(host, 0) as found:
        assert found.proto == socket.IPPROTO_TCP


def test_only_loopback_addresses_are_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "no such host", "\udcff")))

"""The HTTP receiver as a process of its own, and clients of it that may be anything but polite."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cli_rig import command, environment
from pool_rig import wait_until

from awa_pool.receiver import SIGNATURE_HEADER, sign

SECRET, NEXT_SECRET, FOREIGN_SECRET = "s" * 40, "n" * 40, "f" * 40
DEADLINE_S = 60.0
PREFIX = "/api/callbacks"
Answer = tuple[int, dict[str, Any], Mapping[str, str]]


class ReceiverProcess:
    """`awa-pool callbacks --port 0` with its log in a file."""

    def __init__(
        self, folder: Path, dsn: str, *flags: str, secrets: str = SECRET, prefix: tuple[str, ...] = ()
    ) -> None:
        self.log_path = folder / f"receiver-{time.monotonic_ns()}.log"
        more = {"AWA_POOL_CALLBACK_SECRET": secrets} if secrets else {}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*prefix, *command(["callbacks", "--port", "0", "--dsn", dsn, "--log-level", "debug", *flags])],
                stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=environment(**more), start_new_session=True,
            )  # fmt: skip
        self._port = 0

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def port(self) -> int:
        """Where it listens, as soon as it does."""
        if not self._port:
            wait_until(
                "the receiver to listen",
                lambda: "listening on" in self.log or self.process.poll() is not None,
            )
            assert "listening on" in self.log, self.log
            self._port = int(self.log.partition("listening on http://127.0.0.1:")[2].partition("/")[0])
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        chunked: bool = False,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Send one request -> status, body and headers of the answer."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            conn.request(method, path, body, dict(headers or {}), encode_chunked=chunked)
            with conn.getresponse() as answer:
                return answer.status, answer.read(), {n.title(): value for n, value in answer.headers.items()}
        finally:
            conn.close()

    def post(
        self, callback_id: str, action: str, document: Any = None, *, secret: str = SECRET, **headers: str
    ) -> Answer:
        """Send a signed answer; bytes go as they are, anything else as JSON."""
        body = document if isinstance(document, bytes) else json.dumps(document or {}).encode()
        named = {"Content-Type": "application/json"}
        if secret:
            named[SIGNATURE_HEADER] = sign(secret, callback_id, action, body)
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        return said(self.ask("POST", f"{PREFIX}/{callback_id}/{action}", body, named))

    def counted(self, name: str) -> float:
        """A counter of /metrics, with its label: `awa_pool_callback_answers_total{action="fail"}`."""
        for line in self.ask("GET", "/metrics")[1].decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def connection(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def receiver(folder: Path, dsn: str, *flags: str, **options: Any) -> Iterator[ReceiverProcess]:
    """A receiver for the time of a block."""
    running = ReceiverProcess(folder, dsn, *flags, **options)
    try:
        yield running
    finally:
        running.close()


def said(answer: tuple[int, bytes, Mapping[str, str]]) -> Answer:
    """Read an answer, which is JSON whatever has happened, and an error if it is no success."""
    status, body, headers = answer
    assert headers["Content-Type"] == "application/json"
    document = json.loads(body)
    assert (status == 200) != bool(document.get("error")), document
    return status, document, headers


def heard(conn: socket.socket) -> Answer:
    """Read what a server says before it closes."""
    raw = b""
    while chunk := conn.recv(65536):
        raw += chunk
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.title(): value for name, _, value in (line.partition(": ") for line in lines)}
    return said((int(first.split()[1]), body, headers))

"""`/metrics`, `/healthz` and `/readyz` on a thread that answers at once, whatever stands still behind it."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from awa_pool.errors import ConfigError

from .health import PartsSeen, Verdict, liveness, readiness

REQUEST_S = 5.0


class Endpoint:
    """Serves until closed. `metrics` renders the exposition format, `seen` returns what the loop saw last."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], tuple[bytes, str]],
        seen: Callable[[], PartsSeen | None],
    ) -> None:
        """Bind. Errors: ConfigError naming address and port."""
        self.asked_at_s: float | None = None
        """When metrics were last asked for."""
        try:
            self._server = _Server((host, port), _handler(self, metrics, seen))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"--metrics-port {port}: cannot listen on {host}: {why}; write another port, 0 for any free one, or another "
                "--metrics-host"
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="awa-pool endpoint", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; answers under way are left to end."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def server_bind(self) -> None:
        """Bind without asking the resolver for a name of this host, which may take its time."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is no news."""


def _handler(
    endpoint: Endpoint, metrics: Callable[[], tuple[bytes, str]], seen: Callable[[], PartsSeen | None]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S
        server_version = "awa-pool"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                endpoint.asked_at_s = time.monotonic()
                body, kind = metrics()
                self._answer(200, body, kind)
            elif path == "/readyz":
                self._verdict(readiness(seen(), time.monotonic()))
            elif path == "/healthz":
                self._verdict(liveness(seen(), time.monotonic()))
            else:
                self._answer(404, b"not found\n", "text/plain; charset=utf-8")

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            """Probes come every few seconds: no line for each."""

        def _verdict(self, verdict: Verdict) -> None:
            text = json.dumps({"ok": verdict.good, "parts": verdict.parts}) + "\n"
            self._answer(200 if verdict.good else 503, text.encode(), "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler

"""The outside world: a payment provider and a carrier, played by one small HTTP service that knows nothing of awa-pool.

It takes POST /charges and POST /parcels, says at once that it has understood, and answers a moment later by a signed POST to
the address that came with the letter. It charges and ships an order once, however often it is asked: what it has
done for that order it says again.

python -m payment.outside --port 4010        # with the receiver's secret in AWA_POOL_CALLBACK_SECRET
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

PATIENCE_S = 120.0
MOST_CENTS = 100_000


def signature(secret: str, url: str, body: bytes) -> str:
    """Sign an answer as docs/callback-receiver.md says: id, action and body, each on its line."""
    callback_id, action = urlsplit(url).path.split("/")[-2:]
    return hmac.new(secret.encode(), f"{callback_id}\n{action}\n".encode() + body, hashlib.sha256).hexdigest()


class Outside:
    """Both services, and their books."""

    def __init__(self, secret: str, port: int = 0, moment_s: float = 0.3) -> None:
        self.charges: dict[str, str] = {}
        self.parcels: dict[str, str] = {}
        self.asked: dict[tuple[str, str], int] = {}
        """How often it was asked for what of which order."""
        self.told: list[int] = []
        """The status of each answer that it gave."""
        self.carrier_is_open = threading.Event()
        self.carrier_is_open.set()
        self._secret, self._moment_s = secret, moment_s
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, what: str, letter: dict[str, Any]) -> None:
        """Do what is asked, once for each order, and answer later."""
        order = letter["order"]
        with self._lock:
            self.asked[what, order] = self.asked.get((what, order), 0) + 1
            if what == "parcels":
                answer = {"tracking": self.parcels.setdefault(order, f"parcel-{len(self.parcels) + 1}")}
            elif letter["cents"] > MOST_CENTS:
                answer = {"charge": "", "why": "over the limit of this card"}
            else:
                answer = {"charge": self.charges.setdefault(order, f"charge-{len(self.charges) + 1}")}
        threading.Thread(target=self._answer, args=(what, letter["answer_to"], answer), daemon=True).start()

    def _answer(self, what: str, url: str, payload: dict[str, str]) -> None:
        """Tell the receiver, again and again until it is taken or unwanted."""
        time.sleep(self._moment_s)
        if what == "parcels":
            self.carrier_is_open.wait()
        body = json.dumps({"payload": payload}).encode()
        headers = {"Content-Type": "application/json", "X-Awa-Signature": signature(self._secret, url, body)}
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            status = _status_of(urllib.request.Request(url, body, headers))
            self.told.append(status)
            if status in (200, 400, 401, 404, 413, 415):  # taken, or never to be
                return
            time.sleep(1.0)


def _status_of(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
    except OSError:  # nobody listens just now
        return 0


def _handler(outside: Outside) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            letter = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = self.path in ("/charges", "/parcels")
            if known:
                outside.take(self.path[1:], letter)
            self.send_response(202 if known else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """The books tell enough."""

    return Handler


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Play a payment provider and a carrier.")
    parser.add_argument("--port", type=int, default=4010)
    with Outside(os.environ["AWA_POOL_CALLBACK_SECRET"], parser.parse_args().port) as outside:
        print(f"charges and parcels on {outside.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()

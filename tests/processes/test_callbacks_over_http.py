"""`awa-pool callbacks` as a real server, asked by real clients: every status, and what each leaves behind."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from callbacks_rig import park, parked, register, register_all, wait, waiting
from callbacks_rig import told as item_of
from general_rig import Queue
from pool_rig import wait_until
from proxy import Proxy
from receiver_rig import (
    FOREIGN_SECRET,
    NEXT_SECRET,
    PREFIX,
    SECRET,
    ReceiverProcess,
    heard,
    receiver,
    said,
)
from servers import Server

from awa_pool import Client
from awa_pool.receiver import SIGNATURE_HEADER, build_callback_url, sign

MIB = 1024 * 1024


def test_each_answer_reaches_its_job_once(q: Queue, server: ReceiverProcess) -> None:
    attempt, callback = waiting(q)
    assert server.post(callback, "heartbeat", {"timeout_seconds": 86400})[1]["until"] > "20"
    assert server.post(callback, "heartbeat")[0] == 200
    status, told, headers = server.post(callback, "resume", {"payload": {"n": 1e16, "t": "é"}})
    assert (status, told) == (200, {"job_id": attempt.job_id, "number": 1, "state": "running"})
    assert headers["Cache-Control"] == "no-store" and "Server" not in headers
    answered, payload = wait(q, attempt, callback)
    assert answered == "answered" and json.loads(payload) == {"n": 1e16, "t": "é"}
    for action, document, state in [
        ("resume", None, "available"),
        ("complete", {"payload": [1]}, "completed"),
        ("fail", {"error": "no money"}, "failed"),
        ("retry", None, "available"),
    ]:
        attempt, callback = parked(q)
        assert server.post(callback, action, document)[:2] == (
            200,
            {"job_id": attempt.job_id, "number": 1, "state": state},
        )
        assert q.state(attempt.job_id) == state
        status, told, _ = server.post(callback, action, document)  # a replay is harmless
        assert status == 404 and "do not send it again" in told["error"]
        assert q.state(attempt.job_id) == state
        q.claim()
    _, callback = parked(q)
    assert server.post(callback, "resolve")[1]["outcome"] == "ignored"
    status, told, _ = server.post(callback, "resolve", {"payload": 1, "default_action": "fail"})
    assert (told["outcome"], told["state"], told["reason"]) == ("failed", "failed", "default_action")
    assert server.counted('awa_pool_callback_answers_total{action="heartbeat"}') == 2
    assert server.counted('awa_pool_callback_answers_total{action="resume"}') == 2
    assert server.counted('awa_pool_callback_refusals_total{status="404"}') == 4


def test_an_early_answer_and_an_empty_body_are_taken(q: Queue, server: ReceiverProcess) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    for action in ("heartbeat", "retry"):
        status, body, _ = server.post(callback, action)
        assert status == 409 and "send it again later" in body["error"]
    url = build_callback_url(server.url, callback, "resume")
    path = url.removeprefix(server.url)
    headers = {SIGNATURE_HEADER: sign(SECRET, callback, "resume")}
    assert said(server.ask("POST", path, None, headers))[0] == 200
    assert wait(q, attempt, callback) == ("answered", "null")


def test_only_a_secret_in_force_signs_and_only_what_was_signed_counts(
    q: Queue, server: ReceiverProcess
) -> None:
    attempt, callback = parked(q)
    other = parked(q)[1]
    body = b'{"payload": {"paid": 100}}'
    good = sign(SECRET, callback, "complete", body)
    tries: list[tuple[str, str, bytes, dict[str, str]]] = [
        (callback, "complete", body, {}),
        (callback, "complete", body, {SIGNATURE_HEADER: ""}),
        (callback, "complete", body, {SIGNATURE_HEADER: "é" * 64}),
        (callback, "complete", body, {SIGNATURE_HEADER: good[:-1]}),
        (callback, "complete", body, {SIGNATURE_HEADER: sign(FOREIGN_SECRET, callback, "complete", body)}),
        (callback, "complete", body.replace(b"100", b"900"), {SIGNATURE_HEADER: good}),
        (callback, "complete", b"", {SIGNATURE_HEADER: good}),
        (callback, "resume", body, {SIGNATURE_HEADER: good}),
        (other, "complete", body, {SIGNATURE_HEADER: good}),
        (str(uuid4()), "complete", body, {SIGNATURE_HEADER: good}),
    ]
    for callback_id, action, sent, headers in tries:
        answer = server.ask(
            "POST", f"{PREFIX}/{callback_id}/{action}", sent,
            {name: value.encode() for name, value in headers.items()},  # type: ignore[misc]
        )  # fmt: skip
        status, told, sent_back = said(answer)
        assert status == 401 and SIGNATURE_HEADER in told["error"], headers
        assert SIGNATURE_HEADER in sent_back["Www-Authenticate"]
        assert good not in told["error"]
    assert q.state(attempt.job_id) == "waiting_external"
    assert server.counted('awa_pool_callback_refusals_total{status="401"}') == len(tries)
    assert server.post(callback, "complete", body)[0] == 200
    assert server.post(other, "complete", body, secret=NEXT_SECRET)[0] == 200


@pytest.mark.parametrize(
    ("action", "body", "words"),
    [
        ("complete", b"{", "not JSON"),
        ("complete", b'"paid"', "must be a JSON object"),
        ("complete", b'{"paid": 1}', "'paid' is no field of complete"),
        ("complete", b'{"payload": NaN}', "NaN"),
        ("complete", b'{"payload": 1e999}', "payload"),
        ("complete", b'{"payload": 18446744073709551616}', "64 bits"),
        ("complete", b'{"payload": ' + b"9" * 5000 + b"}", "cannot be read"),
        ("complete", b'{"payload": "\\ud800"}', "payload"),
        ("complete", b'{"payload": {"a": 1, "a": 2}}', "'a' twice"),
        ("complete", b'{"payload": ' + b"[" * 30000 + b"]" * 30000 + b"}", "nest"),
        ("complete", b'{"payload": "\xff"}', "not UTF-8"),
        ("resolve", b'{"default_action": "cancel"}', "default_action: expected one of"),
        ("fail", b"{}", "'error' is missing"),
        ("fail", b'{"error": 5}', "error: expected text"),
        ("fail", b'{"error": " "}', "say what went wrong"),
        ("heartbeat", b'{"timeout_seconds": 1e9}', "timeout_seconds: expected 0.01 to"),
        ("heartbeat", b'{"timeout_seconds": -1}', "timeout_seconds"),
        ("heartbeat", b'{"timeout_seconds": "1h"}', "timeout_seconds"),
        ("heartbeat", b'{"timeout_seconds": true}', "timeout_seconds"),
        ("retry", b'{"payload": 1}', "send no body"),
    ],
)
def test_what_cannot_be_understood_is_named_and_changes_nothing(
    q: Queue, quiet: ReceiverProcess, action: str, body: bytes, words: str
) -> None:
    status, told, _ = quiet.post(str(uuid4()), action, body)
    assert status == 400 and words in told["error"], told


def test_elsewhere_there_is_nothing_and_a_malformed_id_needs_no_signature(quiet: ReceiverProcess) -> None:
    callback = str(uuid4())
    for path in (
        "/", "/api", f"{PREFIX}/{callback}", f"{PREFIX}/{callback}/undo", f"{PREFIX}/{callback}/complete/",
        f"{PREFIX}/5/complete", f"{PREFIX}/{callback}%0Acomplete/fail", f"{PREFIX}/../{callback}/complete", "//x/y",
    ):  # fmt: skip
        status, _, _ = said(quiet.ask("POST", path, b"{}"))
        assert status == 404, path
    for method in ("GET", "PUT", "DELETE", "OPTIONS"):
        status, _, headers = said(quiet.ask(method, f"{PREFIX}/{callback}/complete"))
        assert (status, headers["Allow"]) == (405, "POST")
    assert said(quiet.ask("POST", "/healthz"))[0] == 405


def test_only_json_that_is_not_compressed_is_read(quiet: ReceiverProcess) -> None:
    callback = str(uuid4())
    for headers in (
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Content_Type": "text/plain"},
        {"Content_Encoding": "gzip"},
    ):
        status, told, _ = quiet.post(callback, "complete", b"{}", **headers)
        assert status == 415 and "application/json" in told["error"]
    for kind in ("application/json; charset=utf-8", "application/vnd.pay+json"):
        assert quiet.post(callback, "complete", b"[", Content_Type=kind)[0] == 400


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused_with_and_without_its_length(
    quiet: ReceiverProcess, chunked: bool
) -> None:
    callback, body = str(uuid4()), b'{"payload": "' + b"x" * 128 * 1024 + b'"}'
    headers = {SIGNATURE_HEADER: sign(SECRET, callback, "complete", body)}
    sent: Any = iter([body[:1000], body[1000:]]) if chunked else body
    if chunked:
        headers["Transfer-Encoding"] = "chunked"
    answer = said(quiet.ask("POST", f"{PREFIX}/{callback}/complete", sent, headers, chunked))
    assert answer[0] == 413 and "131072 bytes" in answer[1]["error"]


def test_a_body_that_never_ends_is_refused_while_it_comes(quiet: ReceiverProcess) -> None:
    callback = str(uuid4())
    with quiet.connection() as conn:
        head = f"POST {PREFIX}/{callback}/complete HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        conn.sendall(f"{head}{SIGNATURE_HEADER}: {'0' * 64}\r\n\r\n".encode())
        for _ in range(9):
            conn.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        assert conn.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_payload_over_its_own_limit_is_told_so(dsn: str, q: Queue, tmp_path: Path) -> None:
    with receiver(tmp_path, dsn, "--max-body", "4MiB") as server:
        _, callback = parked(q)
        status, told, _ = server.post(callback, "complete", {"payload": "x" * MIB})
        assert status == 413 and told["error"].startswith("payload: ")
        assert server.post(callback, "complete", {"payload": "x" * (MIB - 2)})[0] == 200


def test_slow_headers_and_slow_bodies_are_cut_and_disturb_nobody(q: Queue, server: ReceiverProcess) -> None:
    callback = parked(q)[1]
    head = f"POST {PREFIX}/{callback}/complete HTTP/1.1\r\nHost: x\r\n"
    slow_body = f"{head}{SIGNATURE_HEADER}: {'0' * 64}\r\nContent-Length: 1000\r\n\r\n{{"
    began_s = time.monotonic()
    silent, slow, dripping = server.connection(), server.connection(), server.connection()
    slow.sendall(head.encode())
    dripping.sendall(slow_body.encode())
    assert server.post(callback, "complete")[0] == 200
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.1):
            try:
                slow.sendall(b"X: y\r\n")
                dripping.sendall(b" ")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        for conn in (silent, slow, dripping):
            with conn:
                status, told, headers = heard(conn)
                assert (status, headers["Connection"].lower()) == (408, "close") and "too long" in told[
                    "error"
                ]
    except ConnectionResetError:
        pass  # what still dripped in when it was closed
    finally:
        stop.set()
        thread.join()
    assert time.monotonic() - began_s < 30


def test_what_is_no_http_is_refused_as_json(quiet: ReceiverProcess) -> None:
    for raw in (b"hello\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000 + b"\r\n\r\n"):
        with quiet.connection() as conn:
            conn.sendall(raw)
            try:
                status, _, _ = heard(conn)
            except ConnectionResetError:  # it closed before all was sent
                continue
            assert status == 400


def test_a_malformed_chunk_is_refused_as_json_and_changes_nothing(q: Queue, server: ReceiverProcess) -> None:
    callback = parked(q)[1]
    head = f"POST {PREFIX}/{callback}/complete HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    signed = f"{head}{SIGNATURE_HEADER}: {sign(SECRET, callback, 'complete', b'{}')}\r\n"
    malformed = b"2\r\n{}\r\nzz\r\n"
    for headers in (head, signed, f"{signed}Expect: 100-continue\r\n"):
        with server.connection() as conn:
            if "Expect" in headers:  # its body is being waited for when it comes
                conn.sendall(f"{headers}\r\n".encode())
                assert conn.recv(100).startswith(b"HTTP/1.1 100")
                conn.sendall(malformed)
            else:
                conn.sendall(f"{headers}\r\n".encode() + malformed)
            status, told, answered = heard(conn)
            assert (status, answered["Connection"]) == (400, "close") and "chunks" in told["error"]
    assert server.post(callback, "complete")[0] == 200
    assert "Traceback" not in server.log


def test_a_failing_spec_is_named_and_leaves_the_callback_open(dsn: str, q: Queue, tmp_path: Path) -> None:
    broken, written = tmp_path / "broken", tmp_path / "heard"
    broken.touch()
    args = {"broken": str(broken), "heard": str(written)}
    with receiver(tmp_path, dsn, "--app", "apps.receiving:client") as server:
        attempt, callback = parked(q, kind="order", args=args)
        status, told, _ = server.post(callback, "complete", {"payload": 1})
        assert status == 500 and "ship_it" in told["function"] and told["function"] in told["error"]
        assert "stock" not in json.dumps(told) and "the stock is closed" in server.log
        assert q.state(attempt.job_id) == "waiting_external" and not written.exists()
        broken.unlink()
        assert server.post(callback, "complete", {"payload": 1})[1]["state"] == "completed"
        assert wait_until("the hook", lambda: written.exists() and written.read_text()) == "completed"
        assert q.one("select count(*) from awa_pool.jobs where kind = 'ship'") == 1
        assert "no --app" not in server.log


def test_without_an_app_it_says_at_the_start_what_does_not_run_here(
    q: Queue, server: ReceiverProcess
) -> None:
    _, callback = parked(q, kind="order", args={"broken": "", "heard": ""})
    assert server.post(callback, "complete")[0] == 200
    assert server.log.count("WARNING callbacks: no --app") == 1


def test_a_held_unique_key_is_a_conflict_that_can_be_sent_again(q: Queue, server: ReceiverProcess) -> None:
    with Client(q.conn.info.dsn) as client:

        def put() -> int:
            return client.insert({"n": 1}, kind="k", queue=q.name, unique_opts={})

        put()
        (attempt,) = q.claim()
        callback, _ = register(q, attempt)
        assert park(q, attempt, callback)[0] == "done"
        holder = put()
        status, told, _ = server.post(callback, "resume")
        assert status == 409 and "unique key" in told["error"]
        assert q.state(attempt.job_id) == "waiting_external"
        client.cancel(holder)
        assert server.post(callback, "resume")[0] == 200


def test_while_the_database_is_away_the_sender_is_told_when_to_come_again(
    dsn: str, q: Queue, pg_server: Server, tmp_path: Path
) -> None:
    proxy = Proxy(pg_server)
    try:
        with receiver(tmp_path, proxy.dsn(dsn)) as server:
            attempt, callback = parked(q)
            assert server.post(callback, "heartbeat")[0] == 200
            assert server.ask("GET", "/readyz")[0] == 200
            proxy.refuse()
            proxy.cut()
            status, told, headers = server.post(callback, "complete")
            assert status == 503 and "send it again" in told["error"] and int(headers["Retry-After"]) > 0
            assert "127.0.0.1" not in told["error"]
            assert server.ask("GET", "/readyz")[0] == 503 and server.ask("GET", "/healthz")[0] == 200
            proxy.accept()
            wait_until("the database is back", lambda: server.post(callback, "complete")[0] == 200)
            assert q.state(attempt.job_id) == "completed"
    finally:
        proxy.close()


def test_of_many_answers_at_once_one_counts(q: Queue, server: ReceiverProcess) -> None:
    for _ in range(10):
        attempt, callback = parked(q)
        gate = threading.Barrier(6)

        def send(callback: str = callback, gate: threading.Barrier = gate) -> int:
            gate.wait()
            return server.post(callback, "complete")[0]

        with ThreadPoolExecutor(6) as threads:
            found = sorted(f.result() for f in [threads.submit(send) for _ in range(6)])
        assert found[0] == 200 and set(found[1:]) <= {404, 503}, found
        assert q.state(attempt.job_id) == "completed"


def test_an_answer_that_waits_for_a_transaction_of_others_holds_up_nobody(
    dsn: str, q: Queue, server: ReceiverProcess
) -> None:
    attempt, callback = parked(q)
    others = [parked(q)[1] for _ in range(5)]
    with psycopg.connect(dsn) as conn, ThreadPoolExecutor(1) as thread:
        conn.execute("select awa_pool.complete_external(%s)", [callback])
        blocked = thread.submit(server.post, callback, "complete")
        wait_until("the answer to be under way", lambda: held_up_by(q, conn))
        for repeated in [callback, callback.upper()] * 10:
            status, told, headers = server.post(repeated, "complete")
            assert (status, headers["Retry-After"]) == (503, "1") and "another answer" in told["error"]
        assert [server.post(other, "complete")[0] for other in others] == [200] * 5
        conn.rollback()
        assert blocked.result()[0] == 200
    assert q.state(attempt.job_id) == "completed"


def held_up_by(q: Queue, conn: psycopg.Connection[Any]) -> bool:
    """Say whether some session waits for that one."""
    query = "select count(*) from pg_stat_activity where %s = any(pg_blocking_pids(pid))"
    return q.rows(query, conn.info.backend_pid) != [(0,)]


def test_the_rules_of_a_callback_decide_over_http_too(q: Queue, server: ReceiverProcess) -> None:
    attempt = q.claimed()
    rules = {"filter": "payload.kind == 'final'", "transform": "{'sum': payload.sum}"}
    ((_, callback, _),) = register_all(q, item_of(attempt, timeout_s=3600, rules=rules))
    assert park(q, attempt, str(callback))[0] == "done"
    status, said_of_it, _ = server.post(
        str(callback), "resolve", {"payload": {"kind": "draft"}, "default_action": "complete"}
    )
    assert (status, said_of_it["outcome"], said_of_it["reason"]) == (200, "ignored", "filter")
    final = {"payload": {"kind": "final", "sum": 5}, "default_action": "resume"}
    assert server.post(str(callback), "resolve", final)[1]["outcome"] == "resumed"
    assert q.job(attempt.job_id)["metadata"]["awa:callback"]["payload"] == {"sum": 5}  # type: ignore[index]

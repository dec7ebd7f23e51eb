"""The command line: what it accepts, and the one line in which it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from awa_pool.cli import entry, render
from awa_pool.cli.app_facts import app_dsn, check_app_name
from awa_pool.cli.commands import COMMANDS
from awa_pool.errors import ConfigError
from awa_pool.units import parse_duration, write_duration

SECRET = "s3cr3t-word"


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWA_POOL_DSN", "AWA_POOL_APP", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def refusal(capsys: pytest.CaptureFixture[str], *words: str, status: int = 2) -> str:
    """Run a command line that must be refused; return its one line."""
    assert entry.main(words) == status
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert len(lines) == 1, told.err
    assert lines[0].startswith("awa-pool: ")
    return lines[0]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["a:b", "--wrkers", "3"], "--wrkers"),
        (["a:b", "--workers"], "--workers"),
        (["a:b", "--workers", "0"], "--workers"),
        (["a:b", "--workers", "two"], "'two'"),
        (["a:b", "--drain-timeout", "25"], "--drain-timeout"),
        (["a:b", "--drain-timeout", "25x"], "'25x'"),
        (["a:b", "--history-size", "much"], "--history-size"),
        (["a:b", "--queue", "mail:0"], "'mail:0'"),
        (["a:b", "--queue", "mail", "-q", "mail"], "'mail' is named twice"),
        (["a:b", "--start-method", "fork"], "--start-method"),
        (["a:b", "--log-format", "xml"], "--log-format"),
        (["a:b", "--metrics-port", "99999"], "--metrics-port"),
        (["a:b", "--app", "c:d"], "'c:d'"),
        (["a:b", "c:d"], "c:d"),
        (["a:b", "--embedded", "--dsn", "host=x"], "--embedded and an address"),
        (["a:b", "--stale-after", "3s"], "--stale-after"),
        (["nowhere:client", "--dsn", "host=x"], "no module 'nowhere'"),
        (["a:"], "'a:'"),
        (["a-b:c"], "'a-b:c'"),
        (["stauts"], "did you mean 'status'"),
        (["nonsense"], "MODULE:CLIENT"),
        (["shop.jobs"], "'shop.jobs' names no client; write MODULE:CLIENT with a colon"),
        ([], "no app given"),
        (["job", "seven"], "ID"),
        (["job"], "ID"),
        (["jobs", "--state", "done"], "'done'"),
        (["queue", "pauze", "mail"], "pauze"),
        (["demo", "--workers", "0"], "--workers: 0 is not possible; write a whole number from 1 to 1024"),
        (["jobs", "--limit", "0"], "--limit: 0 is not possible; write a whole number from 1 to 10000"),
        (["jobs", "--limit", "x"], "--limit: 'x' is not possible"),
        (["dlq", "list", "--limit", "0"], "--limit: 0 is not possible; write a whole number from 1 to 1000"),
        (
            ["enqueue", "a:b", "k", "--priority", "9"],
            "--priority: 9 is not possible; write a whole number from 1 to 4",
        ),
        (["enqueue", "a:b", "k", "--max-attempts", "0"], "--max-attempts: 0"),
        (["dlq", "retry", "1", "--priority", "9"], "--priority: 9"),
        (["queue", "set", "mail", "--dlq", "--no-dlq"], "--dlq and --no-dlq exclude each other"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in refusal(capsys, *words)


def test_a_misspelt_flag_brings_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--workers" in refusal(capsys, "a:b", "--wrkers", "3")


def test_without_a_database_nothing_starts_and_the_line_lists_the_ways(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWA_POOL_DSM", "host=x")
    assert "AWA_POOL_DSN" in refusal(capsys, "status")
    monkeypatch.delenv("AWA_POOL_DSM")
    line = refusal(capsys, "status")
    assert all(word in line for word in ("--dsn", "AWA_POOL_DSN", "DATABASE_URL", "--embedded"))


@pytest.mark.parametrize("variable", ["AWA_POOL_DSN", "DATABASE_URL"])
def test_an_unreadable_address_is_refused_without_showing_it(
    variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"postgresql://me:{SECRET}@host:port:5/%zz")
    assert SECRET not in refusal(capsys, "status")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--dsn", f"postgresql://me:{SECRET}@h/mill?sslmod=require"],
            "--dsn: the DSN has an unknown keyword 'sslmod'; did you mean 'sslmode'?",
        ),
        (["--dsn", "host=h prt=5599"], "'prt'; did you mean 'port'?"),
        (["--dsn", "host=h colour=red"], "--dsn: the DSN has an unknown keyword 'colour'"),
        (["--dsn", "host=h port=here"], "--dsn: the DSN's port is not a number"),
        (["a:b", "--dsn", "host=h", "--listen-dsn", "foo"], "--listen-dsn: the DSN cannot be read"),
        (["--dsn", f"host=h password=a {SECRET}=b"], "--dsn: the DSN cannot be read"),
        (["--dsn", f"postgresql://me:a/?{SECRET}=b@h/mill"], "--dsn: the DSN cannot be read"),
    ],
)
def test_a_slip_in_an_address_is_named_with_its_place_and_nothing_secret(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capsys, *([] if words[0] == "a:b" else ["status"]), *words)
    assert told in line and SECRET not in line and "red" not in line


def test_an_unreadable_address_of_the_environment_or_an_app_is_told_with_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text('from awa_pool import Client\nclient = Client("host=h prt=1")\n')
    assert "awa-pool: the Client of shop:client: the DSN" in refusal(capsys, "status", "--app", "shop:client")
    for variable in ("DATABASE_URL", "AWA_POOL_DSN"):
        monkeypatch.setenv(variable, "host=h prt=1")
        assert f"awa-pool: {variable}: the DSN has an unknown keyword 'prt'" in refusal(capsys, "status")


def test_a_database_that_is_away_is_a_failure_and_shows_no_password(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dsn = f"host={tmp_path} user=me password={SECRET} dbname=x connect_timeout=2"
    assert SECRET not in refusal(capsys, "status", "--dsn", dsn, status=1)


def test_windows_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry.sys, "platform", "win32")
    assert "Linux or macOS" in refusal(capsys, "status")


def test_the_help_groups_flags_and_names_commands_and_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--help"]) == 0
    told = capsys.readouterr().out
    for wanted in ("Database", "Stopping", "--workers", "--drain-timeout", "Exit statuses", *COMMANDS):
        assert wanted in told
    for name in COMMANDS:
        assert entry.main([name, "--help"]) == 0
        assert "Usage: awa-pool " + name in " ".join(capsys.readouterr().out.split())


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("awa-pool 0.")


def test_config_tells_value_and_source_and_hides_addresses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.awa-pool]\napp = "shop.jobs:client"\nretention = "2h"\n')
    monkeypatch.setenv("AWA_POOL_WORKERS", "3")
    monkeypatch.setenv("AWA_POOL_DSN", f"host=x password={SECRET}")
    assert entry.main(["config", "--schema", "mine"]) == 0
    told = capsys.readouterr().out
    lines = {line.split()[0]: line for line in told.splitlines() if line.strip()}
    assert "shop.jobs:client" in lines["app"] and "pyproject.toml" in lines["app"]
    assert "3" in lines["workers"] and "AWA_POOL_WORKERS" in lines["workers"]
    assert "mine" in lines["schema"] and "--schema" in lines["schema"]
    assert SECRET not in told
    assert "2h" in lines["retention"] and {"history-size", "max-rss", "stale-after"} <= set(lines)


def test_config_tells_programs_as_objects(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWA_POOL_MAX_RSS", "512MiB")
    monkeypatch.setenv("AWA_POOL_QUEUES", "mail:4,print")
    monkeypatch.setenv("AWA_POOL_LISTEN_DSN", f"host=x password={SECRET}")
    assert entry.main(["config", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = {row["setting"]: (row["field"], row["value"], row["source"]) for row in rows}
    assert told["max-rss"] == ("max_rss_bytes", 512 << 20, "AWA_POOL_MAX_RSS")
    assert told["dlq-retention"] == ("dlq_retention_s", 2_592_000.0, "default")
    assert told["dsn"] == ("dsn", None, "default") and told["metrics-port"][1] is None
    assert told["queues"] == (
        "queues",
        [{"name": "mail", "max": 4}, {"name": "print", "max": None}],
        "AWA_POOL_QUEUES",
    )
    assert told["concurrency"][1] == 100 and told["drain"][1] is False and told["log-level"][1] == "info"
    assert "may hold a password" in told["listen-dsn"][1] and SECRET not in str(rows)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (86_400, "24h"),
        (30 * 86_400, "30d"),
        (86_400 * 2.5, "60h"),
        (90, "90s"),
        (300, "5m"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (0, "0s"),
    ],
)
def test_durations_are_written_as_they_are_read(seconds: float, written: str) -> None:
    assert write_duration(seconds) == written
    assert parse_duration(written) == seconds


def test_migrate_prints_its_sql_without_a_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["migrate", "--sql", "--schema", "mine"]) == 0
    told = capsys.readouterr().out
    assert "create" in told and "{schema}" not in told and "awa_pool." not in told


# --- apps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["shop", "shop:", ":client", "shop jobs:client", "shop.:client", "shop:client:x"]
)
def test_what_is_no_app_name_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="MODULE:CLIENT"):
        check_app_name(spec)


def app_problem(spec: str) -> str:
    with pytest.raises(ConfigError) as refused:
        app_dsn(spec)
    return str(refused.value)


def test_an_app_in_the_working_directory_is_found_with_its_own_address(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text(
        "from awa_pool import Client\nprint('hello from the import')\nclient = Client('host=own')\nbare = Client()\n"
    )
    assert app_dsn("shop.jobs:client") == "host=own"
    assert app_dsn("shop.jobs:bare") is None
    assert "its Client is shop.jobs:bare, shop.jobs:client" in app_problem("shop.jobs:cleint")
    assert "no module 'shop.jbos'" in app_problem("shop.jbos:client")
    assert "no module 'shp'" in app_problem("shp.jobs:client")


def test_a_mistake_inside_the_app_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    told = app_problem("broken:client")
    assert "ZeroDivisionError" in told and "broken.py, line 2: y = x / 0" in told
    (tmp_path / "typo.py").write_text("def f(:\n")
    assert "SyntaxError" in app_problem("typo:client") and "typo.py, line 1" in app_problem("typo:client")
    (tmp_path / "needs.py").write_text("import not_installed_anywhere\n")
    told = app_problem("needs:client")
    assert "not_installed_anywhere" in told and "needs.py, line 1" in told
    (tmp_path / "other.py").write_text("client = {}\n")
    assert "is of type dict, not an awa_pool.Client" in app_problem("other:client")
    (tmp_path / "leaves.py").write_text("import sys; sys.exit(4)\n")
    assert "SystemExit" in app_problem("leaves:client")
    (tmp_path / "dies.py").write_text("import os; os._exit(4)\n")
    assert "ended the process with status 4" in app_problem("dies:client")


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ("@client.task(dict, kind='a')\ndef a(job):\n    yield", "@client.task(dict, kind='a')"),
        (
            "@client.task(dict, kind='a', priority=9)\ndef a(job): ...",
            "@client.task(dict, kind='a', priority=9)",
        ),
        ("@client.on_event(5)\ndef a(event): ...", "@client.on_event(5)"),
        ("client.insert({}, kind='a', priority=9)", "client.insert({}, kind='a', priority=9)"),
    ],
)
def test_what_is_refused_of_an_app_is_told_with_the_line_that_declares_it(
    tmp_path: Path, declared: str, line: str
) -> None:
    (tmp_path / "shop.py").write_text(f"from awa_pool import Client\nclient = Client('host=x')\n{declared}\n")
    assert f"({tmp_path / 'shop.py'}, line 3: {line})" in app_problem("shop:client")


def test_importing_the_command_line_loads_no_driver_and_no_sockets() -> None:
    code = "import sys, json, awa_pool.cli; print(json.dumps([m for m in ('psycopg', 'zmq', 'typer') if m in sys.modules]))"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=path)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("words", "status"), [(["sums:client"], 0), (["status"], 128 + signal.SIGTERM)], ids=["pool", "command"]
)
def test_a_stop_signal_that_meets_the_making_of_a_class_ends_the_command_in_order(
    words: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python up to 3.11 makes a RuntimeError of whatever `__set_name__` raises, and imports make many classes."""

    class Interrupted:
        def __set_name__(self, owner: type, name: str) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    def meet(words: list[str]) -> int:
        return len(type("Made", (), {"here": Interrupted()}).__name__)

    monkeypatch.setattr("awa_pool.cli.commands.run_words", meet)
    assert entry.main(words) == status
    assert capsys.readouterr().err == ""


def test_a_text_in_a_table_shows_that_it_was_cut() -> None:
    assert render.shortened("ValueError: no", 14) == "ValueError: no"
    assert render.shortened("ValueError: not now", 14) == "ValueError: n…"
    assert render.shortened("one\ntwo\n", 14) == "one…" and render.shortened("one\n\n", 14) == "one"

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from awa_pool import Client, Job
from awa_pool.config.layers import load
from awa_pool.config.readers import QueueSpec, parse_queue
from awa_pool.config.settings import PoolConfig, flag_of, variable_of
from awa_pool.errors import ConfigError
from awa_pool.units import parse_duration, parse_size


def write_pyproject(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text("[tool.awa-pool]\n" + text)
    return folder


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("25s", 25.0), ("24h", 86_400.0), ("1h30m", 5400.0), ("0", 0.0), ("7d", 604_800.0)],
)
def test_a_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["25", "", "s", "-3s", "3 parsecs", "1h30", "nan", "１s"])
def test_a_duration_without_a_known_unit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="25s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("512MiB", 512 << 20), ("2GB", 2 * 10**9), ("64kib", 65_536), ("1.5GiB", 3 << 29)]
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_a_queue_may_carry_its_most_jobs_in_flight() -> None:
    assert parse_queue("mail") == QueueSpec("mail", None)
    assert parse_queue("eu:mail:4") == QueueSpec("eu:mail", 4)


@pytest.mark.parametrize("name", ["a:b", "a:b:", "a:", "mail:many", "eu::mail"])
def test_a_queue_whose_own_name_has_a_colon_is_given_with_its_limit_as_the_error_says(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_queue(name)
    assert str(caught.value).endswith(f"where it belongs to the name, give the limit too: {name}:8")
    assert parse_queue(f"{name}:8") == QueueSpec(name, 8)
    assert PoolConfig(queues=(QueueSpec(name),)).queues == (QueueSpec(name, None),)


@pytest.mark.parametrize("text", ["mail:0", "mail:1000001", "mail:" + "9" * 5000])
def test_a_limit_out_of_range_is_refused_as_a_number(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write a number from 1$"):
        parse_queue(text)


def test_embedded_beside_an_address_names_the_places_where_addresses_are_read() -> None:
    with pytest.raises(ConfigError, match="--dsn or AWA_POOL_DSN; for client") as caught:
        PoolConfig(embedded=True, dsn="host=x")
    assert "pyproject" not in str(caught.value)


@pytest.mark.parametrize("text", ["", ":3", "mail:", "mail:0", "mail:many", " mail", "m" * 201])
def test_an_impossible_queue_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write"):
        parse_queue(text)


def test_the_command_line_beats_the_environment_and_that_beats_the_file(tmp_path: Path) -> None:
    write_pyproject(tmp_path, 'workers = 3\nconcurrency = 7\nlog-level = "debug"\ndrain-timeout = "5s"\n')
    config, sources = load(
        {"workers": 9, "schema": None},
        environ={"AWA_POOL_WORKERS": "5", "AWA_POOL_CONCURRENCY": "8", "AWA_POOL_LISTEN": "no"},
        start=tmp_path,
    )
    assert (config.workers, config.concurrency, config.log_level, config.drain_timeout_s) == (
        9,
        8,
        "debug",
        5.0,
    )
    assert config.listen is False
    assert sources["workers"] == "--workers"
    assert sources["concurrency"] == "AWA_POOL_CONCURRENCY"
    assert sources["log_level"].endswith("pyproject.toml [tool.awa-pool] log-level")
    assert sources["schema"] == "default"


def test_the_file_is_found_in_a_folder_above(tmp_path: Path) -> None:
    write_pyproject(tmp_path, "workers = 2\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load({}, environ={}, start=below)[0].workers == 2


@pytest.mark.parametrize(
    ("given", "environ", "file", "named"),
    [
        ({"workers": 0}, {}, "", "--workers"),
        ({"workers": "many"}, {}, "", "--workers"),
        ({"queues": ["a", "a"]}, {}, "", "--queue"),
        ({"drain_timeout": "5"}, {}, "", "--drain-timeout"),
        ({"history_bytes": "1kb"}, {}, "", "--history-size"),
        ({"max_waiting": "10001"}, {}, "", "--max-waiting: .*10000"),
        ({}, {"AWA_POOL_MAX_WAITING": "-1"}, "", "AWA_POOL_MAX_WAITING"),
        ({"start_method": "fork"}, {}, "", "--start-method"),
        ({}, {"AWA_POOL_METRICS_PORT": "99999"}, "", "AWA_POOL_METRICS_PORT"),
        ({}, {"AWA_POOL_DNS": "host=x"}, "", "AWA_POOL_DSN"),
        ({}, {}, "workes = 3", "did you mean workers"),
        ({}, {}, "drain-timeout = 5", "no unit"),
        ({}, {}, 'dsn = "host=x"', "AWA_POOL_DSN"),
    ],
)
def test_a_refusal_names_the_place_and_what_to_write(
    tmp_path: Path, given: dict[str, object], environ: dict[str, str], file: str, named: str
) -> None:
    write_pyproject(tmp_path, file + "\n")
    with pytest.raises(ConfigError, match=named) as caught:
        load(given, environ=environ, start=tmp_path)
    assert "\n" not in str(caught.value)


def test_variables_of_others_behind_our_prefix_are_left_alone(tmp_path: Path) -> None:
    others = {
        "AWA_POOL_SERVICE_HOST": "10.0.0.1",
        "AWA_POOL_PORT": "tcp://10.0.0.1:1",
        "AWA_POOL_TEST_PG": "15",
    }
    assert load({}, environ=others, start=tmp_path)[0].workers == (os.cpu_count() or 1)


def test_fewer_than_three_heartbeats_in_a_stale_threshold_are_refused() -> None:
    with pytest.raises(ConfigError, match="--stale-after"):
        PoolConfig(heartbeat_s=5.0, stale_s=14.0)
    assert PoolConfig(heartbeat_s=5.0, stale_s=15.0).stale_s == 15.0


def test_settings_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="--no-listen"):
        PoolConfig(listen=False, listen_dsn="host=x")
    with pytest.raises(ConfigError, match="--embedded"):
        PoolConfig(embedded=True, dsn="host=x")


def test_keyword_arguments_are_named_as_written_in_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^workers: "):
        load({"workers": 0}, environ={}, start=tmp_path, in_python=True)
    with pytest.raises(ConfigError, match="worker: no such setting; did you mean workers"):
        load({"worker": 4}, environ={}, start=tmp_path, in_python=True)


def test_a_pool_started_in_python_refuses_an_unreadable_address_by_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AWA_POOL_DSN", raising=False)
    unknown = "the DSN has an unknown keyword 'prt'; did you mean 'port'?"
    with pytest.raises(ConfigError, match=f"^dsn: {re.escape(unknown)}$"):
        client_of("host=h prt=1").run()
    with pytest.raises(ConfigError, match="^listen_dsn: the DSN cannot be read"):
        client_of("host=h").run(listen_dsn="foo")
    monkeypatch.setenv("DATABASE_URL", "host=h prt=1")
    with pytest.raises(ConfigError, match=f"^DATABASE_URL: {re.escape(unknown)}$"):
        client_of(None).run()


def count(job: Job[dict[str, Any]]) -> None: ...


def client_of(dsn: str | None) -> Client:
    client = Client(dsn)
    client.task(kind="count")(count)
    return client


def test_each_setting_has_a_flag_and_a_variable() -> None:
    assert (flag_of("queues"), variable_of("drain_timeout_s")) == ("--queue", "AWA_POOL_DRAIN_TIMEOUT")


def test_a_setting_that_a_file_has_in_both_spellings_is_refused(tmp_path: Path) -> None:
    write_pyproject(tmp_path, 'drain-timeout = "5s"\ndrain_timeout = "9s"\n')
    with pytest.raises(
        ConfigError, match=r"drain_timeout: drain-timeout says the same; leave one of them out"
    ):
        load({}, environ={}, start=tmp_path)

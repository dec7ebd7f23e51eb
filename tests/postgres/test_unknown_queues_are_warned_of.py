"""A job for a queue of which nobody has heard goes there, but not without a word: it would wait for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from general_rig import Queue

from awa_pool.cli.entry import main

APP = """
from awa_pool import Client

client = Client()


@client.task(dict, kind="send", queue="mail")
def send(job): ...
"""
ENQUEUE = ("enqueue", "mail_app:client", "send", "--queue")
WITH_APP = ("--app", "mail_app:client", "--to-queue")


@pytest.fixture
def dead(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A dead job's id, beside an app with queue `mail` and a living pool that serves `served`."""
    (tmp_path / "mail_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWA_POOL_DSN", dsn)
    monkeypatch.delenv("AWA_POOL_APP", raising=False)
    with Queue(dsn, "used") as q:
        for info in ({"workers": 1, "queues": ["served"]}, {"workers": 1, "queues": 7}):
            q.rows(
                "select awa_pool.register_runtime(gen_random_uuid(), 'host', 42, %s::jsonb)", json.dumps(info)
            )
        attempt = q.claimed()
        q.finish(attempt.ended("fail", error={"error": "it broke", "type": "Broken"}))
        return str(attempt.job_id)


@pytest.mark.parametrize("name", ["mail", "used", "served"])
def test_no_word_is_lost_on_a_queue_that_is_declared_used_or_served(
    dead: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*ENQUEUE, name]) == 0
    assert main(["dlq", "retry", dead, *WITH_APP, name]) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((*ENQUEUE, "mial"), "did you mean 'mail'?"),
        ((*ENQUEUE, "xyz"), "is it misspelt?"),
        (("dlq", "retry", "ID", *WITH_APP, "mial"), "did you mean 'mail'?"),
        (("dlq", "retry", "ID", "--to-queue", "usd"), "did you mean 'used'?"),
        (("dlq", "retry", "ID", "--to-queue", "servd"), "did you mean 'served'?"),
    ],
)
def test_a_queue_that_nothing_knows_is_named_on_standard_error(
    dead: str, words: tuple[str, ...], hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([dead if word == "ID" else word for word in words]) == 0
    told = capfd.readouterr()
    assert told.err == f"awa-pool: no task, job or setting knows the queue {words[-1]!r}: {hint}\n"
    assert "job" in told.out


@pytest.mark.parametrize(
    "words",
    [
        ("jobs",),
        ("jobs", "--json"),
        ("dlq", "list"),
        ("dlq", "retry", "--yes"),
        ("dlq", "purge", "--dry-run"),
        ("dlq", "move"),
    ],
)
def test_nothing_found_in_a_queue_that_the_database_does_not_know_is_said_to_be_a_name_misspelt(
    dead: str, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--queue", "usd"]) == 0
    said = "awa-pool: no job, setting or living pool names the queue 'usd': did you mean 'used'?"
    assert said in capfd.readouterr().err.splitlines()
    assert main([*words, "--queue", "served"]) == 0  # a queue without a job is right as it is
    assert "no job, setting" not in capfd.readouterr().err

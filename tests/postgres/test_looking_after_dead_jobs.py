"""Clients and command line on dead jobs and queue settings: filters, steps, previews, refusals that explain."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from general_rig import Queue

from awa_pool import AsyncClient, Client, JobNotFound, TransitionRefused, ValidationError
from awa_pool.cli.entry import main
from awa_pool.store import dead


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        yield found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], dsn: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWA_POOL_DSN", dsn)
    monkeypatch.delenv("AWA_POOL_APP", raising=False)

    def run(*words: str, status: int = 0) -> str:
        assert main(words) == status, capsys.readouterr().err
        told = capsys.readouterr()
        return told.err if status else told.out

    return run


def dead_jobs(dsn: str, count: int = 1, *, queue: str = "default", **named: Any) -> list[int]:
    """Let so many jobs fail for good; return their ids in the order of their deaths."""
    with Queue(dsn, queue) as q:
        made = []
        for _ in range(count):
            attempt = q.claimed(**named)
            q.finish(attempt.ended("fail", error={"error": "it broke", "type": "Broken"}))
            made.append(attempt.job_id)
        return made


def test_both_clients_look_after_the_dead_with_the_same_parameters() -> None:
    def shape(cls: type) -> dict[str, list[str]]:
        found = inspect.getmembers(cls, inspect.isfunction)
        return {
            name: list(inspect.signature(each).parameters) for name, each in found if not name.startswith("_")
        }

    assert shape(Client) == shape(AsyncClient)
    assert {"list_dead", "count_dead", "retry_dead", "purge_dead", "move_to_dead", "set_queue"} <= shape(
        Client
    ).keys()


def test_dead_jobs_are_listed_newest_first_page_by_page_and_by_each_filter(client: Client, dsn: str) -> None:
    ids = dead_jobs(dsn, 5, args={"n": 1}, tags=["red"]) + dead_jobs(dsn, 2, queue="other", kind="x")
    seen: list[int] = []
    cursor = None
    while page := client.list_dead(limit=3, cursor=cursor):
        seen += [job.id for job in page]
        cursor = page[-1].cursor
    assert seen == ids[::-1]
    first = client.list_dead(tag="red", limit=1)[0]
    assert (first.args_preview, first.error, first.reason, first.attempt) == ('{"n": 1}', "Broken: it broke", "terminal_error", 1)  # fmt: skip
    assert first.died_at.utcoffset() == timedelta(0) and first.tags == ["red"]
    for which, found in [
        ({"queue": "other"}, ids[:4:-1]), ({"kind": "x"}, ids[:4:-1]), ({"tag": "red"}, ids[4::-1]),
        ({"reason": "terminal_error"}, ids[::-1]), ({"reason": "manual"}, []), ({"kind": "x", "tag": "red"}, []),
        ({"after": first.died_at}, ids[:3:-1]), ({"before": first.died_at}, ids[3::-1]),
    ]:  # fmt: skip
        assert [job.id for job in client.list_dead(**which)] == found, which
        assert client.count_dead(**which).jobs == len(found)
    assert client.count_dead().reasons == {"terminal_error": 7}
    assert client.get_job(ids[0]).dead and client.list_jobs(state="failed", queue="other")[0].dead  # type: ignore[union-attr]


def test_an_action_on_many_needs_a_filter_or_the_word_all(client: Client, dsn: str) -> None:
    ids = dead_jobs(dsn, 2)
    for act in (client.retry_dead, client.purge_dead, client.move_to_dead):
        with pytest.raises(ValidationError, match="all=True"):
            act()
        with pytest.raises(ValidationError, match="leave it out"):
            act(queue="default", all=True)
        with pytest.raises(TypeError):
            act(kinds="x")  # type: ignore[call-arg]
        with pytest.raises(ValidationError):
            act(after=datetime(2026, 1, 1))
    assert client.retry_dead([]).done == client.purge_dead([]).done == 0
    assert [job.id for job in client.list_dead()] == ids[::-1]
    assert client.retry_dead(all=True).done == 2


@contextmanager
def cut_at(client: Client, query: str, nth: int) -> Iterator[None]:
    """Cut the connection at the nth of these calls, which has to end what is done inside."""
    calls = 0
    plain = client._run

    def cut(call: Any, conn: Any) -> Any:
        nonlocal calls
        calls += call.query == query
        if calls == nth:
            raise ConnectionError("cut")
        return plain(call, conn)

    with pytest.MonkeyPatch.context() as patched, pytest.raises(ConnectionError):
        patched.setattr(client, "_run", cut)
        yield


def test_many_are_retried_step_by_step_and_what_fails_half_way_goes_on_later(
    client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "BATCH_JOBS", 3)
    ids = dead_jobs(dsn, 10)
    with cut_at(client, "retry_dead", 3):
        client.retry_dead(queue="default")
    assert [job.id for job in client.list_dead()] == ids[:5:-1]
    assert client.retry_dead(queue="default").done == 4
    with Queue(dsn) as q:
        assert sorted(a.job_id for a in q.claim()) == ids


def test_many_are_moved_step_by_step_and_what_fails_half_way_goes_on_later(
    client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    monkeypatch.setattr(dead, "BATCH_JOBS", 3)
    client.set_queue("default", dlq=False)
    ids = dead_jobs(dsn, 7)
    with cut_at(client, "move_ended_to_dead", 2):
        client.move_to_dead(queue="default")
    assert [job.id for job in client.list_dead()] == ids[2::-1]
    assert client.move_to_dead(queue="default").done == 4
    assert [job.id for job in client.list_dead()] == ids[::-1]
    more = dead_jobs(dsn, 7)
    assert run("dlq", "move", "--queue", "default", "--yes") == "7 jobs moved\n"
    assert [job.id for job in client.list_dead()] == (ids + more)[::-1]


def test_what_dies_again_meanwhile_is_not_retried_for_ever(
    client: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "BATCH_JOBS", 2)
    ids = dead_jobs(dsn, 4)
    plain = client._run

    def kill_at_once(call: Any, conn: Any) -> Any:
        answer = plain(call, conn)
        if call.query == "retry_dead":
            with Queue(dsn) as q:
                q.finish(*(a.ended("fail") for a in q.claim()))
        return answer

    monkeypatch.setattr(client, "_run", kill_at_once)
    assert client.retry_dead(all=True).done == 4
    assert sorted(job.id for job in client.list_dead()) == ids


def test_one_job_is_refused_by_an_error_and_one_of_many_in_the_result(client: Client, dsn: str) -> None:
    """B164, for programs."""
    gone, unfit = dead_jobs(dsn, 2)
    live = client.insert({}, kind="k")
    for act in (client.retry_dead, client.purge_dead):
        with pytest.raises(TransitionRefused, match=f"job {live} stays as it is.*available"):
            act(live)
        with pytest.raises(JobNotFound):
            act(2**50)
    result = client.retry_dead([gone, live, 2**50])
    assert result.done == 1 and [each.job_id for each in result.refused] == [live, 2**50]
    with pytest.raises(TransitionRefused, match="or does not fit the filter"):
        client.purge_dead(unfit, kind="another")
    result = client.move_to_dead([live, 2**50])
    assert (result.done, result.refused_jobs) == (1, 1)
    assert "no job" in result.refused[0].why
    with pytest.raises(TransitionRefused, match="already"):
        client.move_to_dead(live)
    assert client.move_to_dead(gone, why="poison").done == 1
    assert client.list_dead(reason="poison")[0].id == gone


def test_actions_belong_to_the_callers_transaction_where_one_is_given(client: Client, dsn: str) -> None:
    ids = dead_jobs(dsn, 3)
    with psycopg.connect(dsn) as conn:
        assert client.retry_dead(all=True, conn=conn).done == 3
        assert client.list_dead(conn=conn) == []
        assert client.move_to_dead(ids, conn=conn).done == 3
        assert (
            client.move_to_dead([*ids, 2**50], conn=conn).refused_jobs == 4
        )  # refused, and the transaction goes on
        assert client.purge_dead(ids[:1], conn=conn).done == 1
        conn.rollback()
    assert [job.id for job in client.list_dead()] == ids[::-1]


def test_the_asynchronous_client_does_the_same(dsn: str) -> None:
    ids = dead_jobs(dsn, 4)

    async def body() -> None:
        async with AsyncClient(dsn) as client:
            assert (await client.count_dead()).jobs == 4
            assert (await client.retry_dead(ids[0])).done == 1
            assert (await client.purge_dead(ids[1])).done == 1
            with pytest.raises(JobNotFound):
                await client.purge_dead(ids[1])
            assert (await client.retry_dead(kind="k", run_at=datetime(2099, 1, 1, tzinfo=UTC))).done == 2
            assert (await client.move_to_dead(ids[2:])).done == 2
            assert [job.id for job in await client.list_dead(limit=1)] == [ids[3]]
            told = await client.set_queue("mail", deadline=timedelta(seconds=30), dlq=False)
            assert (told.deadline_s, told.dlq, told.dlq_retention_s) == (30.0, False, None)

    asyncio.run(asyncio.wait_for(body(), 60))


def test_a_queues_settings_change_one_by_one_and_go_back(client: Client) -> None:
    assert client.set_queue("mail", dlq_retention=timedelta(days=2), deadline=5)[2:] == (5.0, True, 172_800.0)
    assert client.set_queue("mail", dlq=False)[2:] == (5.0, False, 172_800.0)
    assert client.set_queue("mail", deadline=None, dlq=None)[2:] == (None, True, 172_800.0)
    for wrong in (
        {"deadline": 0},
        {"deadline": "5"},
        {"dlq": 1},
        {"dlq_retention": 0.5},
        {"deadline": float("nan")},
    ):
        with pytest.raises(ValidationError):
            client.set_queue("mail", **wrong)  # type: ignore[arg-type]
    assert client.set_queue("mail")[2:] == (None, True, 172_800.0)


def test_settings_that_other_software_writes_meet_the_same_bounds(dsn: str) -> None:
    with Queue(dsn) as q:
        for wrong in (
            '{"dlq": "no"}',
            '{"deadline_s": 0}',
            '{"speed": 1}',
            "[]",
            "null",
            '{"dlq_retention_s": "2"}',
        ):
            with pytest.raises(psycopg.Error) as refused:
                q.rows("select awa_pool.set_queue('mail', %s)", wrong)
            assert refused.value.sqlstate == "AW001", wrong
        assert q.rows("select * from awa_pool.queues") == []


def test_a_misspelt_queue_is_refused_by_name_and_a_declared_one_is_not(client: Client) -> None:
    client.insert({}, kind="k", queue="mail")
    for act in (client.pause_queue, client.resume_queue):
        with pytest.raises(ValidationError, match="'?mial.*known are mail"):
            act("mial")

    @client.task(dict, kind="report", queue="reports")
    def report(job: Any) -> None: ...

    client.pause_queue("reports")
    client.resume_queue("reports")
    client.set_queue("later", deadline=5)
    client.pause_queue("later")


def test_the_code_of_the_page_runs_as_it_stands(
    dsn: str, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "dead-letter-queue.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (wanted,) = dead_jobs(dsn, queue="mail", kind="send_email")
    monkeypatch.setenv("AWA_POOL_DSN", dsn)
    made: dict[str, Any] = {}
    exec(compile(code, "dead-letter-queue.md", "exec"), made)  # noqa: S102 (our own page)
    made["client"].close()
    assert str(wanted) in capsys.readouterr().out
    assert client.get_job(wanted).state == "scheduled"  # type: ignore[union-attr]


# --- the command line ----------------------------------------------------------------------------------------------


def test_a_group_without_a_word_prints_its_help(run: Any) -> None:
    assert "pause" in run("queue") and "purge" in run("dlq")


def test_a_misspelt_queue_is_refused_with_the_nearest_name(run: Any, client: Client) -> None:
    client.insert({}, kind="k", queue="mail")
    assert "did you mean 'mail'?" in run("queue", "pause", "mial", status=2)
    assert "did you mean 'mail'?" in run("queue", "resume", "mial", status=2)
    assert "known: mail" in run("queue", "pause", "xxxxxxx", status=2)
    assert run("queue", "pause", "mail") == "queue mail is paused\n"


def test_a_queue_that_only_the_apps_tasks_know_can_be_paused(
    run: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_app.py").write_text(
        "from awa_pool import Client\nclient = Client()\n"
        "@client.task(dict, kind='add', queue='sums')\ndef add(job): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run("queue", "pause", "sums", "--app", "shop_app:client") == "queue sums is paused\n"
    assert "did you mean 'sums'?" in run("queue", "pause", "sumss", "--app", "shop_app:client", status=2)


def test_queue_settings_are_set_and_shown(run: Any, client: Client) -> None:
    told = run("queue", "set", "mail", "--deadline", "30s", "--no-dlq", "--dlq-retention", "7d")
    assert "deadline 30s" in told and "dead letters no" in told and "7d" in told and "new" in told
    assert "new" not in run("queue", "set", "mail", "--deadline", "none", "--dlq")
    row = json.loads(run("queue", "list", "--json"))
    assert (row["queue"], row["deadline_s"], row["dlq"], row["dlq_retention_s"]) == (
        "mail",
        None,
        True,
        604_800.0,
    )
    assert "7d" in run("queue", "list")
    assert "mail: keeps dead jobs 7d" in run("status")
    for words in (
        ("--deadline", "30"),
        ("--deadline", "0"),
        ("--dlq-retention", "soon"),
        ("--deadline", "9999d"),
    ):
        assert words[0] in run("queue", "set", "mail", *words, status=2)


@pytest.mark.parametrize(
    ("told", "taken_back"),
    [
        (["--deadline", "30s"], ["--deadline", "none"]),
        (["--no-dlq"], ["--dlq"]),
        (["--dlq-retention", "7d", "--no-dlq"], ["--dlq-retention", "none", "--dlq"]),
        ([], []),
    ],
)
def test_a_queue_whose_settings_say_nothing_any_more_is_in_no_list(
    run: Any, client: Client, told: list[str], taken_back: list[str]
) -> None:
    run("queue", "set", "wierd", *told)
    assert ("wierd" in run("queue", "list")) == bool(told)
    assert "deadline none, dead letters yes, kept for as the pool says" in run(
        "queue", "set", "wierd", *taken_back
    )
    assert run("queue", "list") == "There is no queue yet.\n"
    assert "wierd" not in run("status", "--json")


def test_a_pause_outlives_settings_and_settings_a_pause(run: Any, client: Client) -> None:
    run("queue", "set", "mail", "--deadline", "30s")
    run("queue", "pause", "mail")
    run("queue", "set", "mail", "--deadline", "none")
    assert json.loads(run("queue", "list", "--json"))["paused"]
    run("queue", "set", "mail", "--deadline", "9s")
    run("queue", "resume", "mail")
    assert json.loads(run("queue", "list", "--json"))["deadline_s"] == 9.0
    run("queue", "pause", "mail")
    run("queue", "set", "mail", "--deadline", "none")
    run("queue", "resume", "mail")
    assert run("queue", "list") == "There is no queue yet.\n"


def test_the_shell_lists_shows_retries_purges_and_moves(run: Any, client: Client, dsn: str) -> None:
    ids = dead_jobs(dsn, 4, args={"n": 1})
    told = run("dlq", "list", "--limit", "2")
    assert "Broken: it broke" in told and '{"n": 1}' in told
    cursor = told.rsplit("--cursor ", 1)[1].strip()
    assert [
        json.loads(line)["id"] for line in run("dlq", "list", "--json", "--cursor", cursor).splitlines()
    ] == ids[1::-1]
    assert "terminal_error" in run("dlq", "show", str(ids[0]))
    assert "(dead)" in run("jobs", "--state", "failed")
    assert run("dlq", "retry", str(ids[0]), "--run-at", "1h") == "1 job retried\n"
    assert client.get_job(ids[0]).state == "scheduled"  # type: ignore[union-attr]
    assert "scheduled" in run("dlq", "show", str(ids[0]), status=1)
    assert run("dlq", "purge", str(ids[1])) == "1 job deleted\n"
    assert run("dlq", "move", str(ids[0]), "--why", "poison") == "1 job moved\n"
    assert json.loads(run("dlq", "list", "--reason", "poison", "--json"))["id"] == ids[0]
    assert run("dlq", "retry", "--kind", "k", "--after", "1h", "--yes", "--json") == (
        '{"done": 3, "refused_jobs": 0, "refused": []}\n'
    )
    assert run("dlq", "list") == "No such dead jobs.\n"


def test_a_bulk_action_is_previewed_and_asks(
    run: Any, client: Client, dsn: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dead_jobs(dsn, 7)
    assert "which jobs?" in run("dlq", "purge", status=2)
    assert "--all takes every job" in run("dlq", "purge", "--all", "--kind", "k", status=2)
    for words in (("purge", "--all"), ("retry", "--queue", "default")):
        told = run("dlq", *words, status=2)  # nobody is there to be asked
        assert "7 dead jobs fit: 7 terminal_error" in told and "--yes" in told and str(ids[6]) in told
        assert str(ids[0]) + " " not in told.split("args")[1]  # a sample, not all
    assert main(["dlq", "purge", "--all", "--dry-run"]) == 0
    assert "7 dead jobs fit" in capsys.readouterr().err
    monkeypatch.setattr("awa_pool.cli.dlq.at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *words, **more: False)
    assert main(["dlq", "purge", "--all"]) == 0
    assert "Nothing was changed" in capsys.readouterr().err
    assert client.count_dead().jobs == 7
    monkeypatch.setattr("typer.confirm", lambda *words, **more: True)
    assert run("dlq", "purge", "--all") == "7 jobs deleted\n"
    assert run("dlq", "purge", "--all") == ""


@pytest.mark.parametrize("action", ["retry", "purge", "move"])
def test_a_dry_run_tells_programs_how_many_and_why_as_one_object(
    run: Any, client: Client, dsn: str, action: str
) -> None:
    more: tuple[str, ...] = ()
    if action == "move":  # what is dead already cannot go there
        for _ in range(2):
            client.cancel(client.insert({}, kind="k"))
        more = ("--state", "cancelled")
    else:
        dead_jobs(dsn, 2)
    (line,) = run("dlq", action, "--kind", "k", "--dry-run", "--json", *more).splitlines()
    told = json.loads(line)
    assert told["jobs"] == sum(told["reasons"].values()) == 2
    assert set(told) == {"jobs", "reasons", "counted_at"}
    (line,) = run("dlq", action, "--kind", "other", "--dry-run", "--json", *more).splitlines()
    assert (json.loads(line)["jobs"], json.loads(line)["reasons"]) == (0, {})
    assert json.loads(run("dlq", action, "--kind", "other", "--json", *more))["done"] == 0


def test_one_job_is_counted_in_the_singular(run: Any, client: Client, dsn: str) -> None:
    dead_jobs(dsn, 1)
    told = run("dlq", "retry", "--kind", "k", status=2)
    assert "1 dead job fits: 1 terminal_error" in told and "Retry 1 job? Nobody" in told


def test_a_refused_action_is_a_message_and_not_a_crash(
    run: Any, client: Client, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """B164."""
    with Queue(dsn) as q:
        done = q.claimed()
        q.finish(done.ended("completed"))
    assert f"job {done.job_id} is completed already" in run("cancel", str(done.job_id), status=1)
    assert main(["dlq", "retry", str(done.job_id)]) == 1
    capsys.readouterr()
    assert main(["dlq", "move", str(done.job_id)]) == 1
    assert f"job {done.job_id} stays: it is completed: a job that" in capsys.readouterr().out
    assert run("dlq", "retry", str(done.job_id), "--json", status=1) == ""
    assert "is completed" in run("retry", str(done.job_id), status=1)


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--after", "yesterday"), ("list", "--before", "2026-01-31T12:00"), ("list", "--cursor", "5"),
        ("list", "--limit", "0"), ("retry", "1", "--priority", "9"), ("retry", "1", "--run-at", "never"),
        ("move", "--all", "--state", "completed"), ("retry", "one"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_refused_before_anything_changes(run: Any, words: tuple[str, ...]) -> None:
    assert run("dlq", *words, status=2).startswith("awa-pool: ")


def test_ended_jobs_of_a_queue_without_dead_letters_move_there_by_filter(
    run: Any, client: Client, dsn: str
) -> None:
    client.set_queue("default", dlq=False)
    ids = dead_jobs(dsn, 3)
    assert client.count_dead().jobs == 0
    assert run("dlq", "move", "--queue", "default", "--yes") == "3 jobs moved\n"
    assert [job.id for job in client.list_dead(reason="manual")] == ids[::-1]

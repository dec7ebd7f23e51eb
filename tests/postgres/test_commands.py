"""The commands beside the pool, on a real database."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest
from callbacks_rig import parked, register, waiting
from general_rig import Queue

from awa_pool import Client, EnqueueRequest, Job
from awa_pool.cli.entry import main
from awa_pool.testing import assert_enqueued, work_one


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], dsn: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWA_POOL_DSN", dsn)
    monkeypatch.delenv("AWA_POOL_APP", raising=False)

    def run(*words: str, status: int = 0) -> str:
        assert main(words) == status, capsys.readouterr().err
        told = capsys.readouterr()
        return told.err if status else told.out

    return run


@pytest.fixture
def client(dsn: str) -> Any:
    with Client(dsn) as client:
        yield client


def test_a_job_is_shown_with_all_it_carries(run: Any, client: Client) -> None:
    job_id = client.insert(
        {"size": 7}, kind="resize", queue="pictures", metadata={"from": "shop"}, tags=["a"]
    )
    told = run("job", str(job_id))
    for wanted in ("resize", "pictures", "available", '{"size": 7}', '{"from": "shop"}'):
        assert wanted in told
    shown = json.loads(run("job", str(job_id), "--json"))
    assert (shown["id"], shown["kind"], shown["args"]) == (job_id, "resize", {"size": 7})


def test_times_of_json_have_the_form_of_those_of_errors(run: Any, client: Client) -> None:
    job_id = client.insert({}, kind="resize", queue="pictures", max_attempts=1)

    def fail(job: Job[dict[str, Any]]) -> None:
        raise ValueError("no")

    work_one(client, "resize", fail)
    client.pause_queue("pictures")
    for words in (("job", str(job_id)), ("jobs",), ("dlq", "list"), ("queue", "list")):
        (line,) = run(*words, "--json").splitlines()
        row = json.loads(line)
        times = [row[name] for name in row if name.endswith("_at") and row[name] is not None]
        times += [error["at"] for error in row.get("errors", ())]
        assert times and all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", at) for at in times), times


def test_a_job_shows_who_holds_its_unique_key(run: Any, client: Client) -> None:
    first = client.insert({}, kind="k", unique_opts={"states": 0b11})
    told = run("job", str(first))
    assert "held by this job; a key of the states scheduled, available" in told
    client.cancel(first)
    newer = client.insert({}, kind="k", unique_opts={"states": 0b11})
    assert f"held by job {newer}" in run("job", str(first))
    unique = json.loads(run("job", str(first), "--json"))["unique"]
    assert (unique["holder"], unique["states"]) == (newer, ["scheduled", "available"])
    assert f"job {newer} holds the unique key" in run("retry", str(first), status=1)
    plain = client.insert({}, kind="k")
    assert json.loads(run("job", str(plain), "--json"))["unique"] is None
    assert "unique" not in run("job", str(plain))


def test_a_follow_up_shows_what_it_came_of_whether_it_was_staged_or_registered(
    run: Any, client: Client
) -> None:
    client.on_completed_enqueue("first", lambda args, job: EnqueueRequest({"n": 2}).kind("registered"))

    def stage(job: Job[dict[str, Any]]) -> None:
        job.enqueue_on_completion({"n": 1}, kind="next")

    parent = client.insert({}, kind="first")
    work_one(client, "first", stage)
    for kind in ("next", "registered"):
        (child,) = assert_enqueued(client, kind)
        assert f"follow-up of  job {parent}" in run("job", str(child.id))
        assert json.loads(run("job", str(child.id), "--json"))["follow_up_of"] == parent
    assert json.loads(run("job", str(parent), "--json"))["follow_up_of"] is None
    assert "follow-up" not in run("job", str(parent))


def test_a_job_shows_which_callback_it_waits_for(run: Any, client: Client, dsn: str) -> None:
    with Queue(dsn) as queue:
        attempt, callback = parked(queue)
    told = run("job", str(attempt.job_id))
    assert "waiting_external" in told
    assert re.search(
        r"waiting +for callback #1 since 20\S+ \S+Z \(\S+ ago\), until 20\S+ \S+Z \(in \S+\)", told
    )
    assert callback not in told  # whoever reads it could answer
    assert json.loads(run("job", str(attempt.job_id), "--json"))["waits_for"]["number"] == 1
    assert run("status").split("dead")[1].split()[:4] == ["oldest", "default", "0", "0"]
    assert json.loads(run("status", "--json"))["queues"][0]["waiting"] == 1
    client.complete_external(callback)
    assert json.loads(run("job", str(attempt.job_id), "--json"))["waits_for"] is None


@pytest.mark.parametrize("count", [0, 3, 5, 6])
def test_status_says_which_callbacks_time_out_first_and_how_many_more_jobs_wait(
    run: Any, client: Client, dsn: str, count: int
) -> None:
    with Queue(dsn) as queue:
        register(queue, queue.claimed())  # has a callback and runs: nobody waits for it yet
        waits = [waiting(queue, kind="ship") if n % 2 else parked(queue, kind="ship") for n in range(count)]
        for n, (attempt, _) in enumerate(waits):
            queue.rows(
                "update awa_pool.leases set callback_until = now() + make_interval(hours => %s) where job_id = %s",
                count - n, attempt.job_id,
            )  # fmt: skip
    first = [attempt.job_id for attempt, _ in reversed(waits)][:5]
    shown = run("status")
    assert re.findall(
        r"job (\d+) \(ship\): waiting for callback #1 since 20\S+ \S+Z \(\S+ ago\), until 20\S+ \S+Z \(in \S+\)",
        shown,
    ) == [str(job_id) for job_id in first]
    assert ("… and 1 more, which time out later" in shown) == (count == 6)
    assert not any(callback in shown for _, callback in waits)  # whoever reads it could answer
    told = json.loads(run("status", "--json"))["waits"]
    assert [(row["job_id"], row["kind"], row["number"]) for row in told] == [(n, "ship", 1) for n in first]
    assert all(row["since"] < row["until"] for row in told)


def test_an_unknown_job_is_a_failure_that_names_it(run: Any) -> None:
    for words in (("job", "987654"), ("cancel", "987654"), ("retry", "987654"), ("job", str(2**70))):
        assert words[1] in run(*words, status=1)


def test_jobs_are_listed_by_state_newest_first_and_page_by_page(run: Any, client: Client) -> None:
    ids = [client.insert({"n": n}, kind="count") for n in range(3)]
    listed = [json.loads(line)["id"] for line in run("jobs", "--state", "available", "--json").splitlines()]
    assert listed == ids[::-1]
    first = run("jobs", "--limit", "2")
    assert f"--before {ids[1]}" in first
    assert [
        json.loads(line)["id"] for line in run("jobs", "--before", str(ids[1]), "--json").splitlines()
    ] == [ids[0]]
    assert run("jobs", "--state", "failed") == "No such jobs.\n"


def test_stored_text_cannot_move_the_cursor(run: Any, client: Client) -> None:
    client.insert({"n": "\x1b[2J"}, kind="count\x1b[31m")
    told = run("jobs") + run("status") + run("queue", "stats")
    assert "\x1b" not in told and "count\\x1b[31m" in told


def test_a_job_is_cancelled_and_brought_back(run: Any, client: Client) -> None:
    job_id = client.insert({}, kind="count")
    assert run("cancel", str(job_id)) == f"job {job_id} is cancelled\n"
    assert str(job_id) in run("cancel", str(job_id), status=1)
    assert run("retry", str(job_id)) == f"job {job_id} is available\n"


def test_several_jobs_are_cancelled_and_brought_back_each_with_its_line(
    run: Any, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = client.insert_many([({"n": n}, {"kind": "count"}) for n in range(3)])
    words = [str(job_id) for job_id in ids]
    assert run("cancel", *words[:2]) == f"job {ids[0]} is cancelled\njob {ids[1]} is cancelled\n"
    assert main(["cancel", *words, "999999"]) == 1
    told = capsys.readouterr()
    assert told.out == f"job {ids[2]} is cancelled\n"
    refused = told.err.splitlines()
    assert [line.startswith("awa-pool: ") for line in refused] == [True] * 3
    assert words[0] in refused[0] and words[1] in refused[1] and "no job has the id 999999" in refused[2]
    assert run("retry", *words).splitlines() == [f"job {job_id} is available" for job_id in ids]


@pytest.mark.parametrize(
    "words", [("cancel",), ("retry", "1"), ("job",), ("dlq", "show"), ("dlq", "purge", "1"), ("dlq", "move")]
)
@pytest.mark.parametrize("wrong", ["abc", "1.5", "¹", "1_0", "9" * 5000])
def test_what_is_no_number_is_told_in_a_plain_sentence(run: Any, words: tuple[str, ...], wrong: str) -> None:
    told = run(*words, wrong, status=2)
    assert told == f"awa-pool: ID: {wrong[:80]!r} is no job's number; write one such as 17\n"


def test_a_queue_is_paused_and_resumed(run: Any, client: Client) -> None:
    client.insert({}, kind="count", queue="mail")
    assert run("queue", "pause", "mail") == "queue mail is paused\n"
    assert "mail (paused)" in run("status")
    assert run("queue", "resume", "mail") == "queue mail is resumed\n"
    assert run("queue", "resume", "mail") == "queue mail was not paused\n"
    (row,) = [json.loads(line) for line in run("queue", "stats", "--json").splitlines()]
    assert (row["queue"], row["available"], row["paused"]) == ("mail", 1, False)


@pytest.mark.parametrize(
    ("info", "age_s", "state"),
    [
        ({"stale_s": 600}, 60, "alive"),
        ({"stale_s": 5}, 60, "silent"),
        ({}, 60, "silent"),
        ({}, 1, "alive"),
        ({"stale_s": "x"}, 60, "silent"),
    ],
)
def test_status_calls_a_pool_silent_whose_heartbeat_is_overdue(
    run: Any, dsn: str, info: dict[str, Any], age_s: int, state: str
) -> None:
    with Queue(dsn) as queue:
        queue.rows(
            "select awa_pool.register_runtime(gen_random_uuid(), 'host', 42, %s::jsonb)", json.dumps(info)
        )
        queue.rows(
            "update awa_pool.runtimes set heartbeat_at = now() - make_interval(secs => %s) where pid = 42",
            age_s,
        )
    (line,) = [line for line in run("status").splitlines() if " 42 " in line]
    assert line.split()[2] == state


def test_status_shows_the_living_pools_and_counts_the_gone(run: Any, dsn: str) -> None:
    with Queue(dsn) as queue:

        def pool(pid: int, state: str, age_s: int) -> None:
            queue.rows("select awa_pool.register_runtime(gen_random_uuid(), 'host', %s, '{}'::jsonb)", pid)
            queue.rows(
                "update awa_pool.runtimes set state = %s, heartbeat_at = now() - make_interval(secs => %s) where pid = %s",
                state, age_s, pid,
            )  # fmt: skip

        pool(41, "gone", 3600)
        told = run("status")
        assert told.startswith("1 pool is gone, 1h00m ago\n") and " 41 " not in told
        pool(42, "gone", 120)
        pool(43, "alive", 0)
    lines = run("status").splitlines()
    assert " 43 " in lines[1] and lines[2] == "2 pools are gone, the last 2m00s ago"
    assert not [line for line in lines if " 41 " in line or " 42 " in line]
    assert {row["pid"] for row in json.loads(run("status", "--json"))["pools"]} == {41, 42, 43}


def test_status_tells_pools_and_queues_as_one_object(run: Any, client: Client) -> None:
    assert "No pool" in run("status") and "No queue" in run("status")
    client.insert({}, kind="count")
    told = json.loads(run("status", "--json"))
    assert told["pools"] == [] and told["queues"][0]["available"] == 1
    run("queue", "set", "mail", "--deadline", "30s", "--no-dlq")
    (settings,) = [row for row in json.loads(run("status", "--json"))["settings"] if row["queue"] == "mail"]
    assert (settings["deadline_s"], settings["dlq"]) == (30.0, False)


@pytest.mark.parametrize(
    ("info", "unserved"),
    [
        ({"workers": 2, "queues": ["mail"]}, []),
        ({"workers": 2, "queues": ["other"]}, ["mail"]),
        ({"workers": 0, "queues": ["mail"]}, ["mail"]),
        ({"workers": 2}, []),  # another version's pool: nobody knows
    ],
)
def test_status_names_queues_with_jobs_that_nobody_serves(
    run: Any, client: Client, dsn: str, info: dict[str, Any], unserved: list[str]
) -> None:
    client.insert({}, kind="count", queue="mail")
    with Queue(dsn) as queue:
        queue.rows(
            "select awa_pool.register_runtime(gen_random_uuid(), 'host', 42, %s::jsonb)", json.dumps(info)
        )
    assert json.loads(run("status", "--json"))["unserved"] == unserved
    assert ("mail: jobs are available, and no pool serves it" in run("status")) == bool(unserved)


def test_a_jobs_own_deadline_is_shown(run: Any, client: Client) -> None:
    job_id = client.insert({}, kind="count", deadline=90)
    lines = [line.split() for line in run("job", str(job_id)).splitlines()]
    assert ["deadline", "90s"] in lines
    assert json.loads(run("job", str(job_id), "--json"))["deadline_s"] == 90.0


def test_a_missing_schema_is_refused_with_the_command_to_run(run: Any, dsn: str) -> None:
    assert "awa-pool migrate --schema other" in run("status", "--schema", "other", status=2)
    assert "installed" in run("migrate", "--schema", "other")
    assert "up to date" in run("migrate", "--schema", "other")
    assert "No queue" in run("status", "--schema", "other")


def test_progress_is_shown_with_the_job_and_in_the_list(run: Any, client: Client, dsn: str) -> None:
    job_id = client.insert({}, kind="long")
    with psycopg.connect(dsn, autocommit=True) as conn:
        with Queue(dsn) as queue:
            (attempt,) = queue.claim()
        said = {"percent": 42.5, "message": "reading", "metadata": {"page": 3}}
        item = {**attempt.ended("retry"), "progress": said}
        conn.execute("select awa_pool.keep_progress(%s::json)", (json.dumps([item]),))
    told = run("job", str(job_id))
    assert "42.5 %, reading" in told and '{"page": 3}' in told
    assert json.loads(run("job", str(job_id), "--json"))["progress"] == said
    assert "42.5 %, reading" in run("jobs", "--kind", "long")

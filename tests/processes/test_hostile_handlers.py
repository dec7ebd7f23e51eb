"""A whole pool under handlers of the worst manners: each attempt becomes one recorded outcome of bounded size."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psycopg
from apps import hostile
from cli_rig import run
from pool_rig import pool, wait_until

from awa_pool import AsyncClient, Client
from awa_pool.requests import InsertRequest

KINDS = ("misbehave", "misbehave_async")


def app_pool(folder: Path, dsn: str, **options: Any) -> Any:
    return pool(folder, dsn, app="apps.hostile:client", **options)


def test_whatever_a_handler_makes_is_one_recorded_outcome(tmp_path: Path, dsn: str) -> None:
    """Distilled 8, 17, 18, 20; B056."""
    client = Client(dsn)
    jobs = {
        (kind, what): client.insert({"what": what}, kind=kind, queue="default")
        for kind in KINDS
        for what in hostile.ALL
    }
    beside = client.insert_many([({"what": "nothing"}, {"kind": "misbehave"})] * 200)
    with app_pool(tmp_path, dsn) as running:

        def open_jobs() -> int:
            return sum(row.available + row.running for row in client.queue_stats())

        wait_until("every job has ended or waits for its retry", lambda: not open_jobs())
        log = running.log
    assert "replacing it" not in log and "ended by" not in log, log
    assert len(log) < 300_000
    for kind in KINDS:
        assert f"kind {kind}, attempt 1 of 25 failed, next try in" in log, log
    wanted = {**dict.fromkeys(hostile.RAISES, "retryable"), **dict.fromkeys(hostile.RETURNS, "completed"),
              **dict.fromkeys(hostile.CANCELS, "cancelled")}  # fmt: skip
    for (kind, what), job_id in jobs.items():
        row = client.get_job(job_id)
        assert row is not None and (kind, what, row.state) == (kind, what, wanted[what]), row.errors
        assert row.attempt == 1
        for error in row.errors:
            assert error["type"] and error["error"]
            assert len(str(error).encode()) < 12_000
    assert all(row is not None and row.state == "completed" for row in map(client.get_job, beside))
    client.close()
    assert run("jobs", "--limit", "200", cwd=tmp_path, AWA_POOL_DSN=dsn).returncode == 0


VALUES = [
    {"x": value}
    for value in (
        None, True, 0, -0.0, 1e16, 1e-7, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 2**63 - 1, -(2**63), 2**53 + 1,
        "", "\\u0000", "\\", '"', "\x01\x1f\x7f", "\u2028", "🦀", "\ufffe", "null", "9" * 40, "a\tb\r\n\\N\\.", "</script>",
        [], {}, [[[]]], {"": {"": None}}, {"x" * 5000: 1}, "x" * 100_000, list(range(3000)),
    )
]  # fmt: skip
UNREADABLE = ['{"x": 9223372036854775808}', '{"x": [1, -9223372036854775809]}', '{"x": 1e400}']
WIDE = "args: an integer in them does not fit 64 bits, signed"
TAGS = ["a b", "{}", '"', "\\", "NULL", "null", "🦀", ",", "'", "\t\n", "x" * 200]


def test_values_reach_the_handler_digit_by_digit_or_fail_their_jobs_alone(tmp_path: Path, dsn: str) -> None:
    """Distilled 17, 18, 19; B061, B063."""
    requests = [
        InsertRequest(
            args=args, kind="echo", tags=TAGS, metadata={"sent": hostile.digest(args), "tags": TAGS}
        )
        for args in VALUES
    ]

    async def awaited() -> list[int]:
        async with AsyncClient(dsn) as client:
            ids = await client.insert_many(requests)
            await client.insert_many_copy(requests)
            first = requests[0]
            ids.append(await client.insert(first.args, kind="echo", tags=TAGS, metadata=first.metadata))
            return ids

    with Client(dsn) as client:
        for request in requests:
            client.insert(request.args, kind="echo", tags=TAGS, metadata=request.metadata)
        client.insert_many(requests)
        client.insert_many_copy(requests)
        asyncio.run(awaited())
        with psycopg.connect(dsn, autocommit=True) as conn:
            for request in requests:
                texts = (json.dumps(request.args), json.dumps(request.metadata))
                conn.execute(
                    "select awa_pool.enqueue('echo', %s, p_metadata => %s, p_tags => %s)", (*texts, TAGS)
                )
                item = f'{{"kind": "echo", "args": {texts[0]}, "metadata": {texts[1]}, "tags": {json.dumps(TAGS)}}}'
                conn.execute("select awa_pool.enqueue_many(%s::json)", (f"[{item}]",))
            for text in UNREADABLE:  # round every gate, between two that are sound
                conn.execute("insert into awa_pool.jobs_ready (kind, args) values ('echo', %s)", (text,))
        client.insert_many(requests)
        with app_pool(tmp_path, dsn, drain=True) as running:
            assert running.ended() == 0, running.log
        rows = client.list_jobs(limit=1000)
    unread = [row for row in rows if row.state == "failed"]
    assert [row.errors[-1]["error"] for row in reversed(unread)][:2] == [WIDE, WIDE]
    assert [(row.attempt, row.errors[-1]["type"]) for row in unread] == [(1, "UnreadableJob")] * len(
        UNREADABLE
    )
    assert unread[-1].args == {"x": 9223372036854775808}
    ended = [row for row in rows if row.state != "failed"]
    assert len(ended) == 8 * len(requests) + 1
    assert [row.errors for row in ended if row.state != "completed"] == []
    assert sorted({repr(row.args) for row in ended}) == sorted(repr(args) for args in VALUES)
    assert all(row.tags == TAGS for row in ended)


def test_names_of_any_letters_work_everywhere(tmp_path: Path, dsn: str) -> None:
    """B071, B105."""
    names = hostile.ODD_NAMES
    with Client(dsn) as client, app_pool(tmp_path, dsn, metrics_port=0) as running:
        ids = [
            client.insert({}, kind=f"k{name}"[:200], queue=name, tags=[name], ordering_key=name)
            for name in names
        ]
        client.insert_many([({}, {"kind": f"k{name}"[:200], "queue": name}) for name in names])
        client.insert_many_copy([({}, {"kind": f"k{name}"[:200], "queue": name}) for name in names])
        wait_until(
            "every job of every queue has run",
            lambda: all(len(client.list_jobs(queue=name, state="completed")) == 3 for name in names),
        )
        for name, job_id in zip(names, ids, strict=True):
            row = client.get_job(job_id)
            assert row is not None
            assert (row.queue, row.kind, row.tags, row.ordering_key) == (name, f"k{name}"[:200], [name], name)
            assert len(client.list_jobs(kind=f"k{name}"[:200])) == 3
            client.pause_queue(name)
        assert {row.queue for row in client.queue_stats() if row.paused} == set(names)
        series = [
            'queue="{}"'.format(n.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
            for n in names
        ]
        wait_until(
            "the metrics name every queue",
            lambda: (text := running.fetch("/metrics")[1]) and all(one in text for one in series),
        )
        for name in names[:3]:
            done = run("queue", "resume", "--", name, cwd=tmp_path, AWA_POOL_DSN=dsn)
            assert done.returncode == 0, (name, done.stderr)
        assert {row.queue for row in client.queue_stats() if row.paused} == set(names[3:])
        for words in (("status",), ("jobs", "--limit", "100")):
            shown = run(*words, cwd=tmp_path, AWA_POOL_DSN=dsn).stdout
            assert "\x1b" not in shown and "\u202e" not in shown, words

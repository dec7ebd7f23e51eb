"""Each shipped query names functions, columns and parameters that exist: the server plans it, nothing runs."""

from __future__ import annotations

import re

import psycopg

from awa_pool import sqlfiles

VOID = 2278
SELECTS = [
    name.rpartition("/")[2]
    for name in sqlfiles.names("queries")
    if re.sub(r"--.*\n", "", sqlfiles.read(name)).lstrip().startswith("select")
]


def test_the_server_plans_each_query(dsn: str) -> None:
    assert len(SELECTS) > 30
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name in SELECTS:
            text = sqlfiles.query(name, "awa_pool")
            conn.execute("explain " + text, dict.fromkeys(re.findall(r"%\((\w+)\)s", text)) or None)


def test_every_public_function_of_the_contract_has_a_query() -> None:
    wanted = {
        "enqueue", "enqueue_many", "notify_waiters", "claim", "complete", "finish", "promote", "register_runtime",
        "heartbeat", "say_goodbye", "rescue_stale", "lead", "step_down", "open_attempts", "cancel", "retry",
        "pause_queue", "resume_queue", "work_left", "job", "list_jobs", "queue_stats", "queue_depths", "rotate",
        "exhaust_slots", "sweep", "prune", "trim_cursors", "move_open_attempts", "check_cluster",
    }  # fmt: skip
    assert wanted <= {name.rpartition("/")[2] for name in sqlfiles.names("queries")}


def test_the_driver_reads_each_column_in_its_binary_form(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        unread = psycopg.adapters.get_loader(0, psycopg.pq.Format.BINARY)
        for name in SELECTS:
            text = re.sub(r"%\(\w+\)s", "null", sqlfiles.query(name, "awa_pool"))
            conn.pgconn.prepare(b"", text.encode())
            described = conn.pgconn.describe_prepared(b"")
            oids = {described.ftype(column) for column in range(described.nfields)}
            strange = [
                oid
                for oid in oids - {VOID}
                if psycopg.adapters.get_loader(oid, psycopg.pq.Format.BINARY) in (None, unread)
            ]
            assert (name, strange) == (name, [])

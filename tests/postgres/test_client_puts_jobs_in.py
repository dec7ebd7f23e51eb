"""The synchronous client against a real server."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest
from client_rig import SendEmail, declare, end_sessions, sessions
from psycopg.rows import dict_row

from awa_pool import Client, InsertRequest, State
from awa_pool.errors import (
    ConfigError,
    JobNotFound,
    SchemaMismatch,
    StoreRefused,
    StoreUnavailable,
    TransitionRefused,
    ValidationError,
)
from awa_pool.requests import CHUNK_JOBS
from awa_pool.store.connection import PREPARE_AFTER

ODD = "a\\b\"\t\n'é🦀 \\N {x,y} \\u0041"
LATER = timedelta(hours=1)


@pytest.fixture
def client(dsn):
    with Client(dsn) as made:
        declare(made)
        yield made


def count(dsn, table="jobs_ready"):
    with psycopg.connect(dsn) as conn:
        return conn.execute(f"select count(*) from awa_pool.{table}").fetchone()[0]


def test_a_job_goes_in_with_its_tasks_defaults_and_is_shown_as_it_is(client):
    job = client.get_job(client.insert(SendEmail(ODD, 2**62, [1e16, -0.0, None, True])))
    assert (job.kind, job.queue, job.priority, job.max_attempts, job.state) == (
        "send_email",
        "mail",
        1,
        3,
        "available",
    )
    assert job.args == {"to": ODD, "tries": 2**62, "extra": [1e16, -0.0, None, True]}
    assert repr(job.args["extra"][:2]) == "[1e+16, -0.0]"
    assert (job.attempt, job.tags, job.metadata, job.errors) == (0, [], {}, [])
    assert job.created_at.tzinfo is UTC


def test_options_win_over_the_tasks_defaults(client):
    at = datetime.now(UTC) + LATER
    job = client.get_job(
        client.insert(
            {"x": 1}, kind=ODD, queue=ODD, priority=4, max_attempts=1000, tags=[ODD, ""[:0] or "t"],
            metadata={ODD: [ODD]}, run_at=at, ordering_key=ODD,
        )
    )  # fmt: skip
    assert (job.kind, job.queue, job.priority, job.max_attempts, job.ordering_key) == (ODD, ODD, 4, 1000, ODD)
    assert (job.tags, job.metadata, job.state) == ([ODD, "t"], {ODD: [ODD]}, "scheduled")
    assert job.run_at == at


def test_bulk_and_copy_store_the_same_as_single_inserts(client):
    options = {"kind": ODD, "queue": ODD, "tags": [ODD], "metadata": {ODD: ODD}, "ordering_key": ODD}
    ids = client.insert_many([({"a": ODD}, options), SendEmail("x"), InsertRequest(args={}, kind="plain")])
    assert ids == sorted(ids)
    assert (
        client.insert_many_copy([({"a": ODD}, options), SendEmail("x"), InsertRequest(args={}, kind="plain")])
        == 3
    )
    single = client.insert({"a": ODD}, **options)
    jobs = {job.id: job for job in client.list_jobs()}
    rows = [jobs[job_id] for job_id in sorted(jobs)]
    assert [job.kind for job in rows] == [ODD, "send_email", "plain", ODD, "send_email", "plain", ODD]
    bodies = [
        (j.args, j.kind, j.queue, j.tags, j.metadata, j.ordering_key, j.priority, j.max_attempts)
        for j in rows
    ]
    assert bodies[0] == bodies[3] == bodies[6]
    assert bodies[1] == bodies[4]
    assert rows[6].id == single


def test_copy_keeps_the_order_of_jobs_with_and_without_rare_options(client):
    items = [
        ({"n": n}, {"kind": "k", "tags": ["t"] if n // CHUNK_JOBS % 2 else None})
        for n in range(3 * CHUNK_JOBS)
    ]
    assert client.insert_many_copy(items) == len(items)
    listed = [(job.args["n"], job.tags) for job in client.list_jobs(limit=1)]
    assert listed == [(len(items) - 1, [])]
    first = client.list_jobs(limit=1)[0].id - len(items) + 1
    for n in (0, CHUNK_JOBS - 1, CHUNK_JOBS, 2 * CHUNK_JOBS - 1, 2 * CHUNK_JOBS):
        job = client.get_job(first + n)
        assert (job.args["n"], bool(job.tags)) == (n, bool(n // CHUNK_JOBS % 2))


def test_a_session_of_our_own_keeps_the_plan_of_an_insert_and_a_callers_does_not(dsn, client):
    text = "select count(*) from pg_prepared_statements where statement like '%%enqueue%%'"
    for n in range(PREPARE_AFTER + 1):
        client.insert(SendEmail("x", n))
        client.insert(SendEmail("x", n), tags=["t"])
    with client._opened().store() as store:
        assert store.conn.execute(text).fetchone() == (2,)
    with psycopg.connect(dsn, autocommit=True) as conn:
        for n in range(PREPARE_AFTER + 1):
            client.insert(SendEmail("x", n), conn=conn)
        assert conn.execute(text).fetchone() == (0,)


def test_a_callers_pipeline_is_used_as_it_stands(dsn, client):
    with psycopg.connect(dsn) as conn, conn.pipeline():
        conn.execute("create temporary table mine (n int)")
        job_id = client.insert(SendEmail("x"), conn=conn)
        ids = client.insert_many([SendEmail("x")] * 3, conn=conn)
        assert client.get_job(job_id, conn=conn).id == job_id and len(ids) == 3
        assert client.cancel(ids[0], conn=conn) is State.CANCELLED
        with pytest.raises(StoreRefused, match="COPY cannot be used in pipeline mode"):
            client.insert_many_copy([SendEmail("x")], conn=conn)
        conn.execute("insert into mine values (1)")
    assert count(dsn) == 4
    assert client.get_job(ids[0]).state == "cancelled"


def test_jobs_with_a_due_time_wait_whichever_way_they_came(client):
    at = datetime.now(UTC) + LATER
    past = datetime(1, 1, 1, tzinfo=UTC)
    items = [SendEmail("now"), (SendEmail("later"), {"run_at": at}), (SendEmail("past"), {"run_at": past})]
    ids = client.insert_many(items)
    assert client.insert_many_copy(items) == 3
    states = [client.get_job(job_id).state for job_id in ids]
    assert states == ["available", "scheduled", "available"]
    assert [job.state for job in client.list_jobs(limit=3)].count("scheduled") == 1


@pytest.mark.parametrize("road", ["insert_many", "insert_many_copy"])
def test_a_hundred_thousand_jobs_go_in_by_one_call_and_ids_follow_the_order(client, dsn, road):
    """B101."""
    made = getattr(client, road)([SendEmail("x", n) for n in range(100_000)])
    if road == "insert_many":
        assert len(set(made)) == 100_000
        assert made == sorted(made)
        assert client.get_job(made[77_777]).args["tries"] == 77_777
    else:
        assert made == 100_000
    assert count(dsn) == 100_000


@pytest.mark.parametrize("road", ["insert_many", "insert_many_copy"])
@pytest.mark.parametrize("index", [0, 2_500, 9_999])
def test_one_flaw_in_a_bulk_call_stores_nothing_and_names_the_item(client, dsn, road, index):
    """B101; distilled 31."""
    items = [SendEmail("x") for _ in range(10_000)]
    items[index] = SendEmail("x", 2**64)
    with pytest.raises(ValidationError, match=rf"^jobs\[{index}\]\.args\.tries: "):
        getattr(client, road)(items)
    assert count(dsn) == 0
    assert client.insert(SendEmail("the client goes on"))


def test_an_empty_bulk_call_is_nothing(client):
    assert client.insert_many([]) == []
    assert client.insert_many_copy(iter(())) == 0


@pytest.mark.parametrize("road", ["insert", "insert_many", "insert_many_copy"])
def test_a_job_lives_and_dies_with_the_callers_transaction(client, dsn, road):
    """B129."""

    def put(conn):
        getattr(client, road)(SendEmail("x") if road == "insert" else [SendEmail("x")], conn=conn)

    with psycopg.connect(dsn) as conn:
        put(conn)
        assert count(dsn) == 0
        conn.rollback()
        put(conn)
        with pytest.raises(ZeroDivisionError), conn.transaction():
            put(conn)
            raise ZeroDivisionError
        assert count(dsn) == 0
        conn.commit()
        assert count(dsn) == 1
        conn.autocommit = True
        put(conn)
        assert count(dsn) == 2


def test_the_callers_connection_may_be_of_any_make(client, dsn):
    for cursor_factory in (psycopg.Cursor, psycopg.RawCursor, psycopg.ClientCursor):
        made = psycopg.connect(dsn, row_factory=dict_row, cursor_factory=cursor_factory)
        with made as conn:
            job_id = client.insert(SendEmail("x"), conn=conn)
            assert client.insert_many([SendEmail("x")] * 3, conn=conn)[0] > job_id
            assert client.insert_many_copy([SendEmail("x")], conn=conn) == 1
            assert client.get_job(job_id, conn=conn).kind == "send_email"
    assert count(dsn) == 15


def test_a_refused_request_leaves_the_callers_transaction_alone(client, dsn):
    with psycopg.connect(dsn) as conn:
        client.insert(SendEmail("kept"), conn=conn)
        for call in (client.insert_many, client.insert_many_copy):
            with pytest.raises(ValidationError):
                call([SendEmail("x")] * 3_000 + [SendEmail("x", 2**64)], conn=conn)
        conn.commit()
    assert count(dsn) == 1


def test_only_a_psycopg_connection_of_the_right_colour_is_taken(client):
    with pytest.raises(ValidationError, match="conn: expected a psycopg.Connection, got str"):
        client.insert(SendEmail("x"), conn="postgresql://")  # type: ignore[arg-type]


def test_cancel_and_retry_give_the_new_state(client):
    job_id = client.insert(SendEmail("x"))
    assert client.cancel(job_id) is State.CANCELLED
    with pytest.raises(TransitionRefused):
        client.cancel(job_id)
    assert client.retry(job_id) is State.AVAILABLE
    assert client.get_job(job_id).state == "available"
    for call in (client.cancel, client.retry):
        with pytest.raises(JobNotFound):
            call(2**60)
        with pytest.raises(ValidationError, match="job_id"):
            call("7")
    assert client.get_job(2**60) is None


def test_lists_are_filtered_and_paged(client):
    ids = client.insert_many([SendEmail("x")] * 5 + [({}, {"kind": "plain"})])
    client.cancel(ids[0])
    assert [job.id for job in client.list_jobs(kind="send_email", limit=2)] == [ids[4], ids[3]]
    assert [job.id for job in client.list_jobs(queue="mail", before_id=ids[2])] == [ids[1], ids[0]]
    assert [job.id for job in client.list_jobs(state="cancelled")] == [ids[0]]
    for wrong in ({"state": "done"}, {"limit": 0}, {"limit": 1001}, {"queue": ""}, {"before_id": "x"}):
        with pytest.raises(ValidationError):
            client.list_jobs(**wrong)


def test_queues_are_paused_resumed_and_counted(client):
    client.insert_many([SendEmail("x")] * 3)
    client.pause_queue("mail")
    assert {q.queue: (q.available, q.paused) for q in client.queue_stats()}["mail"] == (3, True)
    client.resume_queue("mail")
    assert not {q.queue: q.paused for q in client.queue_stats()}["mail"]


def test_ids_beyond_32_bits_stay_whole(client, dsn):
    """Distilled 27."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("alter sequence awa_pool.job_id_seq restart with 2147483646")
    ids = client.insert_many([SendEmail("x")] * 3) + [client.insert(SendEmail("x"))]
    assert ids == [2147483646, 2147483647, 2147483648, 2147483649]
    assert client.get_job(ids[3]).id == ids[3]
    assert client.cancel(ids[2]) is State.CANCELLED


def test_a_due_time_at_the_end_of_the_calendar_comes_back(client):
    """B124."""
    at = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert client.get_job(client.insert(SendEmail("x"), run_at=at)).run_at == at


def test_threads_share_a_client_within_its_small_budget(client, dsn):
    failures = []

    def work():
        try:
            for _ in range(20):
                client.insert(SendEmail("x"))
        except Exception as problem:  # noqa: BLE001
            failures.append(problem)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert count(dsn) == 240
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert 1 <= sessions(conn, "awa-pool client") <= 4


def test_bulk_calls_of_the_same_jobs_in_any_order_never_stand_in_each_others_way(client, dsn):
    """B109, without unique keys; distilled 25."""
    failures = []
    roads = [client.insert_many, client.insert_many_copy]

    def work(number):
        try:
            items = [SendEmail(str(n)) for n in range(1000)]
            for turn in range(5):
                random.Random(number * 10 + turn).shuffle(items)
                roads[turn % 2](items)
        except Exception as problem:  # noqa: BLE001
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert count(dsn) == 8 * 5 * 1000


def test_a_due_time_is_the_same_instant_whatever_zones_role_and_session_have(dsn):
    """B126; distilled 28."""
    at = datetime(2090, 7, 1, 12, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("alter role awa set timezone = 'Asia/Kathmandu'")
    try:
        for zone in ("", " options='-c timezone=America/New_York'"):
            with Client(dsn + zone) as client:
                (by_bulk,) = client.insert_many([({}, {"kind": "k", "run_at": at})])
                client.insert_many_copy([({}, {"kind": "k", "run_at": at})])
                ids = [client.insert({}, kind="k", run_at=at), by_bulk, client.list_jobs(limit=1)[0].id]
                for job_id in ids:
                    assert client.get_job(job_id).run_at == at
                    assert client.get_job(job_id).run_at.tzinfo is UTC
                with pytest.raises(ValidationError, match="run_at.*without a zone"):
                    client.insert({}, kind="k", run_at=at.replace(tzinfo=None))
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("alter role awa reset timezone")


def test_connections_that_the_server_ended_are_replaced_unseen(client, dsn):
    client.insert(SendEmail("x"))
    assert end_sessions(dsn, "awa-pool client") == 1
    client.insert(SendEmail("x"))
    assert end_sessions(dsn, "awa-pool client") == 1
    assert client.insert_many_copy([SendEmail("x")] * 3) == 3
    assert count(dsn) == 5


def test_closing_ends_the_sessions_and_the_client_can_be_used_again(client, dsn):
    client.insert(SendEmail("x"))
    client.close()
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert end_sessions(dsn, "awa-pool client") in (0, 1)
        assert sessions(conn, "awa-pool client") == 0
    assert client.insert(SendEmail("x"))


def test_migrate_installs_what_the_client_needs(empty_dsn):
    with Client(empty_dsn, schema="my jobs") as client:
        with pytest.raises(SchemaMismatch, match="awa-pool migrate --schema 'my jobs'"):
            client.insert({}, kind="k")
        client.migrate()
        assert client.get_job(client.insert({}, kind="k")).kind == "k"


def test_nothing_is_opened_before_the_first_use_and_the_address_is_looked_for_then(monkeypatch, dsn):
    monkeypatch.delenv("AWA_POOL_DSN", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    client = Client()
    with pytest.raises(ConfigError, match="AWA_POOL_DSN or DATABASE_URL"):
        client.insert({}, kind="k")
    monkeypatch.setenv("DATABASE_URL", dsn)
    with client:
        assert client.insert({}, kind="k")
    with pytest.raises(StoreUnavailable):
        Client("host=/nowhere dbname=x").insert({}, kind="k")
    with pytest.raises(ConfigError):
        Client("")
    with pytest.raises(ConfigError):
        Client(schema="bad'name")

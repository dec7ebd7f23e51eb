"""Failed jobs lie in the dead letter queue until they are retried, moved on or purged; each is in one place at a time."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from general_rig import Queue

_numbers = itertools.count(1)
PLACES = ("jobs_deferred", "jobs_returned", "jobs_finished", "jobs_dead", "leases")


@pytest.fixture(scope="module")
def _shared(pg_server: Any, _template: str) -> Iterator[str]:
    """A database for all tests of this module, which keep to queues of their own."""
    pg_server.execute("create database dead_letters template awa_template")
    yield pg_server.dsn("dead_letters")
    pg_server.execute("drop database dead_letters with (force)")


@pytest.fixture
def queue(_shared: str) -> Iterator[Queue]:
    with Queue(_shared, f"queue_{next(_numbers)}") as found:
        yield found


def _die(q: Queue, **named: Any) -> int:
    """Put one job in and let it fail for good."""
    attempt = q.claimed(**named)
    assert q.finish(attempt.ended("fail", error={"error": "no", "type": "E"})) == [("done", "failed")]
    return attempt.job_id


def _place(q: Queue, job_id: int) -> str:
    """Return the only table of rows that holds the job, `ring` for none; the view must show it once."""
    held = [t for t in PLACES if q.one(f"select count(*) from awa_pool.{t} where job_id = %s", job_id)]
    assert q.one("select count(*) from awa_pool.jobs where id = %s", job_id) == 1
    assert len(held) <= 1
    return held[0] if held else "ring"


def _purge(q: Queue, *ids: int) -> list[Any]:
    return q.rows(
        "select job_id, status, detail from awa_pool.purge_dead(%s::bigint[], null, null, null, null, null, null,"
        " null, null, 1000)", list(ids),
    )  # fmt: skip


@pytest.mark.parametrize("moved", [False, True], ids=["in-its-slot", "moved-out"])
@pytest.mark.parametrize(
    ("word", "more", "reason"),
    [
        ("fail", {}, "terminal_error"),
        ("fail", {"reason": "follow_up_failed"}, "follow_up_failed"),
        ("retry", {}, "max_attempts_exhausted"),
        ("lost", {}, "max_attempts_exhausted"),
        ("retry", {"error": {"error": "late", "reason": "deadline_exceeded"}}, "deadline_exceeded"),
    ],
)
def test_a_job_that_failed_for_good_lies_there_with_its_reason_and_nowhere_else(
    queue: Queue, word: str, more: dict[str, Any], reason: str, moved: bool
) -> None:
    attempt = queue.claimed(max_attempts=1)
    if moved:
        queue.move(attempt)
    assert queue.finish(attempt.ended(word, **more)) == [("done", "failed")]
    found = queue.job(attempt.job_id) or {}
    assert (found["state"], found["dead"], found["reason"]) == ("failed", True, reason)
    assert _place(queue, attempt.job_id) == "jobs_dead"
    assert queue.rows("select failed, dead from awa_pool.queue_stats() where queue = %s", queue.name) == [
        (0, 1)
    ]


def test_a_rescued_job_on_its_last_attempt_and_an_unreadable_one_lie_there(queue: Queue) -> None:
    lost = queue.claimed(max_attempts=1)
    queue.rows("select awa_pool.register_runtime(%s, 'h', 1, '{}')", queue.runtime)
    queue.rows("select awa_pool.say_goodbye(%s)", queue.runtime)
    queue.rows("select awa_pool.rescue_stale(60, 100)")
    odd = queue.enqueue(run_at="2099-01-01T00:00:00Z")
    queue.rows("update awa_pool.jobs_deferred set priority = 9 where job_id = %s", odd)
    queue.make_due()
    queue.promote()
    found = [queue.job(each) or {} for each in (lost.job_id, odd)]
    assert [(j["state"], j["dead"], j["reason"]) for j in found] == [
        ("failed", True, "max_attempts_exhausted"), ("failed", True, "unreadable"),
    ]  # fmt: skip
    assert [_place(queue, each) for each in (lost.job_id, odd)] == ["jobs_dead"] * 2


def test_a_queue_without_dead_letters_keeps_failed_jobs_in_its_history(queue: Queue) -> None:
    queue.rows("""select awa_pool.set_queue(%s, '{"dlq": false}')""", queue.name)
    job_id = _die(queue)
    assert (queue.job(job_id) or {})["dead"] is False
    assert _place(queue, job_id) == "jobs_finished"
    cancelled = queue.claimed()
    queue.rows("""select awa_pool.set_queue(%s, '{"dlq": true}')""", queue.name)
    queue.finish(cancelled.ended("cancel"))
    assert _place(queue, cancelled.job_id) == "jobs_finished"


def test_a_replay_gives_all_attempts_keeps_the_history_and_reopens_nothing_completed(queue: Queue) -> None:
    """B135."""
    job_id = queue.enqueue(max_attempts=2, metadata={"m": 1}, tags=["t"])
    leases = []
    for _ in range(2):  # two lives, each with both attempts
        for n in (1, 2):
            (attempt,) = queue.claim()
            assert (attempt.job_id, attempt.attempt) == (job_id, n)
            leases.append(attempt.run_lease)
            queue.finish(attempt.ended("retry", delay_s=0, error={"error": f"life {len(leases)}"}))
            queue.promote()
        assert _place(queue, job_id) == "jobs_dead"
        assert queue.retry_dead(job_id) == [(job_id, "done", "available")]
        found = queue.job(job_id) or {}
        assert (found["attempt"], found["reason"], found["dead"]) == (0, None, False)
        assert _place(queue, job_id) == "ring"
    (attempt,) = queue.claim()
    queue.finish(attempt.ended("completed"))
    found = queue.job(job_id) or {}
    assert (found["state"], found["attempt"], found["metadata"], found["tags"]) == (
        "completed",
        1,
        {"m": 1},
        ["t"],
    )
    assert [e["error"] for e in found["errors"]] == [f"life {n}" for n in (1, 2, 3, 4)]
    assert [*leases, attempt.run_lease] == [1, 2, 3, 4, 5]
    assert queue.retry_dead(job_id) == []
    with pytest.raises(psycopg.Error, match="is completed") as refused:
        queue.rows("select awa_pool.retry(%s)", job_id)
    assert refused.value.sqlstate == "AW005"


def test_a_late_result_of_the_life_before_counts_for_nothing(queue: Queue) -> None:
    before = queue.claimed(max_attempts=1)
    queue.move(before)
    queue.finish(before.ended("lost"))
    queue.retry_dead(before.job_id)
    (after,) = queue.claim()
    for word in ("completed", "fail", "retry", "cancel", "return"):
        stale = before.ended(word, delay_s=1)
        assert queue.finish(stale, {**stale, "run_lease": after.run_lease}) == [("stale", None)] * 2
    assert queue.state(after.job_id) == "running"
    assert queue.finish(after.ended("completed")) == [("done", "completed")]


def test_a_retry_clears_progress_and_can_change_queue_priority_and_time(queue: Queue) -> None:
    first, later = _die(queue, args={"n": 1}), _die(queue)
    queue.rows("update awa_pool.jobs_dead set progress = '{\"done\": 7}' where queue = %s", queue.name)
    assert queue.retry_dead(first, priority=4, to_queue=f"{queue.name}_b") == [(first, "done", "available")]
    assert queue.retry_dead(later, run_at="2099-01-01T00:00:00Z") == [(later, "done", "scheduled")]
    assert queue.claim() == []
    (attempt,) = queue.claim(queue=f"{queue.name}_b")
    found = queue.job(first) or {}
    assert (attempt.job_id, found["priority"], found["args"]) == (first, 4, {"n": 1})
    assert queue.one(
        "select count(progress) from (select progress from awa_pool.jobs_deferred where job_id = %s"
        " union all select progress from awa_pool.jobs_ready where job_id = %s and attempt = 0) as p", later, first,
    ) == 0  # fmt: skip
    queue.make_due()
    queue.promote()
    assert [a.job_id for a in queue.claim()] == [later]


def test_a_retry_with_impossible_values_is_refused_whole(queue: Queue) -> None:
    job_id = _die(queue)
    for named in ({"priority": 5}, {"to_queue": ""}, {"to_queue": "q" * 201}, {"run_at": "infinity"}):
        with pytest.raises(psycopg.Error) as refused:
            queue.retry_dead(job_id, **named)
        assert refused.value.sqlstate == "AW001"
    assert _place(queue, job_id) == "jobs_dead"


def test_a_job_that_no_claim_could_take_stays_dead_and_says_why(queue: Queue) -> None:
    odd, sound = _die(queue), _die(queue)
    queue.rows("update awa_pool.jobs_dead set priority = 9 where job_id = %s", odd)
    assert queue.retry_dead() == [(odd, "refused", "priority: must be 1 to 4"), (sound, "done", "available")]
    with pytest.raises(psycopg.Error, match="cannot run: priority") as refused:
        queue.rows("select awa_pool.retry(%s)", odd)
    assert refused.value.sqlstate == "AW005"
    assert _place(queue, odd) == "jobs_dead"
    assert queue.retry_dead(odd, priority=2) == [(odd, "done", "available")]
    assert sorted(a.job_id for a in queue.claim()) == [odd, sound]


def test_a_retry_wakes_a_waiting_dispatcher_at_commit(queue: Queue) -> None:
    job_id = _die(queue)
    queue.rows("insert into awa_pool.queue_waiters values (%s, now() + interval '1 h')", queue.name)
    with psycopg.connect(queue.dsn, autocommit=True) as listener:
        listener.execute("listen awa_pool")
        queue.retry_dead(job_id)
        assert [note.payload for note in listener.notifies(timeout=20, stop_after=1)] == [""]


def test_retrying_twice_at_once_gives_each_job_one_new_life(queue: Queue) -> None:
    ids = [_die(queue) for _ in range(40)]
    answers: list[Any] = []

    def work() -> None:
        with Queue(queue.dsn, queue.name) as other:
            answers.extend(other.retry_dead())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(job_id for job_id, status, _ in answers if status == "done") == ids
    assert sorted(a.job_id for a in queue.claim()) == ids
    assert queue.claim() == []


def test_a_job_goes_to_and_fro_in_one_transaction_and_is_claimed_once(queue: Queue) -> None:
    job_id = _die(queue)
    with queue.conn.transaction():
        for _ in range(3):
            assert queue.retry_dead(job_id) == [(job_id, "done", "available")]
            assert queue.one("select awa_pool.move_to_dead(%s)", job_id) == "failed"
        assert queue.retry_dead(job_id) == [(job_id, "done", "available")]
    assert [a.job_id for a in queue.claim()] == [job_id]
    assert queue.claim() == []


def test_a_job_that_is_moved_by_hand_keeps_everything_and_is_never_claimed(queue: Queue) -> None:
    for make in (
        lambda: queue.enqueue(args={"n": 1}),
        lambda: queue.enqueue(args={"n": 1}, run_at="2099-01-01T00:00:00Z"),
    ):
        job_id = make()
        before = queue.job(job_id) or {}
        assert queue.one("select awa_pool.move_to_dead(%s, 'poisoned')", job_id) == "failed"
        after = queue.job(job_id) or {}
        assert (after["reason"], after["dead"], after["state"]) == ("poisoned", True, "failed")
        same = ("id", "kind", "queue", "args", "attempt", "created_at", "run_lease")
        assert {k: after[k] for k in same} == {k: before[k] for k in same}
        assert _place(queue, job_id) == "jobs_dead"
    queue.make_due()
    queue.promote()
    assert queue.claim() == []


def test_what_runs_has_completed_or_is_dead_is_not_moved(queue: Queue) -> None:
    running, completed, dead = queue.claimed(), queue.claimed(), _die(queue)
    queue.finish(completed.ended("completed"))
    moved = queue.claimed()
    queue.move(moved)
    ids = [running.job_id, completed.job_id, dead, moved.job_id, 2**60]
    answers = queue.rows("select job_id, status, detail from awa_pool.move_ids_to_dead(%s, 'manual')", ids)
    assert [(i, s) for i, s, _ in answers] == [(each, "refused") for each in ids]
    for (_, _, why), word in zip(
        answers, ("running", "completed", "already", "running", "no job"), strict=True
    ):
        assert word in why


def test_ended_jobs_move_by_filter_page_by_page(queue: Queue) -> None:
    queue.rows("""select awa_pool.set_queue(%s, '{"dlq": false}')""", queue.name)
    failed = [_die(queue) for _ in range(5)]
    attempt = queue.claimed()
    queue.finish(attempt.ended("cancel", reason="why not"))
    last, seen = None, []
    while page := queue.rows(
        "select job_id, status from awa_pool.move_ended_to_dead('failed', null, %s, null, null, null, null, %s, 2, 'x')",
        queue.name, last,
    ):  # fmt: skip
        seen += page
        last = page[-1][0]
    assert seen == [(each, "done") for each in failed]
    assert {_place(queue, each) for each in failed} == {"jobs_dead"}
    assert _place(queue, attempt.job_id) == "jobs_finished"
    with pytest.raises(psycopg.Error) as refused:
        queue.rows(
            "select awa_pool.move_ended_to_dead('completed', null, 'q', null, null, null, null, null, 2, 'x')"
        )
    assert refused.value.sqlstate == "AW001"


def test_purged_jobs_are_gone_and_what_another_session_holds_is_left(queue: Queue) -> None:
    ids = [_die(queue) for _ in range(3)]
    with psycopg.connect(queue.dsn) as other:
        other.execute("select from awa_pool.jobs_dead where job_id = %s for update", [ids[1]])
        assert sorted(_purge(queue, *ids)) == [
            (ids[0], "done", "purged"), (ids[1], "refused", "held by another session"), (ids[2], "done", "purged"),
        ]  # fmt: skip
        assert queue.retry_dead(ids[1]) == [(ids[1], "refused", "held by another session")]
    assert _purge(queue, *ids) == [(ids[1], "done", "purged")]
    assert [queue.job(each) for each in ids] == [None] * 3


def test_each_queue_keeps_its_dead_for_its_own_time(queue: Queue) -> None:
    other = f"{queue.name}_long"
    queue.rows("""select awa_pool.set_queue(%s, '{"dlq_retention_s": 86400}')""", other)
    old, fresh = _die(queue), _die(queue)
    queue.name, name = other, queue.name
    kept = _die(queue)
    queue.rows(
        "update awa_pool.jobs_dead set finalized_at = now() - interval '2 h' where job_id = any(%s)",
        [old, kept],
    )
    assert queue.one("select awa_pool.prune_dead(3600, 1000)") == "dropped 1 dead jobs"
    assert [queue.job(each) is None for each in (old, fresh, kept)] == [True, False, False]
    queue.rows("update awa_pool.jobs_dead set finalized_at = now() - interval '2 d' where job_id = %s", kept)
    assert queue.one("select awa_pool.prune_dead(3600, 1000)") == "dropped 1 dead jobs"
    assert queue.one("select awa_pool.prune_dead(3600, 1000)") == "nothing"
    queue.name = name


def test_a_page_of_huge_jobs_is_cut_in_the_database(queue: Queue) -> None:
    """B162: the answer stays small, whatever the jobs carry."""
    ids = [_die(queue) for _ in range(50)]
    queue.rows(
        "update awa_pool.jobs_dead set args = json_build_object('pad', repeat('é', 2500000)),"
        " errors = jsonb_build_array(jsonb_build_object('type', 'E', 'error', repeat('x', 4000)))"
        " where queue = %s", queue.name,
    )  # fmt: skip
    rows = queue.rows(
        "select id, length(args_preview), args_bytes, error from awa_pool.list_dead("
        "null, %s, null, null, null, null, null, null, 50)", queue.name,
    )  # fmt: skip
    assert [row[0] for row in rows] == ids[::-1]
    assert all(length == 200 and size > 5_000_000 and len(error) == 300 for _, length, size, error in rows)


def test_state_moving_functions_of_the_dead_run_under_read_committed_only(queue: Queue) -> None:
    nothing = "null, null, null, null, null, null, null, null, null"
    calls = (
        f"retry_dead({nothing}, 1, null, null, null)", f"purge_dead({nothing}, 1)", "prune_dead(1, 1)",
        "move_to_dead(1)", "move_ids_to_dead('{1}', 'x')",
        "move_ended_to_dead('failed', null, null, null, null, null, null, null, 1, 'x')",
    )  # fmt: skip
    for call in calls:
        with queue.conn.transaction():
            queue.rows("set transaction isolation level repeatable read")
            with pytest.raises(psycopg.Error) as refused, queue.conn.transaction():
                queue.rows(f"select awa_pool.{call}")
        assert refused.value.sqlstate == "AW002", call


def test_whatever_many_sessions_do_at_once_a_job_is_in_one_place_and_never_lost(queue: Queue) -> None:
    ids = [_die(queue) for _ in range(6)]
    problems: list[BaseException] = []

    def act(seed: int) -> None:
        rng = Random(seed)
        try:
            with Queue(queue.dsn, queue.name) as q:
                for _ in range(60):
                    job_id = rng.choice(ids)
                    match rng.randrange(5):
                        case 0:
                            q.retry_dead(*rng.sample(ids, 3))
                        case 1:
                            q.rows("select awa_pool.move_ids_to_dead(%s, 'x')", rng.sample(ids, 2))
                        case 2:
                            for attempt in q.claim(3):
                                q.finish(
                                    attempt.ended(
                                        rng.choice(["fail", "return", "cancel", "retry"]), delay_s=0
                                    )
                                )
                        case 3:
                            q.promote()
                        case _:
                            with contextlib.suppress(psycopg.Error):
                                q.rows("select awa_pool.retry(%s)", job_id)
        except BaseException as problem:  # noqa: BLE001 (told to the test)
            problems.append(problem)

    threads = [threading.Thread(target=act, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert problems == []
    for job_id in ids:
        _place(queue, job_id)
    queue.rows("select awa_pool.move_ids_to_dead(%s, 'x')", ids)
    for attempt in queue.claim():  # a session may have been cut off between claim and end
        queue.finish(attempt.ended("fail"))
    queue.retry_dead()
    assert sorted(a.job_id for a in queue.claim()) == ids
    assert queue.claim() == []


@pytest.mark.parametrize("road", ["retried", "promoted"])
def test_a_job_that_left_its_lane_and_came_back_into_one_receipt_with_both_its_rows_ends_once(
    queue: Queue, road: str
) -> None:
    first, twice, last = (queue.enqueue(args={"n": n}) for n in range(3))
    queue.rows("select awa_pool.move_to_dead(%s)", twice)
    due = None if road == "retried" else "2099-01-01T00:00:00Z"
    assert queue.retry_dead(twice, run_at=due)[0][1] == "done"
    queue.make_due()
    queue.promote()
    attempts = queue.claim()
    assert [a.job_id for a in attempts] == [first, last, twice]
    assert len({a.receipt_id for a in attempts}) == 1
    queue.move(attempts[0])
    assert queue.finish(*(a.ended("retry", delay_s=0) for a in attempts)) == [("done", "retryable")] * 3
    assert [_place(queue, each) for each in (first, twice, last)] == ["jobs_deferred"] * 3

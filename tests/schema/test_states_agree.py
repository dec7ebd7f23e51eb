"""The states stand in three places: the table in Python, the words of SQL, the page that draws them."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from awa_pool.states import ARROWS, Cause, Outcome, State

PAGE = Path(__file__).parents[2] / "docs" / "state_machine.md"


def _drawn_arrows() -> set[tuple[str | None, str, str]]:
    drawn = re.findall(r"^    (\S+) --> (\w+): (\w+)$", PAGE.read_text(), re.MULTILINE)
    return {(None if start == "[*]" else start, cause, end) for start, end, cause in drawn}


def test_the_page_draws_every_arrow_and_no_other() -> None:
    wanted = {(start and start.value, cause.value, end.value) for (start, cause), end in ARROWS.items()}
    assert _drawn_arrows() == wanted


def test_the_page_explains_every_cause_and_outcome() -> None:
    explained = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    # `exhausted` stands in the row of `retry`, the word the worker says.
    assert {word.value for word in (*Cause, *Outcome)} <= explained


def test_the_tables_accept_the_states_they_hold_and_refuse_the_others(dsn: str) -> None:
    held = {
        "jobs_deferred": {State.SCHEDULED, State.RETRYABLE},
        "jobs_finished": {State.COMPLETED, State.FAILED, State.CANCELLED},
        "jobs_dead": {State.FAILED},
    }
    with psycopg.connect(dsn) as conn:
        for table, states in held.items():
            checks = conn.execute(
                "select pg_get_constraintdef(oid) from pg_constraint where conrelid = %s::regclass and contype = 'c'",
                [f"awa_pool.{table}"],
            ).fetchall()
            words = {w for (text,) in checks if "state" in text for w in re.findall(r"'(\w+)'", text)}
            assert words == {s.value for s in states}, table


def test_the_functions_say_the_states_that_a_job_can_reach_and_no_other(dsn: str) -> None:
    reachable = {end.value for end in ARROWS.values()}
    said: set[str] = set()
    with psycopg.connect(dsn) as conn:
        for name in ("ring_jobs_0", "stored_jobs", "outcome_state", "enqueue", "cancel_stored", "retry"):
            (body,) = conn.execute("select prosrc from pg_proc where proname = %s", [name]).fetchone() or (
                "",
            )
            said |= {w for w in re.findall(r"'(\w+)'", body) if w in set(State)}
        held = conn.execute(
            "select pg_get_constraintdef(oid) from pg_constraint where contype = 'c' and conrelid in"
            " ('awa_pool.jobs_deferred'::regclass, 'awa_pool.jobs_finished'::regclass)"
        ).fetchall()
        said |= {w for (text,) in held for w in re.findall(r"'(\w+)'", text)}
    assert said == reachable


def test_finish_takes_every_outcome_word_and_no_other(dsn: str) -> None:
    words = [o.value for o in Outcome if o is not Outcome.PARK]  # that one is for park_attempts
    items = [
        {
            "slot": 0,
            "receipt_id": 1,
            "nonce": 1,
            "index": 0,
            "job_id": 1,
            "run_lease": 1,
            "outcome": word,
            "delay_s": 1,
        }
        for word in (*words, "park", "finished", "")
    ]
    with psycopg.connect(dsn, autocommit=True) as conn:
        rows = conn.execute(
            "select item, status from awa_pool.finish(%s::json)", [psycopg.types.json.Json(items)]
        )
        status = dict(rows.fetchall())
    assert [status[i] for i in range(len(items))] == ["stale"] * len(words) + ["invalid"] * 3

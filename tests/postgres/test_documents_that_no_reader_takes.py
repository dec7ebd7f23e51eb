"""Numbers and depths that Python cannot read are refused where other languages put jobs in and answer callbacks."""

from __future__ import annotations

import json

import psycopg
import pytest
from callbacks_rig import answer, parked
from general_rig import Queue

DEEP = "[" * 63 + "]" * 63
UNREADABLE = {
    '{"x": 1e400}': "beyond what a float holds",
    '{"x": [-1e309]}': "beyond what a float holds",
    '{"x": 1E+99999}': "beyond what a float holds",
    '{"x": 1' + "0" * 310 + ".5}": "beyond what a float holds",
    '{"x": 12345678901234567890}': "does not fit 64 bits",
    '{"x": [' + DEEP + "]}": "nested deeper than 64 levels",
    '{"x": ' + "[" * 3000 + "]" * 3000 + "}": "nested deeper than 64 levels",
}
READABLE = (
    '{"x": 1e308, "y": -1.7976931348623157e308, "z": 1e-400}',
    '{"e": "1e400 and 12345678901234567890 [[[", "n": 0.5e+100}',
    '{"x": ' + DEEP + "}",
    '{"text": "' + "[{" * 500 + '"}',
    '{"many": [' + ",".join(["{}"] * 500) + "]}",
)


@pytest.mark.parametrize("args", UNREADABLE)
def test_jobs_are_refused_one_by_one_and_in_bulk(q: Queue, args: str) -> None:
    with pytest.raises(psycopg.Error, match=f"args: .*{UNREADABLE[args]}"):
        q.rows("select awa_pool.enqueue('k', %s::json)", args)
    with pytest.raises(psycopg.Error, match=f"metadata: .*{UNREADABLE[args]}"):
        q.rows("select awa_pool.enqueue('k', '{}', p_metadata => %s::json)", args)
    document = f'[{{"kind": "k", "args": {{}}}}, {{"kind": "k", "args": {args}}}]'
    with pytest.raises(psycopg.Error, match=rf"jobs\[1\]\.args: .*{UNREADABLE[args]}"):
        q.rows("select awa_pool.enqueue_many(%s::json)", document)


@pytest.mark.parametrize("args", READABLE)
def test_what_only_looks_like_it_is_taken(q: Queue, args: str) -> None:
    job_id = q.one("select awa_pool.enqueue('k', %s::json, p_metadata => %s::json)", args, args)
    assert (q.job(job_id) or {})["args"] == json.loads(args)
    document = f'[{{"kind": "k", "args": {{}}}}, {{"kind": "k", "args": {args}}}]'
    assert len(q.one("select awa_pool.enqueue_many(%s::json)", document)) == 2


@pytest.mark.parametrize("payload", UNREADABLE)
def test_answers_are_refused_and_leave_the_callback_open(q: Queue, payload: str) -> None:
    attempt, callback = parked(q)
    with pytest.raises(psycopg.Error, match=f"payload: .*{UNREADABLE[payload]}"):
        answer(q, "resume_external", callback, payload)
    assert answer(q, "resume_external", callback, '"yes"')[0] == attempt.job_id

"""Bodies out of a chunk, and how attempts end that need more than a bit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random

import orjson
import pytest

from awa_pool.body import run_lease_of
from awa_pool.errors import ConfigError
from awa_pool.job import Job
from awa_pool.registry import Registry
from awa_pool.states import Outcome
from awa_pool.worker.app import load_app, pack_app
from awa_pool.worker.bodies import Unreadable, parse_chunk
from awa_pool.worker.endings import Endings
from awa_pool.worker.events import Piece

GOOD = b'[1,"noop",{"n":1},1,1,25,null]'


@dataclass
class Noop:
    n: int


def noop(job: Job[Noop]) -> None:
    pass


def endings() -> Endings:
    registry = Registry()
    registry.add(Noop, noop)
    return Endings(registry, "shop:client", Random(1))


def test_a_chunk_is_read_in_order() -> None:
    bodies = parse_chunk(GOOD + b"\0" + GOOD.replace(b"[1,", b"[2,"), 2)
    assert [body[0] for body in bodies] == [1, 2]


@pytest.mark.parametrize(
    ("bad", "known"),
    [
        (b"", (0, "", 0)),
        (b"nonsense", (0, "", 0)),
        (b"null", (0, "", 0)),
        (b'[5,"noop"]', (5, "noop", 0)),
        (b'["5","noop",{},1,1,25,null]', (0, "noop", 1)),
        (b'[5,"noop",{},1,1,25,7]', (5, "noop", 1)),
        (b'[-5,"noop",["\\ud800"],1,1,25,null]', (-5, "noop", 1)),
        (b'[5,"no\\"op",["\\ud800"],2,33,25,null]', (5, 'no"op', 33)),
        (b'[5,"noop",' + b"[" * 3000 + b"]" * 3000 + b',2,33,25,{"snoozes":1}]', (5, "noop", 33)),
        (
            b'[5,"no],[op",{"a":"\\"]"},2,33,25,{"metadata":' + b"[" * 3000 + b"]" * 3000 + b"}]",
            (5, "no],[op", 33),
        ),
        (b'[5,"a",{},1,1,25,null],[6,"b",{},1,1,25,null]', (5, "a", 1)),
    ],
)
def test_one_unreadable_body_fails_alone_with_what_can_be_told_of_it(
    bad: bytes, known: tuple[int, str, int]
) -> None:
    first, second, third = parse_chunk(GOOD + b"\0" + bad + b"\0" + GOOD, 3)
    assert first == third == [1, "noop", {"n": 1}, 1, 1, 25, None]
    assert isinstance(second, Unreadable)
    assert (second.job_id, second.kind, second.run_lease) == known


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (2, "18446744073709551616"),
        (2, '[{"n": -9223372036854775809}]'),
        (2, "9223372036854775808"),
        (6, "1" * 300),
    ],
)
def test_an_integer_that_would_come_as_a_float_fails_its_job_alone_saying_where(
    where: int, what: str
) -> None:
    """B061."""
    fields = ["5", '"noop"', "{}", "1", "1", "25", "null"]
    fields[where] = '{"a\\"1": 1, "b": ' + what + "}"
    first, second, third = parse_chunk(GOOD + b"\0[" + ",".join(fields).encode() + b"]\0" + GOOD, 3)
    assert first == third == [1, "noop", {"n": 1}, 1, 1, 25, None]
    assert isinstance(second, Unreadable) and second.job_id == 5
    assert (
        second.problem
        == f"{'args' if where == 2 else 'metadata'}: an integer in them does not fit 64 bits, signed"
    )


@pytest.mark.parametrize(
    "value", [2**63 - 1, -(2**63), 1234567890123456789, "18446744073709551616", '"9223372036854775808', 0.1234567890123456789]
)  # fmt: skip
def test_long_numbers_that_fit_and_digits_in_texts_come_as_they_are(value: object) -> None:
    """B061."""
    body = orjson.dumps([5, "noop", {"n": value, str(value): 1}, 1, 1, 25, None])
    assert parse_chunk(GOOD + b"\0" + body, 2)[1] == orjson.loads(body)
    assert parse_chunk(body, 1)[0] == orjson.loads(body)


def test_a_chunk_with_another_number_of_bodies_than_announced_runs_nothing() -> None:
    for body in parse_chunk(GOOD + b"\0" + GOOD, 3):
        assert isinstance(body, Unreadable) and "announced 3 jobs and held 2" in body.problem


def test_a_dropped_value_is_noted_with_its_kind_and_type_and_the_first_job() -> None:
    recorder = endings()
    task = recorder.registry.tasks["noop"]
    for number in (5, 6, 7):
        ending = recorder.of_handler(task, 1, (n for n in ()), None)
        assert ending.outcome is Outcome.COMPLETED
        piece = Piece("default", 2, 3, 7, 9, [0], [], 1)
        assert recorder.settle(piece, 0, Job(None, number, "noop"), task, ending)
    assert recorder.dropped == {"noop": ("generator", 5)}


def test_a_coroutine_that_nobody_awaits_is_a_failure_and_not_a_success() -> None:
    recorder = endings()
    ending = recorder.of_handler(recorder.registry.tasks["noop"], 1, asyncio.sleep(0), None)
    assert ending.outcome is Outcome.RETRY
    assert ending.error is not None and "async def" in ending.error["error"]


def test_an_unknown_kind_fails_naming_kind_and_app() -> None:
    ending = endings().unknown_kind("nope")
    assert ending.outcome is Outcome.FAIL
    assert (
        ending.error is not None
        and "'nope'" in ending.error["error"]
        and "'shop:client'" in ending.error["error"]
    )


def test_no_app_is_an_app_without_tasks() -> None:
    assert load_app({}).tasks == {}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"app": "no_such_module:client"}, "there is no module 'no_such_module'"),
        ({"app": "json:client"}, "module 'json' has no 'client'"),
        ({"app": "json:dumps"}, "is of type function, not an awa_pool.Client"),
        ({"app": ""}, None),
        ({"app_blob": "bm9uc2Vuc2U="}, "the app of __main__"),
    ],
)
def test_an_app_that_is_none_is_named_with_what_is_wrong(settings: dict[str, str], text: str | None) -> None:
    if text is None:
        assert load_app(settings).tasks == {}
        return
    with pytest.raises(ConfigError, match=text):
        load_app(settings)


def test_an_app_that_uses_us_wrongly_is_told_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare_task_app.py").write_text(
        "from awa_pool import Client\nclient = Client()\n@client.task\ndef f(job): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"lacks its parentheses.*bare_task_app\.py, line 3: @client\.task\)"
    ):
        load_app({"app": "bare_task_app:client"})


def test_an_app_that_cannot_travel_is_refused_with_the_cure() -> None:
    class Stuck:
        def __reduce__(self) -> str:
            raise RuntimeError("no way")

    with pytest.raises(ConfigError, match="RuntimeError: no way.*module of its own"):
        pack_app(Stuck())


def test_the_lease_of_a_body_is_told_whatever_its_args_hold() -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for args in (b"{}", b'{"s":"\\ud800"}', b'{"s":",],[\\""}', deep):
        assert run_lease_of(b'[7,"k",' + args + b',2,33,25,{"metadata":' + args + b"}]") == 33

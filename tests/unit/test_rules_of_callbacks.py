"""Rules of a callback are judged where it is registered, before anything is sent, and say what an answer comes to."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson
import pytest

from awa_pool import Client, ConfigError, ValidationError
from awa_pool import rules as gate
from awa_pool.finalizer.callbacks import CallbackRoad
from awa_pool.job import Job
from awa_pool.messages import RegisterCallback
from awa_pool.testing import HandlerJob
from awa_pool.worker.attempt import job_type_of

ID = "0123abcd-0123-0123-0123-0123456789ab"
LIMIT_BYTES = 1024
BAD: list[tuple[Any, str]] = [
    (5, "expected an expression as text, got int"),
    (b"true", "expected an expression as text, got bytes"),
    (["true"], "expected an expression as text, got list"),
    (lambda payload: True, "expected an expression as text, got function"),
    ("", "this is empty"),
    (" \n", "this is empty"),
    ("payload.a == ", r"Syntax error: .* \(line 1, column 14\)"),
    ("payload.a\n && && true", r"Syntax error: .* \(line 2, column 5\)"),
    ("payload['a", "Syntax error"),
    ("order.paid", "undeclared reference to 'order.paid'.*the variable payload"),
    ("payload.a == b", r"undeclared reference to 'b'.*the variable payload.*\(line 1, column 14\)"),
    ("payload.items.exists(x, x == y)", "undeclared reference to 'y'"),
    ("[1].exists(x, x == 1) && x == 1", "undeclared reference to 'x'"),
    ("launch(payload)", "undeclared reference to 'launch'"),
    ("payload.a\0 == 1", "NUL"),
    ("payload.a == '\ud800'", "surrogate"),
    ("true" + " " * 4093, "4097 bytes; at most 4096"),
    ("'" + "é" * 2048 + "' == payload", "4109 bytes; at most 4096"),
    ("(" * 50 + "payload" + ")" * 50, "recursion limit"),
]


@dataclass
class Ask:
    number: int = 1


@pytest.mark.parametrize("name", gate.NAMES)
@pytest.mark.parametrize(("expression", "words"), BAD)
def test_a_rule_that_cannot_be_is_refused_with_its_name(name: str, expression: Any, words: str) -> None:
    job = HandlerJob(Ask(), kind="ask")
    with pytest.raises(ValidationError, match=rf"^{name}: .*{words}") as refused:
        job.register_callback(60, **{name: expression})
    assert refused.value.path == name and job.callbacks == [] and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["filter", "on_complete", "on_fail"])
@pytest.mark.parametrize(
    "expression", ["'paid'", "1 + 2", "size(payload)", "[payload.a]", "{'a': true}", "null"]
)
def test_a_rule_that_cannot_be_true_or_false_is_refused(name: str, expression: str) -> None:
    with pytest.raises(ValidationError, match=rf"^{name}: gives .*: true or false is wanted"):
        gate.checked(**{name: expression})


@pytest.mark.parametrize("expression", ["b'raw'", "duration('1h')", "type(payload)"])
def test_a_transform_to_what_json_cannot_carry_is_refused(expression: str) -> None:
    with pytest.raises(ValidationError, match="^transform: gives .*, which JSON cannot carry"):
        gate.checked(transform=expression)


def test_the_longest_rule_passes_and_a_callback_without_rules_has_none() -> None:
    job = HandlerJob(Ask(), kind="ask")
    longest = "payload == '" + "x" * 4083 + "'"
    assert len(longest) == 4096
    assert job.register_callback(60, filter=longest).rules == {"filter": longest}
    assert job.register_callback(60).rules == {}
    given = {
        "filter": "payload.a",
        "on_complete": "has(payload.ok)",
        "on_fail": "payload.e != ''",
        "transform": "payload.a",
    }
    job.register_callback(60, **given)
    assert [token.rules for token in job.callbacks] == [{"filter": longest}, {}, given]


class Registrar:
    """Notes what is asked of it."""

    asked: ClassVar[list[Any]] = []

    def register(self, job: Any, timeout_s: float, rules: Any = None) -> tuple[str, int]:
        self.asked.append(rules)
        return ID, 1

    async def register_async(self, job: Any, timeout_s: float, rules: Any = None) -> tuple[str, int]:
        return self.register(job, timeout_s, rules)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_worker_sends_rules_that_are_good_and_nothing_where_one_is_not(is_async: bool) -> None:
    client = Client()
    if is_async:

        @client.task(Ask)
        async def ask_async(job: Job[Ask]) -> None: ...

    else:

        @client.task(Ask)
        def ask(job: Job[Ask]) -> None: ...

    registrar: Any = Registrar()
    registrar.asked.clear()
    job = job_type_of(client.registry, None, registrar, set())(Ask(), 1, "ask")
    with pytest.raises(ValidationError, match="^on_fail: "):
        job.register_callback(60, filter="true", on_fail="payload.")
    assert registrar.asked == []

    async def wanted() -> Any:
        return await job.register_callback(60, filter="payload.a", transform="payload.b")

    token = (
        asyncio.run(wanted())
        if is_async
        else job.register_callback(60, filter="payload.a", transform="payload.b")
    )
    assert token.rules == {"filter": "payload.a", "transform": "payload.b"} == registrar.asked[0]


def request(number: int, rules: dict[str, Any]) -> RegisterCallback:
    return RegisterCallback(number, 0, 1, 1, number, 7, 1, ID, 60.0, rules)


def test_the_finalizer_passes_rules_on_and_drops_what_are_none() -> None:
    road = CallbackRoad()
    assert road.put(b"w", request(1, {"filter": "payload.a"}))
    assert road.put(b"w", request(2, {}))
    for bad in ({"filter": 5}, {"filter": None}, {"filter": "a\0"}, {"when": "payload.a"}):
        assert not road.put(b"w", request(3, bad))
    (call,) = road.flush(1.0)
    assert [item["rules"] for item in call.items] == [{"filter": "payload.a"}, None]


RULES = {"filter": "payload.kind == 'final'", "on_complete": "payload.paid", "on_fail": "has(payload.error)"}
VERDICTS: list[tuple[dict[str, str], Any, str, str, str]] = [
    ({}, {}, "complete", "complete", "default_action"),
    ({}, {}, "ignore", "ignore", "default_action"),
    (RULES, {"kind": "draft", "paid": True}, "complete", "ignore", "filter"),
    (RULES, {"kind": "draft", "error": "x"}, "fail", "ignore", "filter"),
    (RULES, {"kind": "final", "paid": True, "error": "x"}, "ignore", "fail", "on_fail"),
    (RULES, {"kind": "final", "paid": True}, "ignore", "complete", "on_complete"),
    (RULES, {"kind": "final", "paid": False}, "resume", "resume", "default_action"),
    (RULES, {"kind": "final", "paid": False}, "ignore", "ignore", "default_action"),
    ({"on_fail": "payload == null"}, None, "ignore", "fail", "on_fail"),
    (
        {"on_complete": "payload.n == 3.0 && payload.s > 'a'"},
        {"n": 3, "s": "é"},
        "fail",
        "complete",
        "on_complete",
    ),
]


@pytest.mark.parametrize(("rules", "payload", "default", "action", "reason"), VERDICTS)
def test_the_filter_comes_before_failing_before_completing_before_the_default(
    rules: dict[str, str], payload: Any, default: str, action: str, reason: str
) -> None:
    verdict = gate.judge(gate.checked(**rules), orjson.dumps(payload), default, ID, LIMIT_BYTES)
    assert (verdict.action, verdict.reason) == (action, reason)
    if action in ("complete", "resume"):
        assert orjson.loads(verdict.payload) == payload
    assert ("has(payload.error)" in verdict.error) == (reason == "on_fail" and rules is RULES)


@pytest.mark.parametrize(
    ("transform", "payload", "made"),
    [
        ("payload.data.map(x, x.id)", {"data": [{"id": 1}, {"id": 2}]}, [1, 2]),
        ("{'sum': payload.a + payload.b, 'by': payload.who.upperAscii}", {"a": 1, "b": 2, "who": {"upperAscii": "x"}}, {"sum": 3, "by": "x"}),
        ("timestamp(payload)", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"),
        ("payload.missing.orders", {"missing": {"orders": None}}, None),
        ("payload ? 'yes' : 'no'", True, "yes"),
        ("1.5", 0, 1.5),
    ],
)  # fmt: skip
@pytest.mark.parametrize("default", ["complete", "resume"])
def test_a_transform_makes_what_the_job_gets(transform: str, payload: Any, made: Any, default: str) -> None:
    verdict = gate.judge(gate.checked(transform=transform), orjson.dumps(payload), default, ID, LIMIT_BYTES)
    assert orjson.loads(verdict.payload) == made


UNUSABLE = ["payload.missing", "payload.text", "payload.n / 0 == 1", "payload.text < 5", "payload.items[9]",
            "payload.text.matches('(')", "payload.many.exists(x, payload.many.exists(y, x + y < 0))"]  # fmt: skip
PAYLOAD = orjson.dumps({"text": "x", "n": 1, "items": [], "many": list(range(300))})


@pytest.mark.parametrize("expression", UNUSABLE)
def test_a_rule_that_cannot_be_evaluated_fails_open_with_a_warning(
    expression: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name, so, reason in (("filter", "true", "default_action"), ("on_fail", "false", "default_action"), ("on_complete", "false", "default_action")):  # fmt: skip
        caplog.clear()
        verdict = gate.judge({name: expression}, PAYLOAD, "ignore", ID, LIMIT_BYTES)
        assert (verdict.action, verdict.reason) == ("ignore", reason)
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        text = record.getMessage()
        assert text.startswith(f"callback 0123abcd…: {name} could not be evaluated and counts as {so}: ")
        assert ID not in text and "\n" not in text and len(text) < 400


@pytest.mark.parametrize(
    "transform",
    ["payload.missing", "{1: 2}", "0.0 / 0.0", "[duration('1s')]", "payload.many.map(x, payload.many)",
     "payload.many.map(x, payload.text + 'a much longer text')"],
)  # fmt: skip
def test_a_transform_that_fails_or_makes_too_much_leaves_the_payload(
    transform: str, caplog: pytest.LogCaptureFixture
) -> None:
    verdict = gate.judge({"transform": transform}, PAYLOAD, "complete", ID, 4096)
    assert verdict.payload == PAYLOAD
    (record,) = caplog.records
    assert "transform could not be evaluated and leaves the payload as it came" in record.getMessage()


def test_rules_of_other_software_that_do_not_compile_fail_open_too(caplog: pytest.LogCaptureFixture) -> None:
    assert gate.judge({"filter": "payload =="}, b"1", "complete", ID, LIMIT_BYTES).action == "complete"
    assert "filter could not be evaluated" in caplog.text


def test_a_small_rule_cannot_run_for_long_on_a_large_payload() -> None:
    large = orjson.dumps({"items": list(range(100_000)), "text": "a" * 200_000})
    for expression in (
        "payload.items.all(x, payload.items.all(y, payload.items.all(z, x + y + z >= 0)))",
        "payload.text.matches('^(a+)+$')",
        "payload.text.matches('(a?){100}a{100}b')",
    ):
        gate.judge(
            gate.checked(filter=expression), large, "ignore", ID, 1 << 20
        )  # the suite's own time-out judges


@pytest.fixture
def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gate._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    yield
    gate._environment.cache_clear()


@pytest.mark.usefixtures("without_the_extra")
def test_without_the_extra_one_line_says_what_to_install() -> None:
    job = HandlerJob(Ask(), kind="ask")
    for give in (
        lambda: job.register_callback(60, filter="true"),
        lambda: gate.judge({"filter": "true"}, b"1", "ignore", ID, LIMIT_BYTES),
    ):
        with pytest.raises(ConfigError) as refused:
            give()
        assert str(refused.value) == "rules of callbacks need the extra `cel`: pip install 'awa-pool[cel]'"
    assert job.register_callback(60).rules == {}  # which needs nothing
    assert gate.judge({}, b"1", "complete", ID, LIMIT_BYTES).action == "complete"


def test_nobody_loads_the_library_who_has_no_rules() -> None:
    code = (
        "import sys, awa_pool, awa_pool.worker.main, awa_pool.finalizer.main\n"
        "from awa_pool.testing import HandlerJob\n"
        "job = HandlerJob({}, kind='k')\n"
        "job.register_callback(60)\n"
        "assert 'cel_expr_python' not in sys.modules\n"
        "job.register_callback(60, filter='payload.a')\n"
        "assert 'cel_expr_python' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

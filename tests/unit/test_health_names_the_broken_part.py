from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from awa_pool.errors import ConfigError
from awa_pool.supervisor.endpoint import Endpoint
from awa_pool.supervisor.health import PartsSeen, liveness, readiness

GOOD = PartsSeen(
    at_s=100.0, stopping=False, gave_up="", dispatcher_silent_s=0.5, finalizer_silent_s=0.5, workers_wanted=4,
    workers_ready=4, database_up=True, database_reason="", database_silent_s=0.0,
)  # fmt: skip


def test_a_pool_whose_parts_all_move_is_ready() -> None:
    assert readiness(GOOD, 100.5).good


@pytest.mark.parametrize(
    ("change", "part", "words"),
    [
        ({"dispatcher_silent_s": 4.0}, "claiming", "silent for 4 s"),
        ({"dispatcher_silent_s": None}, "claiming", "starting"),
        ({"claiming": False}, "claiming", "cannot claim"),
        ({"finalizer_silent_s": 4.0}, "finalising", "silent"),
        ({"accepting": False}, "finalising", "cannot store results"),
        ({"workers_ready": 0}, "working", "0 of 4"),
        ({"database_up": False, "database_reason": "refused"}, "database", "refused"),
        ({"database_silent_s": 9.0}, "database", "9 s"),
        ({"at_s": 90.0}, "supervisor", "silent"),
        ({"stopping": True}, "supervisor", "stopping"),
    ],
)
def test_readiness_names_the_part_that_stands_still(change: dict[str, object], part: str, words: str) -> None:
    verdict = readiness(replace(GOOD, **change), 100.5)  # type: ignore[arg-type]
    assert not verdict.good
    assert words in verdict.parts[part]
    assert [name for name, text in verdict.parts.items() if not text.startswith("ok")] == [part]


def test_a_missing_worker_is_shown_while_the_others_work() -> None:
    verdict = readiness(replace(GOOD, workers_ready=3), 100.5)
    assert verdict.good and "3 of 4" in verdict.parts["working"]


def test_liveness_is_false_only_where_a_restart_helps() -> None:
    broken = replace(GOOD, dispatcher_silent_s=60.0, workers_ready=0, database_up=False)
    assert liveness(broken, 101.0).good
    assert liveness(None, 101.0).good
    assert not liveness(GOOD, 130.0).good
    assert not liveness(replace(GOOD, gave_up="boots keep failing"), 100.0).good


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_endpoint_answers_on_loopback_and_says_what_is_wrong() -> None:
    seen = [GOOD]
    endpoint = Endpoint("127.0.0.1", 0, lambda: (b"awa_pool_x 1\n", "text/plain"), lambda: seen[0])
    try:
        assert fetch(endpoint.port, "/metrics") == (200, "awa_pool_x 1\n")
        assert endpoint.asked_at_s is not None
        status, body = fetch(endpoint.port, "/readyz?verbose")
        assert status == 503 and "silent" in json.loads(body)["parts"]["supervisor"]
        assert fetch(endpoint.port, "/nothing")[0] == 404
        with pytest.raises(
            ConfigError, match=r"^--metrics-port \d+: .*: Address already in use; .* 0 for any free one"
        ):
            Endpoint("127.0.0.1", endpoint.port, lambda: (b"", ""), lambda: None)
    finally:
        endpoint.close()

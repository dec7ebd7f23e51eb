"""What a client may send to a callback is judged before any database is asked."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from awa_pool import AsyncClient, CallbackNotFound, Client, PayloadTooLarge, ValidationError
from awa_pool import callbacks as gate

ID = "0123abcd-0123-0123-0123-0123456789ab"
NOWHERE = "host=/nowhere port=1 dbname=none connect_timeout=1"


@pytest.mark.parametrize("value", [ID, ID.upper(), UUID(ID)])
def test_an_id_is_text_or_a_uuid(value: Any) -> None:
    assert gate.checked_callback_id(value).lower() == ID


@pytest.mark.parametrize(
    "value", ["", "x", ID + "0", ID[:-1], ID.replace("-", ""), f"{{{ID}}}", ID + "\n", "\0", "é" * 36]
)
def test_text_that_is_no_id_belongs_to_no_callback(value: str) -> None:
    with pytest.raises(CallbackNotFound):
        gate.checked_callback_id(value)


@pytest.mark.parametrize("value", [None, 5, b"x", [ID]])
def test_another_type_is_no_id(value: Any) -> None:
    with pytest.raises(ValidationError, match="callback_id"):
        gate.checked_callback_id(value)


def test_a_payload_is_any_exact_json() -> None:
    for value, text in (
        (None, b"null"),
        (1e16, b"1e+16"),
        ({"a": [True, "ü"]}, '{"a":[true,"ü"]}'.encode()),
        ("", b'""'),
    ):
        assert gate.checked_payload(value) == text


@pytest.mark.parametrize(
    ("value", "path"),
    [(float("nan"), "payload"), ({"a": [1, 2**64]}, r"payload\.a\[1\]"), ("\0", "payload"), ({1: 2}, "payload"),
     ({"at": datetime(2026, 1, 1)}, r"payload\.at"), (object(), "payload"), ("\ud800", "payload")],
)  # fmt: skip
def test_what_json_cannot_carry_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(ValidationError, match=path):
        gate.checked_payload(value)


def test_a_payload_has_a_largest_size() -> None:
    assert gate.checked_payload("x" * (gate.PAYLOAD_BYTES - 2))
    with pytest.raises(PayloadTooLarge, match="payload: 1048577 bytes"):
        gate.checked_payload("x" * (gate.PAYLOAD_BYTES - 1))


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e9, "60", None, True, timedelta(0)])
def test_a_negative_or_absurd_timeout_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="timeout_seconds"):
        gate.checked_timeout_s(value)


def test_a_timeout_is_a_number_or_a_timedelta() -> None:
    assert (gate.checked_timeout_s(60), gate.checked_timeout_s(timedelta(days=7))) == (60.0, 604800.0)


@pytest.mark.parametrize("value", ["", "  ", None, 5, "a\0b", "\udfff"])
def test_an_error_says_something_that_can_be_stored(value: Any) -> None:
    with pytest.raises(ValidationError, match="error"):
        gate.checked_error(value)


CALLS: list[tuple[str, tuple[Any, ...], str]] = [
    ("resume_external", (5,), "callback_id"), ("resume_external", (ID, {1}), "payload"),
    ("complete_external", (ID, 1, "yes"), "resume"), ("complete_external", (ID, object()), "payload"),
    ("fail_external", (ID, ""), "error"), ("retry_external", (None,), "callback_id"),
    ("resolve_callback", (ID, 1, "explode"), "default_action"), ("resolve_callback", (ID, 1, []), "default_action"),
    ("heartbeat_callback", (ID, -5), "timeout_seconds"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "values", "path"), CALLS)
def test_both_clients_refuse_before_any_connection(method: str, values: tuple[Any, ...], path: str) -> None:
    with pytest.raises(ValidationError, match=path) as refused:
        getattr(Client(NOWHERE), method)(*values)
    assert refused.value.path == path
    with pytest.raises(ValidationError, match=path):
        asyncio.run(getattr(AsyncClient(NOWHERE), method)(*values))

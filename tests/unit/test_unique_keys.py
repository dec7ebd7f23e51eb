"""What makes two jobs the same: the key, its parts, and the options that choose them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_pool import Client, InsertRequest, ValidationError
from awa_pool.errors import RegistrationError
from awa_pool.requests import chunks_of, documents_of, options_of
from awa_pool.unique import DEFAULT_STATES, Uniqueness, canonical_json, checked_unique, key_of
from awa_pool.validation import args_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aé\u4e2d", max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def test_the_key_is_what_the_docs_tell_other_languages_to_compute() -> None:
    def part(letter: bytes, value: bytes) -> bytes:
        return letter + len(value).to_bytes(8, "little") + value

    text = (
        part(b"k", b"mail")
        + part(b"q", b"fast")
        + part(b"a", '{"a":"é","b":[1,2.5]}'.encode())
        + part(b"p", b"7")
    )
    wanted = blake2b(text, digest_size=16).digest()
    assert key_of("mail", "fast", b'{"b": [1, 2.5], "a": "\\u00e9"}', 7) == wanted


def test_a_key_never_changes_from_release_to_release() -> None:
    assert key_of("mail", None, b'{"to": "a"}', None).hex() == "cdf29945707c950a246ef96f6df25b1a"


@given(kinds=st.tuples(st.text("kqap\0a", max_size=3), st.text("kqap\0a", max_size=3)))
def test_parts_cannot_be_read_as_others(kinds: tuple[str, str]) -> None:
    kind, queue = kinds
    keys = {
        key_of(kind + queue, None, None, None),
        key_of(kind, queue, None, None),
        key_of(queue, kind, None, None),
    }
    assert len(keys) == len({(kind + queue, None), (kind, queue), (queue, kind)})


@given(value=st.dictionaries(st.text("aé\u4e2d", max_size=4), JSON, max_size=4))
def test_a_key_is_equal_before_and_after_storage_and_in_any_order_of_fields(value: dict) -> None:
    """B-18: computed from a canonical form; what was stored gives the same key again."""
    import json

    text = args_json(value)
    backwards = args_json(dict(reversed(value.items())))
    respelt = json.dumps(json.loads(text), indent=2, ensure_ascii=True).encode()
    assert canonical_json(text) == canonical_json(backwards) == canonical_json(respelt)
    assert canonical_json(canonical_json(text)) == canonical_json(text)


def test_a_key_is_equal_in_every_process() -> None:
    code = (
        "from awa_pool.unique import key_of; from awa_pool.validation import args_json;"
        "print(key_of('k', None, args_json({'b': {'y': 1, 'x': {2.5}.pop()}, 'a': 'é'}), None).hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {key_of("k", None, b'{"a":"\xc3\xa9","b":{"x":2.5,"y":1}}', None).hex() + "\n"}


@dataclass
class Report:
    day: datetime
    rows: int = 1


def test_the_key_of_an_object_is_that_of_its_json() -> None:
    args = Report(datetime(2030, 1, 2, tzinfo=UTC))
    same = {"rows": 1, "day": "2030-01-02T00:00:00+00:00"}
    assert Uniqueness().key("report", "q", args_json(args)) == Uniqueness().key(
        "report", "r", args_json(same)
    )


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ([], "unique_opts"),
        ("by_args", "unique_opts"),
        (True, "unique_opts"),
        ({"by_arg": True}, "unique_opts.by_arg"),
        ({"by_queue": 1}, "unique_opts.by_queue"),
        ({"by_args": None}, "unique_opts.by_args"),
        ({"by_period": "hour"}, "unique_opts.by_period"),
        ({"by_period": 3.5}, "unique_opts.by_period"),
        ({"by_period": True}, "unique_opts.by_period"),
        ({"by_period": 2**63}, "unique_opts.by_period"),
        ({"by_period": timedelta(0)}, "unique_opts.by_period"),
        ({"states": 0}, "unique_opts.states"),
        ({"states": 256}, "unique_opts.states"),
        ({"states": "available"}, "unique_opts.states"),
        ({"states": True}, "unique_opts.states"),
        ({"states": 0b101}, "unique_opts.states"),
    ],
)
def test_a_bad_option_is_refused_by_its_name(options: object, path: str) -> None:
    client = Client("postgresql:///")
    with pytest.raises(ValidationError) as refused:
        client.insert({}, kind="k", unique_opts=options)
    assert refused.value.path == path
    with pytest.raises(ValidationError) as refused:
        client.insert_many([({}, {"kind": "k"}), ({}, {"kind": "k", "unique_opts": options})])
    assert refused.value.path == f"jobs[1].{path}"
    with pytest.raises(RegistrationError, match=path):
        client.task(dict, kind="k", unique_opts=options)(lambda_free)


def lambda_free(job: object) -> None:
    """A handler."""


def test_empty_options_are_the_defaults() -> None:
    assert checked_unique({}) == Uniqueness(by_queue=False, by_args=True, by_period=None, states=0b11111)
    assert DEFAULT_STATES == 0b11111
    assert checked_unique(None) is None


def test_on_conflict_is_raise_or_skip() -> None:
    client = Client("postgresql:///")
    for call in (
        lambda: client.insert({}, kind="k", on_conflict="ignore"),
        lambda: client.insert_many([], on_conflict="ignore"),
        lambda: client.insert_many_copy([], on_conflict=None),
    ):
        with pytest.raises(ValidationError, match="on_conflict"):
            call()


def test_a_request_overrides_its_task_and_false_switches_off() -> None:
    client = Client("postgresql:///")
    client.task(Report, unique_opts={"by_queue": True})(lambda_free)
    args = Report(datetime(2030, 1, 2, tzinfo=UTC))

    def unique(**more: object) -> Uniqueness | None:
        return options_of(client.registry, InsertRequest(args=args, **more)).unique

    assert unique() == Uniqueness(by_queue=True)
    assert unique(unique_opts={}) == Uniqueness()
    assert unique(unique_opts=False) is None


def test_a_length_of_time_stands_for_the_period_of_now() -> None:
    hourly = Uniqueness(by_period=timedelta(hours=1))
    args = b"{}"
    assert hourly.key("k", "q", args, 7200.0) == hourly.key("k", "q", args, 10799.9)
    assert hourly.key("k", "q", args, 7200.0) != hourly.key("k", "q", args, 10800.0)
    assert hourly.key("k", "q", args, 7200.0) == Uniqueness(by_period=2).key("k", "q", args)


def test_from_the_first_unique_job_on_a_call_is_one_document() -> None:
    """B109: keys are taken in one pass, in order, however many jobs a call has."""
    client = Client("postgresql:///")
    plain = [({"n": n}, {"kind": "k"}) for n in range(700)]
    unique = [({"n": n}, {"kind": "u", "unique_opts": {}}) for n in range(1200)]
    documents = list(documents_of(chunks_of(client.registry, plain + unique + plain)))
    assert [(document.places[0], len(document.places), document.keyed) for document in documents] == [
        (0, 500, False),
        (500, 2100, True),
    ]
    assert documents[1].text.count('"unique_key":"') == 1200

"""One gate for every way in: exact JSON or a refusal that names the path."""

from __future__ import annotations

import collections
import decimal
import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from fractions import Fraction
from uuid import UUID

import orjson
import pytest

from awa_pool import validation as gate
from awa_pool.errors import PayloadTooLarge, ValidationError

Pair = collections.namedtuple("Pair", "a b")


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):  # what a numpy.float64 is, too
    pass


class Ratio(enum.Enum):
    NONE = float("nan")


class Span(enum.Enum):
    DAY = (0, 24)


class Meta(type):
    def __getattribute__(cls, name):
        raise RuntimeError("no")


class Strange(metaclass=Meta):
    pass


@dataclass
class Inner:
    name: object


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "JSON has no nan"),
        (float("inf"), "JSON has no inf"),
        (-float("inf"), "JSON has no -inf"),
        (2**63, "does not fit 64 bits"),
        (2**64, "does not fit 64 bits"),
        (-(2**63) - 1, "does not fit 64 bits"),
        (10**400, "does not fit 64 bits"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        (datetime(2030, 1, 1), "without a zone"),
        (time(1), "datetime.time"),
        (timedelta(1), "timedelta"),
        ({1, 2}, "set"),
        (frozenset(), "frozenset"),
        (b"x", "bytes"),
        (bytearray(b"x"), "bytearray"),
        (decimal.Decimal("1.5"), "Decimal"),
        (Fraction(1, 2), "Fraction"),
        (1j, "complex"),
        (Pair(1, 2), "more than a plain tuple"),
        (collections.OrderedDict(a=1), "more than a plain dict"),
        (collections.defaultdict(int), "more than a plain dict"),
        (Text("x"), "more than a plain str"),
        (Whole(1), "more than a plain int"),
        (Real(1), "more than a plain float"),
        (Ratio.NONE, "JSON has no nan"),
        (object(), "object has no exact form"),
        (print, "has no exact form"),
        (Inner, "has no exact form"),
        ({1: "x"}, "keys are text in JSON, not int"),
        ({None: "x"}, "keys are text in JSON, not NoneType"),
        ({("a",): "x"}, "keys are text in JSON, not tuple"),
        (iter([1]), "has no exact form"),
        (Strange(), "strangest making"),
    ],
)
def test_what_json_would_change_is_refused_with_its_path(value, words):
    """B056, B059, B061, B063, B068."""
    with pytest.raises(ValidationError, match=words) as caught:
        gate.args_json({"items": [0, 0, 0, {"name": value}]})
    assert caught.value.path == "args.items[3].name"
    with pytest.raises(ValidationError, match=words) as caught:
        gate.args_json(Inner({"x": [value]}))
    assert caught.value.path == "args.name.x[0]"
    with pytest.raises(ValidationError, match=words):
        gate.metadata_json({"x": value})


def test_an_args_class_that_cannot_be_read_is_refused_saying_why():
    @dataclass
    class Lazy:
        name: int

        def __getattribute__(self, name):
            if name in ("name", "__dict__"):
                raise LookupError(name)
            return super().__getattribute__(name)

    for args in (Lazy(1), {"x": [Lazy(1)]}, Lazy(1)):  # again, once its class is known
        with pytest.raises(ValidationError, match=r"args.*Lazy cannot be read: LookupError"):
            gate.args_json(args)


def test_an_enum_is_its_value_whatever_stands_beside_it():
    """B063: `null` in the text sends a value down the slow road, which has to agree with the fast one."""
    for beside in ("x", None, 2**63 - 1):
        assert orjson.loads(gate.args_json({"x": Span.DAY, "y": beside}))["x"] == [0, 24]


def test_a_path_shows_a_long_key_shortened():
    with pytest.raises(ValidationError) as caught:
        gate.args_json({"k" * 100_000: {1}})
    assert len(caught.value.path) < 100


@pytest.mark.parametrize("key", ["a\0", "\ud800"])
def test_a_key_that_cannot_be_stored_is_refused(key):
    """B056."""
    with pytest.raises(ValidationError, match=r"args\.x\["):
        gate.args_json({"x": {key: 1}})


@pytest.mark.parametrize(
    "value",
    [None, True, 0, 2**63 - 1, -(2**63), -0.0, 1e16, 5e-324, "", "é𝄞", "\\u0000", "null", "1234567890123456789012", [], {},
     {"": {"a b": [None]}}, "[" * 500],
)  # fmt: skip
def test_what_json_carries_comes_out_as_it_went_in(value):
    back = orjson.loads(gate.args_json({"x": value}))["x"]
    assert back == value
    assert repr(back) == repr(value)


def test_times_and_ids_are_written_by_rule():
    """B068."""
    at = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    key = UUID(int=5)
    assert orjson.loads(gate.args_json({"x": [at, date(2030, 1, 2), key, (1, 2)]}))["x"] == [
        at.isoformat(), "2030-01-02", str(key), [1, 2],
    ]  # fmt: skip


def test_nesting_has_a_clear_limit_and_no_depth_kills_the_producer():
    """B065."""
    assert gate.args_json({"x": nested(gate.MAX_LEVELS - 1)})
    for levels in (gate.MAX_LEVELS, 100, 253, 254, 255, 100_000):
        with pytest.raises(ValidationError, match="nested deeper than 64 levels"):
            gate.args_json({"x": nested(levels)})


def test_a_value_that_holds_itself_is_refused():
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(ValidationError, match="nested deeper"):
        gate.args_json({"x": ring})


@pytest.mark.parametrize("args", [None, 1, "x", [1], (1,), Pair(1, 2), datetime.now(UTC), {1}, object()])
def test_args_are_an_object(args):
    with pytest.raises(ValidationError, match="args: expected"):
        gate.args_json(args)


def test_sizes_are_capped_naming_size_and_cap():
    room = gate.ARGS_BYTES - len(b'{"x":""}')
    assert len(gate.args_json({"x": "a" * room})) == gate.ARGS_BYTES
    with pytest.raises(PayloadTooLarge, match="8388609 bytes of JSON; at most 8388608") as caught:
        gate.args_json({"x": "a" * (room + 1)})
    assert caught.value.path == "args"
    with pytest.raises(PayloadTooLarge, match="metadata: 65545 bytes"):
        gate.metadata_json({"x": "a" * (64 * 1024 + 1)})


def test_metadata_is_a_dict_without_our_own_keys():
    assert gate.metadata_json({}) is None
    assert gate.metadata_json(None) is None
    for wrong in ([1], "x", Inner(1)):
        with pytest.raises(ValidationError, match="metadata: expected a dict"):
            gate.metadata_json(wrong)
    with pytest.raises(ValidationError, match=r"metadata\.awa:parent"):
        gate.metadata_json({"awa:parent": 1})


@pytest.mark.parametrize("name", ["a b", "'", '"', "/", "%", "🦀", "x" * 200, "Привет", "a\nb"])
def test_odd_names_are_names(name):
    """B071, B105."""
    assert gate.checked_queue(name) == gate.checked_kind(name) == name


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0", "\ud800", None, 1, b"x"])
def test_a_name_out_of_bounds_is_refused(name):
    with pytest.raises(ValidationError, match="queue: "):
        gate.checked_queue(name)


def test_tags_are_few_names():
    """B056."""
    assert gate.checked_tags(("a", "b")) == ["a", "b"]
    assert gate.checked_tags([]) is None
    assert len(gate.checked_tags(["x"] * 20) or []) == 20
    for wrong, path in (
        ("abc", "tags"),
        (["x"] * 21, "tags"),
        (["a", "b\0"], r"tags\[1\]"),
        ([1], r"tags\[0\]"),
        (5, "tags"),
    ):
        with pytest.raises(ValidationError, match=path):
            gate.checked_tags(wrong)


def test_a_due_time_is_an_instant_of_our_calendar():
    """B124, B126."""
    at = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert gate.checked_run_at(at) == at
    assert gate.checked_run_at(None) is None
    west = timezone(timedelta(hours=-1))
    for wrong in (datetime(2030, 1, 1), datetime.max.replace(tzinfo=west), "tomorrow", 5, date(2030, 1, 1)):
        with pytest.raises(ValidationError, match="run_at: "):
            gate.checked_run_at(wrong)


def test_numbers_have_bounds_and_a_bool_is_none():
    for wrong in (0, 5, True, 2.0, "2", None):
        with pytest.raises(ValidationError, match="priority: "):
            gate.checked_priority(wrong)
    for wrong in (0, 1001, True):
        with pytest.raises(ValidationError, match="max_attempts: "):
            gate.checked_max_attempts(wrong)

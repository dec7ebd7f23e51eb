"""Stored args come back as the declared types, or name the field that does not fit."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict
from uuid import UUID, uuid4

import msgspec
import orjson
import pydantic
import pytest
from pydantic_core import PydanticCustomError

from awa_pool.decoding import compile_type, decode_args
from awa_pool.errors import DecodeError, RegistrationError
from awa_pool.validation import args_json


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Size(enum.StrEnum):
    SMALL = "s"


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Everything:
    text: str
    number: int
    real: float
    yes: bool
    nothing: None
    when: datetime
    day: date
    key: UUID
    colour: Colour
    size: Size
    point: Point
    points: list[Point]
    pair: tuple[int, str]
    many: tuple[Point, ...]
    table: dict[str, Point]
    maybe: Optional[Point]  # noqa: UP045
    either: Point | int | str
    word: Literal["a", "b"]
    noted: Annotated[int, "note"]
    whatever: Any
    _hidden: int = 3
    made: list[int] = field(default_factory=list)


class Typed(TypedDict):
    n: int
    when: NotRequired[datetime]


class Struct(msgspec.Struct):
    n: int
    when: datetime | None = None


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    n: int
    when: datetime | None = None
    renamed: int = pydantic.Field(default=1, alias="re-named")


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


NOW = datetime(2030, 2, 3, 4, 5, 6, 789, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))


def round_trip(value):
    return decode_args(compile_type(type(value)), orjson.loads(args_json(value)))


def test_every_declared_type_comes_back_as_it_was():
    value = Everything(
        "té", 2**63 - 1, -0.0, True, None, NOW, date(1, 1, 1), uuid4(), Colour.BLUE, Size.SMALL, Point(1),
        [Point(1), Point(2, 1e16)], (1, "x"), (Point(3),), {"a b": Point(4)}, None, "text", "b", 5,
        {"any": [1, None]}, 7, [1, 2],
    )  # fmt: skip
    back = round_trip(value)
    assert back == value
    assert back.when.utcoffset() == NOW.utcoffset()
    assert type(back.colour) is Colour
    assert type(back.size) is Size
    assert str(back.real) == "-0.0"


@pytest.mark.parametrize(
    "value", [Struct(1, NOW), Model(n=1, when=NOW, **{"re-named": 5}), Tree(1, [Tree(2, [Tree(3)])])]
)
def test_other_kinds_of_args_come_back_too(value):
    assert round_trip(value) == value


def test_a_typed_dict_is_checked_like_a_dataclass():
    decoder = compile_type(Typed)
    assert decode_args(decoder, {"n": 1, "when": NOW.isoformat()}) == {"n": 1, "when": NOW}
    with pytest.raises(DecodeError, match=r"args\.n: Typed needs this field"):
        decode_args(decoder, {})


@pytest.mark.parametrize(
    ("hint", "stored", "words"),
    [
        (Point, {"x": 1.5}, r"args\.x: expected int, got float"),
        (Point, {"x": True}, r"args\.x: expected int, got bool"),
        (Point, {"x": 1, "z": 2}, r"args\.z: Point has no such field"),
        (Point, {"y": 1.0}, r"args\.x: Point needs this field"),
        (Point, [1], r"args: expected an object for Point, got list"),
        (
            Tree,
            {"value": 1, "children": [{"value": 2}, {"value": "secret"}]},
            r"args\.children\[1\]\.value: expected int",
        ),
        (dict[str, UUID], {"k": "secret"}, r"args\.k: this text is no UUID"),
        (dict[str, datetime], {"k": "2030-01-01T00:00:00"}, r"args\.k: .*no zone"),
        (dict[str, datetime], {"k": "secret"}, r"args\.k: this text is no datetime"),
        (dict[str, Colour], {"k": "secret"}, r"args\.k: no such value in Colour"),
        (dict[str, Colour], {"k": True}, r"args\.k: no such value"),
        (dict[str, tuple[int, int]], {"k": [1]}, r"args\.k: expected 2 values"),
        (dict[str, int | Point], {"k": {"x": "secret"}}, r"args\.k\.x: expected int"),
        (Struct, {"n": "secret"}, r"args\.n: Expected `int`"),
        (Model, {"n": "secret"}, r"args\.n: .*valid integer"),
    ],
)
def test_what_does_not_fit_names_its_field_and_shows_no_value(hint, stored, words):
    with pytest.raises(DecodeError, match=words) as caught:
        decode_args(compile_type(hint), stored)
    assert "secret" not in str(caught.value)


def test_a_constructor_that_refuses_is_a_decode_error():
    @dataclass
    class Picky:
        n: int

        def __post_init__(self) -> None:
            raise ValueError("secret")

    with pytest.raises(DecodeError, match="Picky refused its fields") as caught:
        decode_args(compile_type(Picky), {"n": 1})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("hint", [set[int], bytes, complex, dict[int, str], timedelta, list[frozenset[int]]])
def test_a_type_that_json_cannot_bring_back_is_refused_early(hint):
    with pytest.raises(RegistrationError):
        compile_type(hint)


def test_utc_stays_utc():
    assert decode_args(compile_type(datetime), "2030-01-01T00:00:00+00:00").tzinfo is UTC


class Fussy(msgspec.Struct):
    size: Size = Size.SMALL
    word: Literal["x", "y"] = "x"
    n: int = 0

    def __post_init__(self) -> None:
        if self.word == "y":
            raise ValueError(f"MARK {self.word}")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Choosy(pydantic.BaseModel):
    n: int = 0
    text: str = ""
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")] | None = None

    @pydantic.field_validator("text")
    @classmethod
    def check(cls, value: str) -> str:
        if value == "MARK value":
            raise ValueError(f"cannot be {value}")
        if value == "MARK custom":
            raise PydanticCustomError("own", "cannot be {value}", {"value": value})
        assert value != "MARK assert", f"not {value}"
        return value


@pytest.mark.parametrize(
    ("hint", "args", "path", "words"),
    [
        (Fussy, {"size": "MARK"}, "args.size", "Fussy refused its fields"),
        (Fussy, {"word": "MARK"}, "args.word", "Fussy refused its fields"),
        (Fussy, {"word": "y"}, "args", "Fussy refused its fields"),
        (Fussy, {"n": "MARK"}, "args.n", "Expected `int`"),
        (Choosy, {"n": "MARK"}, "args.n", "valid integer"),
        (Choosy, {"text": "MARK value"}, "args.text", "Choosy refused its fields"),
        (Choosy, {"text": "MARK custom"}, "args.text", "Choosy refused its fields"),
        (Choosy, {"text": "MARK assert"}, "args.text", "Choosy refused its fields"),
        (Choosy, {"pet": {"kind": "MARK"}}, "args.pet", "Choosy refused its fields"),
    ],
)
def test_no_value_shows_in_a_refusal_whichever_library_the_type_comes_from(hint, args, path, words):  # B166
    with pytest.raises(DecodeError) as refused:
        decode_args(compile_type(hint), args)
    text = str(refused.value)
    assert path in text and words in text and "MARK" not in text

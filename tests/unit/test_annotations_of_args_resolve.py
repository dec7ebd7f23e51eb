"""What an annotation of args names may be defined further down, but not nowhere: that shows before a pool claims a job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar, NewType, TypedDict

import msgspec
import pydantic
import pytest

from awa_pool import Client, Job, RegistrationError
from awa_pool.errors import ConfigError
from awa_pool.registry import Registry
from awa_pool.worker.app import check_tasks


@dataclass
class Early:
    known: ClassVar[int] = 1
    when: Late | None = None


class EarlyStruct(msgspec.Struct):
    when: list[Late]


class EarlyModel(pydantic.BaseModel):
    when: dict[str, Late]


@dataclass
class Late:
    days: int


@dataclass
class Part:
    fine: int
    broken: Nope  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Whole:
    parts: list[Part]


@dataclass
class Child(Part):
    more: int


class Typed(TypedDict):
    broken: Nope | None  # type: ignore[name-defined]  # noqa: F821


class Struct(msgspec.Struct):
    fine: int
    broken: Nope  # type: ignore[name-defined]  # noqa: F821


class OuterStruct(msgspec.Struct):
    inner: dict[str, list[Struct]]


class Model(pydantic.BaseModel):
    fine: int
    broken: Nope  # type: ignore[name-defined]  # noqa: F821


class OuterModel(pydantic.BaseModel):
    inner: Model


@dataclass
class OfModule:
    broken: os.nope  # type: ignore[name-defined]


Odd = NewType("Odd", "nope")  # type: ignore[name-defined]  # noqa: F821


@dataclass
class OfNewType:
    broken: Odd


def handle(job: Job[object]) -> None: ...


@pytest.mark.parametrize("args_type", [Early, EarlyStruct, EarlyModel])
def test_what_an_annotation_names_may_be_defined_later(args_type: type) -> None:
    client = Client("host=nowhere")
    client.task(args_type, kind="k")(handle)
    check_tasks(client.registry, "app 'shop:client'")


@pytest.mark.parametrize(
    ("args_type", "field"),
    [
        (Part, "Part.broken"), (Whole, "Part.broken"), (Child, "Part.broken"), (Typed, "Typed.broken"),
        (Struct, "Struct.broken"), (OuterStruct, "Struct.broken"), (Model, "Model.broken"),
        (OuterModel, "Model.broken"),
    ],
)  # fmt: skip
def test_a_name_that_nothing_defines_is_told_with_app_task_class_field_and_annotation(
    args_type: type, field: str
) -> None:
    client = Client("host=nowhere")
    client.task(args_type, kind="k")(handle)
    with pytest.raises(ConfigError) as caught:
        check_tasks(client.registry, "app 'shop:client'")
    text = str(caught.value)
    assert text.startswith(f"app 'shop:client': task 'k': {field}: the annotation 'Nope"), text
    assert "name 'Nope' is not defined" in text and "\n" not in text


@pytest.mark.parametrize("args_type", [OfModule, OfNewType])
def test_so_is_a_name_in_a_module_or_in_a_new_type(args_type: type) -> None:
    registry = Registry()
    registry.add(args_type, handle, kind="k")
    with pytest.raises(
        RegistrationError, match=rf"task 'k': {args_type.__name__}.broken: the annotation .*nope"
    ):
        registry.resolve()


def test_an_annotation_that_is_no_type_is_refused_at_once() -> None:
    for written in ("two words", "int[3]", "1 / 0"):
        wrong = dataclass(type("Wrong", (), {"__annotations__": {"fine": int, "broken": written}}))
        with pytest.raises(RegistrationError, match=r"task 'k': Wrong.broken: the annotation"):
            Registry().add(wrong, handle, kind="k")


def test_an_app_without_tasks_is_refused_saying_what_to_do() -> None:
    client = Client("host=nowhere")
    client.on_completed_enqueue("order", lambda args, job: None)
    client.process_start(start)
    with pytest.raises(
        ConfigError, match=r"^app 'bad:client' declares no task: import the modules that declare"
    ):
        check_tasks(client.registry, "app 'bad:client'")
    with pytest.raises(ConfigError, match=r"^the app of __main__ declares no task"):
        client.run()


def start() -> None: ...

"""What an app may declare, and what is refused when it does."""

from __future__ import annotations

import pickle
import types
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, NewType

import dill
import pytest

from awa_pool import AsyncClient, Client
from awa_pool.errors import DecodeError, RegistrationError
from awa_pool.registry import Registry, kind_of
from awa_pool.states import Trigger


@dataclass
class SendEmail:
    to: str
    later: Later | None = None


@dataclass
class Later:
    days: int


def handle(job):
    return None


async def handle_async(job):
    return None


def generate(job):
    yield job


def takes_nothing():
    return None


def takes_two(job, other):
    return None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("HTMLToPDF", "html_to_pdf"),
        ("IOError", "io_error"),
        ("OAuthRefresh", "o_auth_refresh"),
        ("PDFRenderJob", "pdf_render_job"),
        ("ProcessV2Import", "process_v2_import"),
        ("ReconcileQ3Revenue", "reconcile_q3_revenue"),
        ("SMTPEmail", "smtp_email"),
        ("SendConfirmationEmail", "send_confirmation_email"),
        ("SendEmail", "send_email"),
    ],
)
def test_a_kind_is_the_class_name_in_snake_case(name, kind):
    assert kind_of(name) == kind


def test_a_task_keeps_its_defaults_and_knows_whether_it_is_async():
    registry = Registry()
    task = registry.add(SendEmail, handle_async, queue="mail", max_attempts=3, backoff=5, priority=1)
    assert (task.kind, task.queue, task.max_attempts, task.backoff, task.priority) == (
        "send_email",
        "mail",
        3,
        5.0,
        1,
    )
    assert task.is_async
    assert not registry.add(dict, handle, kind="plain").is_async
    assert registry.queues() == ["mail", "default"]


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (lambda job: None, "lambda"),
        (generate, "generator"),
        (takes_nothing, "one argument"),
        (takes_two, "one argument"),
        (print, "must be a function"),
        (partial(handle), "must be a function"),
        (None, "must be a function"),
        (types.FunctionType(handle.__code__, {"__name__": "nowhere"}, "lost"), "no importable module"),
    ],
)
def test_a_handler_that_workers_cannot_call_is_refused(handler, words):
    with pytest.raises(RegistrationError, match=words):
        Registry().add(SendEmail, handler)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": ""}, "queue"),
        ({"queue": "x" * 201}, "queue"),
        ({"kind": "a\0b"}, "kind"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1001}, "max_attempts"),
        ({"priority": 5}, "priority"),
        ({"priority": True}, "priority"),
        ({"backoff": -1}, "backoff"),
        ({"backoff": float("nan")}, "backoff"),
    ],
)
def test_a_setting_out_of_range_is_refused_naming_the_task(options, words):
    with pytest.raises(RegistrationError, match=rf"task .*{words}"):
        Registry().add(SendEmail, handle, **options)


def test_a_kind_can_be_registered_once():
    registry = Registry()
    registry.add(SendEmail, handle)
    with pytest.raises(RegistrationError, match="send_email.*already.*test_task_registry.handle"):
        registry.add(SendEmail, handle_async)


def test_a_plain_dict_needs_a_kind():
    with pytest.raises(RegistrationError, match="kind="):
        Registry().add(dict, handle)


DECORATORS = (
    "task", "on_event", "on_event_kind", "on_completed_enqueue", "on_retried_enqueue", "on_exhausted_enqueue",
    "on_cancelled_enqueue", "on_waiting_for_callback_enqueue", "on_rescued_enqueue",
)  # fmt: skip


@pytest.mark.parametrize("client", [Client("host=x"), AsyncClient("host=x")])
@pytest.mark.parametrize("decorator", DECORATORS)
@pytest.mark.parametrize("function", [handle, handle_async, lambda job: None, staticmethod(handle), print])
def test_a_decorator_without_its_parentheses_is_refused_at_once_naming_it(client, decorator, function):
    with pytest.raises(
        RegistrationError, match=rf"@client\.{decorator} lacks .* write @client\.{decorator}\(\w"
    ):
        getattr(client, decorator)(function)


@pytest.mark.parametrize(
    "wrong", [int, Registry, list, str, datetime, Trigger, "x", "", SendEmail("s3cret"), 7, partial(handle)]
)
def test_what_is_no_args_type_is_refused_at_once_saying_what_is_wanted(wrong):
    with pytest.raises(
        RegistrationError, match=r"client\.task\(…\) takes the class of the args, a dataclass.*, not"
    ) as caught:
        Client("host=x").task(wrong, kind="k")
    assert "s3cret" not in str(caught.value)
    if isinstance(wrong, str) and wrong:
        return  # a kind, to specs and hooks
    for decorator in DECORATORS[1:]:
        with pytest.raises(
            RegistrationError, match=rf"client\.{decorator}\(…\) takes the args type of a task"
        ) as caught:
            getattr(Client("host=x"), decorator)(wrong)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "hint", [list[int], list[SendEmail], int | None, SendEmail | int, NewType("Number", int)]
)
def test_args_that_would_be_no_json_object_are_refused(hint):
    with pytest.raises(RegistrationError, match=r"task 'k': args are stored as a JSON object"):
        Registry().add(hint, handle, kind="k")


@pytest.mark.parametrize(
    "hint", [dict[str, int], Later | dict[str, int], Annotated[Later, "soon"], NewType("Soon", Later), None]
)
def test_hints_of_json_objects_are_taken_with_a_kind(hint):
    assert Registry().add(hint, handle, kind="k").decoder is not None
    if hint is not None:
        with pytest.raises(RegistrationError, match="needs kind="):
            Registry().add(hint, handle)


def test_an_args_type_that_json_cannot_bring_back_is_refused_naming_the_field():
    @dataclass
    class Wrong:
        when: complex

    with pytest.raises(RegistrationError, match="Wrong.when"):
        Registry().add(Wrong, handle)


def test_hooks_are_plain_functions_without_parameters():
    client = Client("host=x")
    assert client.process_start(takes_nothing) is takes_nothing
    client.process_stop(takes_nothing)
    assert client.registry.process_start == client.registry.process_stop == [takes_nothing]
    for wrong in (handle, handle_async, lambda: None):
        with pytest.raises(RegistrationError):
            client.process_start(wrong)


def test_a_hint_that_is_defined_later_is_resolved_at_first_use():
    registry = Registry()
    task = registry.add(SendEmail, handle)
    assert registry.decode_args(task, {"to": "x", "later": {"days": 2}}) == SendEmail("x", Later(2))
    with pytest.raises(DecodeError, match=r"args\.later"):
        registry.decode_args(task, {"to": "x", "later": {"days": "2"}})


def test_a_client_travels_by_value_with_its_tasks_and_without_connections():
    client = Client("host=x password=secret", schema="jobs")
    client.task(SendEmail, queue="mail")(handle)
    client._pool = object()
    for through in (pickle, dill):
        copy = through.loads(through.dumps(client))
        assert copy._pool is None
        assert copy.schema == "jobs"
        assert copy.registry.tasks["send_email"].queue == "mail"
        assert copy.registry.decode_args(copy.registry.tasks["send_email"], {"to": "x"}) == SendEmail("x")
    assert "secret" not in repr(client)


def test_a_decorated_handler_stays_what_it_was():
    client = Client("host=x")
    assert client.task(SendEmail)(handle) is handle
    assert client.task(kind="plain")(handle) is handle
    assert client.registry.tasks["plain"].args_type is dict

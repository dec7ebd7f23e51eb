"""awa-pool: a durable job queue inside PostgreSQL with a pool of worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import AsyncClient as AsyncClient
    from .client import Client as Client
    from .errors import AwaError as AwaError
    from .errors import BootFailed as BootFailed
    from .errors import CallbackNotFound as CallbackNotFound
    from .errors import CallbackTimeout as CallbackTimeout
    from .errors import ConfigError as ConfigError
    from .errors import DeadlineExceeded as DeadlineExceeded
    from .errors import DecodeError as DecodeError
    from .errors import FollowUpFailed as FollowUpFailed
    from .errors import JobCancelled as JobCancelled
    from .errors import JobNotFound as JobNotFound
    from .errors import LeaseLost as LeaseLost
    from .errors import PayloadTooLarge as PayloadTooLarge
    from .errors import RegistrationError as RegistrationError
    from .errors import SchemaMismatch as SchemaMismatch
    from .errors import ShuttingDown as ShuttingDown
    from .errors import StagingError as StagingError
    from .errors import StoreConflict as StoreConflict
    from .errors import StoreError as StoreError
    from .errors import StoreRefused as StoreRefused
    from .errors import StoreUnavailable as StoreUnavailable
    from .errors import TerminalError as TerminalError
    from .errors import TransitionRefused as TransitionRefused
    from .errors import UniqueConflict as UniqueConflict
    from .errors import ValidationError as ValidationError
    from .follow_ups import EnqueueRequest as EnqueueRequest
    from .job import Job as Job
    from .job import JobRow as JobRow
    from .outcomes import Cancel as Cancel
    from .outcomes import RetryAfter as RetryAfter
    from .outcomes import Snooze as Snooze
    from .outcomes import WaitForCallback as WaitForCallback
    from .requests import InsertRequest as InsertRequest
    from .states import State as State
    from .tokens import CallbackToken as CallbackToken
    from .tokens import Resumed as Resumed

_HOMES = {
    "client": ("AsyncClient", "Client"),
    "errors": (
        "AwaError", "BootFailed", "CallbackNotFound", "CallbackTimeout", "ConfigError", "DeadlineExceeded", "DecodeError", "FollowUpFailed",
        "JobCancelled", "JobNotFound", "LeaseLost", "PayloadTooLarge", "RegistrationError", "SchemaMismatch", "ShuttingDown",
        "StagingError", "StoreConflict", "StoreError", "StoreRefused", "StoreUnavailable", "TerminalError", "TransitionRefused",
        "UniqueConflict", "ValidationError",
    ),
    "follow_ups": ("EnqueueRequest",),
    "job": ("Job", "JobRow"),
    "outcomes": ("Cancel", "RetryAfter", "Snooze", "WaitForCallback"),
    "requests": ("InsertRequest",),
    "states": ("State",),
    "tokens": ("CallbackToken", "Resumed"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 (each name is loaded at its first use: a worker imports little)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'awa_pool' has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(f"awa_pool.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})

"""Every error this package raises on purpose.

AwaError
├── ConfigError            a setting, flag, DSN or app name is wrong: names it and says what to write
├── ValidationError        a request or a value cannot be accepted: names the path
│   └── PayloadTooLarge    args or metadata exceed the cap: names size and cap
├── RegistrationError      a task cannot be registered as written
├── StoreError
│   ├── StoreUnavailable   the database is away or the connection was lost: trying again is right
│   ├── StoreConflict      deadlock, serialization failure, lock timeout: trying again is right
│   ├── SchemaMismatch     missing, foreign, older or newer schema, or settings under which it does not work: names the command to run
│   └── StoreRefused       the database refused this very statement or value: trying again is not right
├── UniqueConflict         another job holds the unique key: carries its id
├── JobNotFound            no job has that id
├── CallbackNotFound       no callback waits for an answer under that id: unknown, spent, or of an older wait
├── TransitionRefused      the job's state does not allow that action
├── FollowUpFailed         what an app registered for a cancel or an answer failed, so nothing has changed: names it
├── WireError              a message between processes is malformed
│   └── UnknownMessage     a message has a type nobody registered
├── DeadlineExceeded       raised in a handler whose deadline has passed: clean up and end
├── JobCancelled           raised in an async handler whose job was cancelled: clean up and end
├── CallbackTimeout        raised in a handler whose callback nobody has answered in time: the attempt has ended
├── ShuttingDown           raised in a handler that waits for an answer while its pool stops: the job goes back
├── LeaseLost              the attempt is not its handler's any more: cancelled, rescued, or ended
├── BootFailed             a process of the pool did not become ready
├── EmbeddedError          the embedded server cannot be installed, started or reached
│   └── FolderRefused      its folder cannot be made or is not its own (a ConfigError too): names another way
└── TerminalError          raised by a handler: fail this job now, do not retry
    ├── DecodeError        args do not fit the task's args type: names the field
    └── StagingError       a follow-up cannot be staged: Invalid, TooMany, TooLarge or Sealed
"""

from __future__ import annotations

from typing import ClassVar


class AwaError(Exception):
    """Base of every error of awa-pool."""


class ConfigError(AwaError):
    """A setting, flag, DSN or app name is wrong."""


class ValidationError(AwaError):
    """A request or a value cannot be accepted; `path` says where it stands."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class PayloadTooLarge(ValidationError):
    """Args or metadata exceed the cap."""


class RegistrationError(AwaError):
    """A task cannot be registered as written."""


class StoreError(AwaError):
    """The database could not do what was asked; `sqlstate` is the server's code where there is one."""

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class StoreUnavailable(StoreError):
    """The database is away, read-only, full, or the connection was lost: try again."""


class StoreConflict(StoreError):
    """A deadlock, serialization failure or lock timeout: try again in a new transaction."""


class SchemaMismatch(StoreError):
    """The schema is missing, foreign, older or newer, or sessions get settings under which it does not work: stop, and run the
    command named."""


class StoreRefused(StoreError):
    """The database refused this statement or value: trying again changes nothing."""


class UniqueConflict(AwaError):
    """Another job holds the unique key: `job_id` (None: an earlier job of the same call); `path` names the item of a bulk call."""

    def __init__(self, message: str, *, job_id: int | None = None, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.job_id = job_id
        self.path = path


class JobNotFound(AwaError):
    """No job has that id."""


class CallbackNotFound(AwaError):
    """No callback waits for an answer under that id: it is unknown, malformed, answered, timed out, or of an older wait.

    `is_open`: it is registered, and its handler does not wait for it yet, as a heartbeat and a retry want: say it again later."""

    def __init__(self, message: str, *, is_open: bool = False) -> None:
        super().__init__(message)
        self.is_open = is_open


class TransitionRefused(AwaError):
    """The job's present state does not allow that action."""


class FollowUpFailed(AwaError):
    """What the app registered for a cancel or an answer to a callback failed, so nothing has changed; `spec` names the function, if it was one."""

    def __init__(self, message: str, *, spec: str | None = None) -> None:
        super().__init__(message)
        self.spec = spec


class WireError(AwaError):
    """A message between processes is malformed."""


class UnknownMessage(WireError):
    """A message has a type nobody registered."""


class DeadlineExceeded(AwaError):
    """Raised once in a handler when its attempt's deadline has passed; a grace later its process is killed."""


class JobCancelled(AwaError):
    """Raised once in an async handler whose job was cancelled; raised by a handler itself, it cancels the job."""


class CallbackTimeout(AwaError):
    """Raised in a handler whose callback was not answered in time: the attempt has ended, and the job is tried again or has failed."""


class ShuttingDown(AwaError):
    """Raised in a handler that waits while its pool stops: let it through, and the job goes back with no attempt used."""


class LeaseLost(AwaError):
    """The attempt is not its handler's any more: its job was cancelled, rescued or answered, or the handler has returned."""


class BootFailed(AwaError):
    """A process of the pool did not become ready."""


class EmbeddedError(AwaError):
    """The embedded server cannot be installed, started or reached."""


class FolderRefused(EmbeddedError, ConfigError):
    """The folder of the embedded server cannot be made, or is not its own."""


class TerminalError(AwaError):
    """Raised by a handler: fail this job now, without another attempt."""


class DecodeError(TerminalError):
    """Stored args do not fit the task's args type; `path` says where."""

    def __init__(self, message: str, *, path: str = "args") -> None:
        super().__init__(f"{path}: {message}")
        self.message = message
        self.path = path


class StagingError(TerminalError):
    """A follow-up cannot be staged; an attempt with one cannot complete. Its four kinds are its attributes; `path` names the field."""

    Invalid: ClassVar[type[StagingError]]
    TooMany: ClassVar[type[StagingError]]
    TooLarge: ClassVar[type[StagingError]]
    Sealed: ClassVar[type[StagingError]]

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class _Invalid(StagingError):
    """The request is not a valid job."""


class _TooMany(StagingError):
    """The attempt has staged as many as it may."""


class _TooLarge(StagingError):
    """The attempt has staged as many bytes as it may."""


class _Sealed(StagingError):
    """The handler has returned."""


for _name, _variant in (
    ("Invalid", _Invalid),
    ("TooMany", _TooMany),
    ("TooLarge", _TooLarge),
    ("Sealed", _Sealed),
):
    _variant.__name__, _variant.__qualname__ = _name, f"StagingError.{_name}"
    setattr(StagingError, _name, _variant)

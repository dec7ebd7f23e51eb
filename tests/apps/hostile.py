"""Handlers that answer, raise and are named as badly as Python lets them."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable
from typing import Any

from awa_pool import Client
from awa_pool.job import Job
from awa_pool.outcomes import Cancel, RetryAfter, Snooze

client = Client()

HUGE = 10 * 1024 * 1024
ODD_NAMES = [
    "it's a b", 'say "x"', "a/b/../c", "100% %s %(x)s", "🦀 Привет", "-dash", "x" * 200, "ж" * 200, "back\\slash",
    "two\nlines", "a\tb", "{curly}", "null", "--", "a;b", "$1", " lead", ".", "é",
    "\x1b[31mred", "\u202ertl", "<b>", "a,b", "*", "\x7f", "awa:x", "job", "q" * 64,
]  # fmt: skip


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class WrongText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class Stubborn(Exception):
    """Every attribute is an ambush."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__", "__name__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=Meta):
    pass


class Ambush:
    """A result that fights whoever looks at it."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("class")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("reduce")

    __hash__ = None  # type: ignore[assignment]


def deep(levels: int = 50_000) -> list[Any]:
    """A list within a list, that deep."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def chained(length: int, ring: bool = False) -> Exception:
    """An error with that many causes, the last of which may be the first again."""
    first = error = ValueError("0")
    for at in range(1, length):
        following = ValueError(str(at) * 500)
        following.__cause__ = error
        error = following
    if ring:
        first.__cause__ = error
    return error


def holds_itself() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def endless(n: int = 0) -> int:
    return endless(n + 1)


def fail(error: BaseException) -> Any:
    raise error


def nul_frames() -> Any:
    """Raise below a frame whose file and function names hold what PostgreSQL does not."""
    code = compile("def f():\n    raise ValueError('in f')\nf()", "a\udce4\\0b.py", "exec")
    exec(code, {})  # noqa: S102


def shallow_limit() -> Any:
    sys.setrecursionlimit(200)
    try:
        endless()
    finally:
        sys.setrecursionlimit(1000)


RAISES: dict[str, Callable[[], Any]] = {
    "no_text": lambda: fail(NoText()),
    "wrong_text": lambda: fail(WrongText()),
    "stubborn": lambda: fail(Stubborn()),
    "nameless": lambda: fail(Nameless("x")),
    "nul": lambda: fail(ValueError("a\0b\0" * 5000)),
    "surrogates": lambda: fail(ValueError("\ud800\udfff" * 5000)),
    "control": lambda: fail(ValueError("\x1b[2J\r\n" * 2000)),
    "huge": lambda: fail(ValueError("x" * HUGE)),
    "huge_wide": lambda: fail(ValueError("🦀" * (HUGE // 4))),
    "huge_args": lambda: fail(ValueError([b"\0" * 1000] * 10_000)),
    "nul_frames": nul_frames,
    "endless": lambda: endless(),
    "shallow": shallow_limit,
    "deep_arg": lambda: fail(ValueError(deep())),
    "chain": lambda: fail(chained(5000)),
    "ring": lambda: fail(chained(3, ring=True)),
    "group": lambda: fail(ExceptionGroup("g", [ValueError(str(n)) for n in range(2000)])),
    "stop": lambda: fail(StopIteration(deep())),
    "generator_exit": lambda: fail(GeneratorExit()),
    "keyboard": lambda: fail(KeyboardInterrupt()),
    "cancelled": lambda: fail(asyncio.CancelledError()),
    "exit_zero": lambda: fail(SystemExit(0)),
    "exit_odd": lambda: fail(SystemExit(Ambush())),
    "memory": lambda: fail(MemoryError()),
    "type_only": lambda: fail(KeyError),  # type: ignore[arg-type]
    "not_an_error": lambda: fail(5),  # type: ignore[arg-type]
    "error": lambda: ValueError("not raised"),
    "error_class": lambda: ValueError,
    "answer_class": lambda: Snooze,
    "retry_reason": lambda: fail(RetryAfter(3600, reason="\0" + "y" * HUGE)),
    "retry_odd_reason": lambda: RetryAfter(3600, reason=Ambush()),  # type: ignore[arg-type]
    "retry_nan": lambda: RetryAfter(float("nan")),
    "retry_forever": lambda: RetryAfter(10.0**30),
}
RETURNS: dict[str, Callable[[], Any]] = {
    "ambush": Ambush,
    "deep": deep,
    "bytes": lambda: b"\0" * HUGE,
    "text": lambda: "\ud800\0" * 1_000_000,
    "nan": lambda: float("nan"),
    "wide": lambda: 10**5000,
    "generator": lambda: (n for n in range(3)),
    "module": lambda: sys,
    "lock": lambda: __import__("threading").Lock(),
    "nothing": lambda: None,
    "false": lambda: False,
    "holds_itself": holds_itself,
}
CANCELS: dict[str, Callable[[], Any]] = {
    "reason": lambda: Cancel("\0\ud800" * HUGE),
    "odd": lambda: fail(Cancel(Ambush())),  # type: ignore[arg-type]
}
ALL = RAISES | RETURNS | CANCELS


@client.task(kind="misbehave", backoff=3600)
def misbehave(job: Job[Any]) -> Any:
    return ALL[job.args["what"]]()


@client.task(kind="misbehave_async", backoff=3600)
async def misbehave_async(job: Job[Any]) -> Any:
    await asyncio.sleep(0)
    return ALL[job.args["what"]]()


def digest(args: Any) -> str:
    """Tell args from all others, a float from an integer and 0.0 from -0.0 too."""
    return hashlib.sha256(repr(args).encode()).hexdigest()


@client.task(kind="echo", max_attempts=1)
def echo(job: Job[Any]) -> None:
    """Complete only if all that came is what was sent, digit by digit."""
    assert digest(job.args) == job.metadata["sent"], f"got {job.args!r}"
    assert list(job.tags) == job.metadata["tags"], job.tags


@client.task(kind="postpone", max_attempts=3)
def postpone(job: Job[Any]) -> Any:
    return Snooze(0) if job.snoozes < job.args["times"] else None


for _name in ODD_NAMES:

    @client.task(kind=f"k{_name}"[:200], queue=_name)
    def odd(job: Job[Any]) -> None:
        pass

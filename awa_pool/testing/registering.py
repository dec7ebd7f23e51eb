"""Callbacks and completions of handlers that a test works in its own process, through the client's own connections."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, TypeVar

import orjson

from awa_pool.client import AsyncClient, Client
from awa_pool.errors import LeaseLost
from awa_pool.messages import AttemptLeased, CallbackRegistered, RegisterCallback
from awa_pool.store.callbacks import Registered as Row
from awa_pool.store.callbacks import register_callbacks
from awa_pool.store.leases import lease_attempts
from awa_pool.store.statements import Call
from awa_pool.tokens import Registered, Rules
from awa_pool.worker.attempt import Attempt
from awa_pool.worker.leasing import leasing
from awa_pool.worker.registering import Registrar, Registration
from awa_pool.worker.reporting import identity_of

R = TypeVar("R")
_TRIES = 100
_PAUSE_S = 0.01


class ClientRegistrar(Registrar):
    """Registers through a client, as a pool does through its finalizer. Made on the event loop of an AsyncClient."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self._client = client
        self.schema = client.schema
        self._loop = asyncio.get_running_loop() if isinstance(client, AsyncClient) else None

    def register(self, job: Attempt, timeout_s: float, rules: Rules | None = None) -> Registered:
        """Register, and wait until it is committed."""
        message = _message_of(job, timeout_s, rules or {})
        for _ in range(_TRIES):
            if (row := self._ask(_call_of(message))).status != "busy":
                break
            time.sleep(_PAUSE_S)
        return _result(message, row)

    async def register_async(self, job: Attempt, timeout_s: float, rules: Rules | None = None) -> Registered:
        """Register, and wait until it is committed."""
        if self._loop is None:
            return self.register(job, timeout_s, rules)
        return await asyncio.to_thread(self.register, job, timeout_s, rules)

    def lease(self, job: Attempt) -> None:
        """Have an attempt moved to leases, and wait until that is committed."""
        for _ in range(_TRIES):
            if (status := self._ask(lease_attempts([_item_of(job)])).status) != "busy":
                break
            time.sleep(_PAUSE_S)
        request = leasing(lambda: None, 1, _identity(job))
        request.outcome = AttemptLeased(1, status, status)
        request.result()

    async def lease_async(self, job: Attempt) -> None:
        """Have an attempt moved to leases, and await that it is committed."""
        if self._loop is None:
            return self.lease(job)
        await asyncio.to_thread(self.lease, job)

    def close(self) -> None:
        """There is nothing to close."""

    def _ask(self, call: Call[list[R]]) -> R:
        if isinstance(self._client, Client):
            return self._client._run(call, None)[0]
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._client._run(call, None), self._loop).result()[0]


def _message_of(job: Attempt, timeout_s: float, rules: Rules) -> RegisterCallback:
    slot, receipt_id, nonce, index, job_id, run_lease = _identity(job)
    return RegisterCallback(
        1, slot, receipt_id, nonce, index, job_id, run_lease, str(uuid.uuid4()), timeout_s, rules
    )


def _identity(job: Attempt) -> list[int]:
    identity = identity_of(job)
    if identity is None:
        raise LeaseLost("the attempt has ended: callbacks and completions are for handlers that run")
    return identity


def _item_of(job: Attempt) -> dict[str, Any]:
    names = ("slot", "receipt_id", "nonce", "index", "job_id", "run_lease")
    return dict(zip(names, _identity(job), strict=True))


def _call_of(message: RegisterCallback) -> Call[list[Row]]:
    item: dict[str, Any] = {
        "slot": message.slot, "receipt_id": message.receipt_id, "nonce": message.nonce, "index": message.index,
        "job_id": message.job_id, "run_lease": message.run_lease, "timeout_s": message.timeout_s,
        "wanted_id": message.callback_id, "rules": message.rules or None,
    }  # fmt: skip
    return register_callbacks(orjson.dumps([item]))


def _result(message: RegisterCallback, row: Row) -> Registered:
    request = Registration(1, message, lambda: None, 0.0)
    request.outcome = CallbackRegistered(1, row.status, row.number or 0, row.status)
    return request.result()

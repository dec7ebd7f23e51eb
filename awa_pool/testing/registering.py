"""Callbacks and completions of handlers that a test works in its own process, through the client's own connections."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, TypeVar

import orjson

from awa_pool.client import AsyncClient, Client
from awa_pool.errors import LeaseLost
from awa_pool.messages import AttemptLeased, CallbackAnswered, CallbackRegistered, RegisterCallback
from awa_pool.store.callbacks import Registered as Row
from awa_pool.store.callbacks import Waited, expire_callbacks, register_callbacks, wait_for_callbacks
from awa_pool.store.calls import Call
from awa_pool.store.leases import lease_attempts
from awa_pool.tokens import Registered, Rules
from awa_pool.worker.attempt import Attempt
from awa_pool.worker.leasing import leasing
from awa_pool.worker.registering import Registrar, Registration, count_callback, given_up
from awa_pool.worker.reporting import identity_of
from awa_pool.worker.waiting import Wait, wait_for

R = TypeVar("R")
T = TypeVar("T")
_TRIES = 100
_PAUSE_S = 0.01
_LOOK_S = 0.02
_NOT_YET = ("waiting", "busy")
_MOST_EXPIRED = 100


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

    def lease(self, job: Attempt, inside: bool = False) -> None:
        """Have an attempt moved to leases, and wait until that is committed."""
        for _ in range(_TRIES):
            if (status := self._ask(lease_attempts([_item_of(job)])).status) != "busy":
                break
            time.sleep(_PAUSE_S)
        request = leasing(False, lambda: None, 1, _identity(job))
        request.outcome = AttemptLeased(1, status, status)
        request.result()

    async def lease_async(self, job: Attempt, inside: bool = False) -> None:
        """Have an attempt moved to leases, and await that it is committed."""
        if self._loop is None:
            self.lease(job)
        else:
            await asyncio.to_thread(self.lease, job)

    def wait(self, job: Attempt, callback_id: str) -> Any:
        """Ask the database until the callback is answered, or has timed out."""
        wait = _wait_for(job, callback_id)
        try:
            while (row := self._ask(_wait_call_of(job, callback_id))).status in _NOT_YET:
                time.sleep(_LOOK_S)
                self._call(expire_callbacks(_MOST_EXPIRED))
        finally:
            wait.over()
        return _waited(wait, row)

    async def wait_async(self, job: Attempt, callback_id: str) -> Any:
        """Ask the database until the callback is answered, or has timed out; what else runs on the loop goes on."""
        wait = _wait_for(job, callback_id)
        try:
            while True:
                asked = asyncio.create_task(asyncio.to_thread(self._ask, _wait_call_of(job, callback_id)))
                row = await asyncio.shield(asked)
                if row.status not in _NOT_YET:
                    return _waited(wait, row)
                await asyncio.sleep(_LOOK_S)
                await asyncio.to_thread(self._call, expire_callbacks(_MOST_EXPIRED))
        except asyncio.CancelledError:
            await asyncio.wait([asked])  # it cannot be cut short, and may begin the wait
            await asyncio.to_thread(self._ask, _wait_call_of(job, callback_id, gone=True))
            raise
        finally:
            wait.over()

    def close(self) -> None:
        """There is nothing to close."""

    def _ask(self, call: Call[list[R]]) -> R:
        return self._call(call)[0]

    def _call(self, call: Call[T]) -> T:
        if isinstance(self._client, Client):
            return self._client._run(call, None)
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._client._run(call, None), self._loop).result()


def _message_of(job: Attempt, timeout_s: float, rules: Rules) -> RegisterCallback:
    slot, receipt_id, nonce, index, job_id, run_lease = _identity(job)
    return RegisterCallback(
        1,
        slot,
        receipt_id,
        nonce,
        index,
        job_id,
        run_lease,
        str(uuid.uuid4()),
        timeout_s,
        rules,
        given_up(job),
        count_callback(job),
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
        "wanted_id": message.callback_id, "rules": message.rules or None, "over": message.over or None,
    }  # fmt: skip
    return register_callbacks(orjson.dumps([item]))


def _result(message: RegisterCallback, row: Row) -> Registered:
    request = Registration(1, message, lambda: None, 0.0)
    request.outcome = CallbackRegistered(1, row.status, row.number or 0, row.status)
    return request.result()


def _wait_for(job: Attempt, callback_id: str) -> Wait:
    return wait_for(job, callback_id, lambda: None, 1, _identity(job))


def _wait_call_of(job: Attempt, callback_id: str, *, gone: bool = False) -> Call[list[Waited]]:
    return wait_for_callbacks(orjson.dumps([{**_item_of(job), "callback_id": callback_id, "gone": gone}]))


def _waited(wait: Wait, row: Waited) -> Any:
    wait.payload = () if row.payload is None else (row.payload.encode(),)
    wait.outcome = CallbackAnswered(1, row.status, row.number or 0, row.why or "")
    return wait.result()

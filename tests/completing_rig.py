"""An app with a kind whose handler completes its jobs, and is what each test gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from awa_pool import Client
from awa_pool.hooks import JobEvent
from awa_pool.job import Job
from awa_pool.testing import WorkResult, work_one

UNTIL_DONE = 0b0001_0111
"""States of a unique job that gives its key up once it is completed."""


@dataclass
class Ship:
    order: int = 7


@dataclass
class Bill:
    order: int


class App:
    """A client whose handler of `Ship` is what the test gives; `heard` is what its hook was told."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("create table shipped (order_id int primary key)")
        self.client = Client(dsn)
        self.heard: list[str] = []
        self.client.task(Ship, caller_completes=True, max_attempts=3, backoff=3600.0)(never)
        self.client.task(Bill, queue="bills")(never)
        self.client.on_event(Ship)(self._hear)

    def _hear(self, event: JobEvent) -> None:
        self.heard.append(type(event).__name__)

    def ship(self, handler: Callable[[Job[Ship]], Any], **options: Any) -> tuple[int, WorkResult]:
        job_id = self.client.insert(Ship(), **options)
        result = work_one(self.client, Ship, handler)
        assert isinstance(result, WorkResult)
        return job_id, result


def never(job: Job[Any]) -> None:
    raise AssertionError("the test brings its own")


def shipped(app: App) -> list[int]:
    with psycopg.connect(app.dsn) as conn:
        return [order for (order,) in conn.execute("select order_id from shipped order by 1")]


def ships(job: Job[Ship], conn: psycopg.Connection[Any]) -> None:
    with job.completing(conn) as same:
        assert same is conn
        conn.execute("insert into shipped values (%s)", [job.args.order])

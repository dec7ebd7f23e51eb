"""What actors with a store have in common."""

from __future__ import annotations

from typing import cast

import pytest

from awa_pool.dispatcher.database import Database as DispatcherDatabase
from awa_pool.errors import SchemaMismatch, StoreConflict, StoreRefused, StoreUnavailable
from awa_pool.events import StoreLost, Trouble, reason_of, trouble_of
from awa_pool.finalizer.database import Database as FinalizerDatabase
from awa_pool.store.threads import StoreLost as ConnectionLost
from awa_pool.store.threads import StoreThread


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (StoreUnavailable("gone"), Trouble.AWAY),
        (SchemaMismatch("another"), Trouble.AWAY),
        (StoreConflict("no lock", sqlstate="55P03"), Trouble.LOCKED),
        (StoreConflict("deadlock", sqlstate="40P01"), Trouble.CONFLICT),
        (StoreRefused("no rights", sqlstate="42501"), Trouble.AWAY),
        (StoreRefused("bad value", sqlstate="22003"), Trouble.REFUSED),
        (ValueError("ours"), Trouble.REFUSED),
    ],
)
def test_each_failure_is_one_kind_of_trouble(error: Exception, trouble: Trouble) -> None:
    assert trouble_of(error) is trouble


def test_a_schema_that_will_not_do_is_told_in_full_by_the_supervisor_only() -> None:
    error = SchemaMismatch("schema awa_pool has version 1: run `awa-pool migrate`")
    for database in (DispatcherDatabase(cast(StoreThread, None), "r"), FinalizerDatabase):
        lost = database.event(ConnectionLost("store", error))
        assert isinstance(lost, StoreLost) and "migrate" not in lost.error and "supervisor" in lost.error
    assert reason_of(StoreUnavailable("no route")) == "no route"

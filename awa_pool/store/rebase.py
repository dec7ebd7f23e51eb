"""After a restore or a logical copy: look at what a rebase would do, and do it.

These are the two questions that may be asked of a schema of another cluster.
"""

from __future__ import annotations

from awa_pool.errors import SchemaMismatch
from awa_pool.sqlfiles import SCHEMA_VERSION

from . import housekeeping
from . import statements as do
from .connection import connect, refuse_mismatch, refuse_settings
from .housekeeping import RebasePlan
from .migrate import migrate
from .statements import SchemaFacts
from .store import Store


def plan(dsn: str, schema: str = "awa_pool") -> RebasePlan:
    """Say what a rebase would do; changes nothing.

    Errors: SchemaMismatch when the schema is missing or of another version; StoreUnavailable.
    """
    store = connect(dsn, schema, "rebase", check=False)
    try:
        refuse_mismatch(_as_if_here(_facts(store)), schema)
        return store.run(housekeeping.rebase_plan())
    finally:
        store.close()


def rebase(dsn: str, schema: str = "awa_pool", *, force: bool = False) -> RebasePlan:
    """Make the schema this cluster's own, in one transaction; an older one is migrated first, in another.

    Calling it again is safe and does nothing. Errors: TransitionRefused while a pool works on it, unless `force`;
    SchemaMismatch, StoreConflict (a table was not to be had in 30 s), StoreUnavailable.
    """
    store = connect(dsn, schema, "rebase", check=False)
    try:
        if _facts(store).version < SCHEMA_VERSION:
            migrate(dsn, schema, any_cluster=True)
        refuse_mismatch(_as_if_here(_facts(store)), schema)
        return store.run(housekeeping.rebase(force))
    finally:
        store.close()


def _facts(store: Store) -> SchemaFacts:
    facts = store.run(do.schema_facts())
    if facts is None:
        raise SchemaMismatch(f"schema {store.schema} is not awa-pool's: there is nothing to rebase")
    refuse_settings(facts)
    return facts


def _as_if_here(facts: SchemaFacts) -> SchemaFacts:
    """Take the schema as this cluster's: its version still counts."""
    return facts._replace(system_identifier=facts.cluster_identifier)

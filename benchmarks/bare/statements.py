"""The text of the bare pipeline's few statements, read from its own files."""

from __future__ import annotations

from pathlib import Path

SCHEMA = (Path(__file__).parent / "schema.sql").read_text()
LOAD = "copy bare.ready (queue, kind, args) from stdin"
CLAIM = "select receipt_id, n, jobs from bare.claim('default', 2::smallint, %s, %s)"
COMPLETE = "select receipt, newly from bare.complete(%s::bigint[], %s::bigint[])"

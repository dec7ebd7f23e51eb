"""A claimed body as text, `[job_id, kind, args, attempt, run_lease, max_attempts, extra | null]`, without reading its args.

PostgreSQL holds JSON that no reader takes (half a surrogate pair, a hundred thousand levels): whose attempt that is has
to be told all the same, or nobody could end it.
"""

from __future__ import annotations

import re

FIELDS = 7
JOB_ID, KIND, RUN_LEASE = 0, 1, 4
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]', re.DOTALL)


def raw_fields(body: bytes) -> list[bytes]:
    """Return the JSON texts of a body's fields, whatever they hold; those of what is no body may be any number."""
    depth, start = 0, 0
    fields: list[bytes] = []
    for token in _TOKEN.finditer(body):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == 1:
                    start = token.end()
            case b"]" | b"}":
                depth -= 1
                if depth == 0:
                    return [*fields, body[start : token.start()].strip()]
            case b"," if depth == 1:
                fields.append(body[start : token.start()].strip())
                start = token.end()
    return fields


def run_lease_of(body: bytes) -> int:
    """Return the run_lease that a claimed body names. Errors: ValueError, IndexError for what is no body."""
    return int(raw_fields(body)[RUN_LEASE])

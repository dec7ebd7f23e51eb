"""A claimed body as text, `[job_id, kind, args, attempt, run_lease, max_attempts, extra | null]`, without reading its args.

PostgreSQL holds JSON that no reader takes (half a surrogate pair, a hundred thousand levels): whose attempt that is has
to be told all the same, or nobody could end it.
"""

from __future__ import annotations

import re

FIELDS = 7
JOB_ID, KIND, ARGS, ATTEMPT, RUN_LEASE, MAX_ATTEMPTS = 0, 1, 2, 3, 4, 5
INT64 = (-(2**63), 2**63 - 1)
_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER = b"0" * 19  # the first integers beyond 64 bits have 19 digits
_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*', re.DOTALL)
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


def attempts_of(body: bytes) -> tuple[int, int]:
    """Return the attempt that a claimed body names and the most that its job has; zeros where it names none."""
    fields = raw_fields(body)
    try:
        return int(fields[ATTEMPT]), int(fields[MAX_ATTEMPTS])
    except (ValueError, IndexError):
        return 0, 0


def has_long_number(text: bytes) -> bool:
    """Say whether JSON text (of one value or of many) shows 19 digits in a row, which may be an integer beyond 64 bits."""
    return _LONG_NUMBER in text.translate(_DIGITS)


def has_wide_integer(text: bytes) -> bool:
    """Say whether JSON text holds an integer beyond 64 bits, signed: readers would turn it into the nearest float."""
    for found in _NUMBER.finditer(text):
        digits = found[0].lstrip(b"-")
        if len(digits) >= 19 and digits.isdigit() and (len(digits) > 19 or not _fits(int(found[0]))):
            return True
    return False


def _fits(value: int) -> bool:
    return INT64[0] <= value <= INT64[1]

"""What a connection that a caller lends for a call must be like. Nothing here imports psycopg: whoever lends one has loaded it."""

from __future__ import annotations

from typing import Any

from .errors import ValidationError


def check_lent(conn: Any) -> None:
    """Refuse a psycopg connection on which nothing of ours would come to a good end, before anything is sent.

    One that is closed is let through: whatever is done on it says so. Errors: ValidationError with path `conn`.
    """
    if conn.closed:
        return
    if conn.info.transaction_status.name == "INERROR":
        raise ValidationError("its transaction has failed: roll it back first", path="conn")
    if conn.info.encoding != "utf-8":  # it would refuse what others put in, or give bytes back
        raise ValidationError(
            f"its client_encoding is {conn.info.parameter_status('client_encoding')}: connect with client_encoding='UTF8', "
            "or run `set client_encoding to 'UTF8'` on it",
            path="conn",
        )

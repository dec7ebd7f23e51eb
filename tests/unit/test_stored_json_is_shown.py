"""What a client shows of JSON that other software stored."""

from __future__ import annotations

import pytest

from awa_pool.store.stored_json import MAX_LEVELS, stored_json


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "text",
    [
        nested(MAX_LEVELS + 1),
        '{"a": ' + nested(200_000) + "}",
        '{"x": 1e999}',
        "[-1e400]",
        "[" + "9" * 5000 + "]",
    ],
)
def test_what_no_reader_holds_is_shown_as_its_text(text: str) -> None:
    """Distilled 18, 19."""
    assert stored_json(text) == text


def test_everything_else_is_shown_as_the_value_it_is() -> None:
    """Distilled 18; B061."""
    assert stored_json(None) is None
    assert stored_json('{"a": 18446744073709551617, "b": 1e16, "c": -0.0}') == {
        "a": 2**64 + 1,
        "b": 1e16,
        "c": -0.0,
    }
    assert stored_json('{"a": "' + "[" * 5000 + '\\""}') == {"a": "[" * 5000 + '"'}
    assert len(stored_json("[" + "[]," * 5000 + "[]]")) == 5001
    assert str(stored_json(nested(MAX_LEVELS))) == nested(MAX_LEVELS)

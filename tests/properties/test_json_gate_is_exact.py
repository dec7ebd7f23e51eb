"""Any value either comes out of the gate as it went in, or is refused; the fast road agrees with the walk."""

from __future__ import annotations

import math

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from awa_pool import validation as gate
from awa_pool.errors import ValidationError

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.integers(-(2**63) - 2, -(2**63) + 2)
    | st.integers(2**63 - 2, 2**63 + 2)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=6)
    | st.sampled_from(["null", "\\u0000", "\0", "\ud800", "1" * 25, "[" * 70])
)
KEYS = st.text(st.characters(codec=None), max_size=3) | st.sampled_from(["awa:x", "null"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def is_exact(value: object) -> bool:
    if isinstance(value, str):
        return "\0" not in value and not any(0xD800 <= ord(c) < 0xE000 for c in value)
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(is_exact(k) and is_exact(v) for k, v in value.items())
    return all(map(is_exact, value))  # type: ignore[call-overload]


@settings(max_examples=400, deadline=None)
@given(VALUES)
def test_a_value_passes_exactly_when_json_holds_it_exactly(value):
    try:
        text = gate.args_json({"x": value})
    except ValidationError as refused:
        assert not is_exact(value)
        assert refused.path.startswith("args.x")
    else:
        assert is_exact(value)
        assert repr(orjson.loads(text)["x"]) == repr(value)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 130))
def test_depth_is_judged_exactly_at_the_limit(levels):
    value: dict[str, object] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    try:
        gate.args_json(value)
    except ValidationError:
        assert levels > gate.MAX_LEVELS
    else:
        assert levels <= gate.MAX_LEVELS

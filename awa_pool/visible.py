"""Text from elsewhere as one harmless line: it must not move a terminal's cursor or look like a line of ours."""

from __future__ import annotations

import unicodedata

_HIDDEN = ("Cc", "Cf", "Zl", "Zp", "Cs")


def visible(text: str, keep: str = "") -> str:
    """Return `text` with control, direction and line characters, but for those in `keep`, spelt as escapes."""
    return text if text.isprintable() else "".join(c if c in keep else _visible(c) for c in text)


def _visible(character: str) -> str:
    if unicodedata.category(character) in _HIDDEN:
        return character.encode("unicode_escape").decode()
    return character

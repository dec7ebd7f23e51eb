"""When a lane greets the dispatcher: until it has been heard, less and less often. Pure."""

from __future__ import annotations

GREET_S = 1.0
GREET_MAX_S = 10.0


class Greeting:
    """A greeting can be lost, and nobody else would miss it: the dispatcher does not know this lane yet."""

    def __init__(self) -> None:
        self._wait_s = GREET_S
        self._due_s: float | None = None
        self.heard = False
        """The dispatcher has said something since the last new greeting."""

    def begin(self) -> None:
        """A greeting goes out, to the first dispatcher or to a new one."""
        self._wait_s, self._due_s, self.heard = GREET_S, None, False

    def due(self, now_s: float) -> bool:
        """Say whether to greet again now; counts as done."""
        if self.heard:
            return False
        if self._due_s is None:
            self._due_s = now_s + self._wait_s
        if now_s < self._due_s:
            return False
        self._wait_s = min(self._wait_s * 2, GREET_MAX_S)
        self._due_s = now_s + self._wait_s
        return True

    def due_s(self) -> float | None:
        """Return when to ask again; None when it has been heard, or was not asked since it began."""
        return None if self.heard else self._due_s

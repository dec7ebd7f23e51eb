"""On PYTHONPATH: every Python process believes that its host's clock is AWA_TEST_CLOCK_S seconds ahead."""

from __future__ import annotations

import datetime
import os
import time

_AHEAD_S = float(os.environ.get("AWA_TEST_CLOCK_S", "0"))
_time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime


class _Shifted(_datetime):  # type: ignore[misc, valid-type]
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return _datetime.now(tz) + datetime.timedelta(seconds=_AHEAD_S)


if _AHEAD_S:
    time.time = lambda: _time() + _AHEAD_S
    time.time_ns = lambda: _time_ns() + int(_AHEAD_S * 1e9)
    datetime.datetime = _Shifted  # type: ignore[misc]

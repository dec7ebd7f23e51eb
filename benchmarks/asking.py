"""The pipe in which handlers say that they have registered a callback: whole records, from any process and thread."""

from __future__ import annotations

import os
import struct
import uuid
from typing import NamedTuple

_RECORD = struct.Struct("=qq16s")
_NOBODY = bytes(16)


class Asked(NamedTuple):
    """Handler number `i` has registered a callback; `resumed_ns`: when it went on with the last answer, 0 for the first."""

    i: int
    resumed_ns: int
    callback_id: str


class Line:
    """The handlers' end."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY)

    def say(self, i: int, resumed_ns: int, callback_id: str) -> None:
        """Write one record; its size makes that one step for the kernel."""
        os.write(self._file, _RECORD.pack(i, resumed_ns, uuid.UUID(callback_id).bytes))


class Ear:
    """The benchmark's end, which may have several readers: who reads a record has it alone."""

    def __init__(self, path: str) -> None:
        os.mkfifo(path)
        self._file = os.open(path, os.O_RDWR)  # so that reading waits where nobody has opened it yet

    def hear(self) -> Asked | None:
        """Wait for the next record; None: another reader of the benchmark is to stop."""
        i, resumed_ns, name = _RECORD.unpack(os.read(self._file, _RECORD.size))
        return None if name == _NOBODY else Asked(i, resumed_ns, str(uuid.UUID(bytes=name)))

    def dismiss(self) -> None:
        """Let one reader go."""
        os.write(self._file, _RECORD.pack(0, 0, _NOBODY))

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._file)

"""The pool under the storm: its command line, started again whenever it is gone, and blows at its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.ours import ROOT, PoolFailed
from benchmarks.processes import tree

from . import storm
from .ledger import VARIABLE
from .storm import Act, Blow

HEARTBEAT_S, STALE_S = 1, 5
JOBS_PER_WORKER = 400
ORPHANS_GO_S = 5.0
STOP_DEADLINE_S = 60.0


class Host:
    """One host's pool; a supervisor that dies is followed by another at once, as a service manager would do."""

    def __init__(self, dsn: str, workers: int, folder: Path, faults: str) -> None:
        self.restarts = 0
        self.missed = 0
        self.orphans = 0
        """Processes that were left five seconds after their supervisor was killed."""
        self.log_path = folder / "log"
        self._paused: list[tuple[float, int]] = []
        self._wills: list[tuple[float, list[int]]] = []
        self._command = [
            str(Path(sys.executable).parent / "awa-pool"), "benchmarks.chaos.app:client", "--workers", str(workers),
            "--concurrency", "8", "--heartbeat", f"{HEARTBEAT_S}s", "--stale-after", f"{STALE_S}s",
            "--max-jobs-per-worker", str(JOBS_PER_WORKER),
        ]  # fmt: skip
        self._environ = {
            **os.environ, "AWA_POOL_DSN": dsn, "AWA_POOL_FAULTS": faults, "PYTHONPATH": str(ROOT), VARIABLE: str(folder / "ledger"),
        }  # fmt: skip
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                self._command, env=self._environ, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def strike(self, blow: Blow) -> None:
        """Carry out a blow; one at a process that is not there is counted as missed."""
        pid = self._process.pid if blow.role == storm.SUPERVISOR else self._find(blow.role, blow.number)
        self.say(
            f"{blow.act}: {blow.role} {blow.number or ''} {'is not there' if pid is None else f'process {pid}'}"
        )
        if pid is None:
            self.missed += 1
            return
        if blow.role == storm.SUPERVISOR and blow.act is Act.KILL:
            self._wills.append((time.monotonic() + ORPHANS_GO_S, tree(pid)))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if blow.act is Act.KILL else signal.SIGSTOP)
        if blow.act is Act.PAUSE:
            self._paused.append((time.monotonic() + storm.CONTINUE_AFTER_S, pid))

    def say(self, text: str) -> None:
        """Put a line into the pool's log."""
        with self.log_path.open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} ------- storm: {text}\n")

    def tend(self) -> None:
        """Continue what was paused, start again what has ended, count who outlived a killed supervisor."""
        now_s = time.monotonic()
        for due_s, pid in list(self._paused):
            if due_s <= now_s:
                self._paused.remove((due_s, pid))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        for due_s, pids in list(self._wills):
            if due_s <= now_s:
                self._wills.remove((due_s, pids))
                left = [pid for pid in pids if _lives(pid)]
                self.orphans += len(left)
                if left:
                    self.say(f"left of a killed supervisor: {[(pid, _title(pid)) for pid in left]}")
        if self._process.poll() is not None:
            self.restarts += 1
            self.say(f"the supervisor ended with status {self._process.returncode}: starting another")
            self._process = self._start()

    def close(self) -> None:
        """End the pool as Ctrl-C would. Errors: PoolFailed when it does not end, or not well."""
        while self._paused or self._wills:
            self.tend()
            time.sleep(0.1)
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise PoolFailed(f"the pool does not end: {self.log_path}") from None
        if status:
            raise PoolFailed(f"the pool ended with status {status}: {self.log_path}")

    def kill(self) -> None:
        """End the supervisor at once; its children follow by themselves."""
        self._process.kill()
        self._process.wait()

    def _find(self, role: str, number: int) -> int | None:
        wanted = f"awa-pool: {role} {number}" if number else f"awa-pool: {role}"
        for pid in tree(self._process.pid)[1:]:
            if _title(pid).partition(":")[2].partition(":")[0] == wanted.partition(":")[2]:
                return pid
        return None


def _title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    return ""


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" and "python" in os.readlink(f"/proc/{pid}/exe")
    return False

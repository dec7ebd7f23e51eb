"""How worker processes come into being, and how they go with those who started them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from worker_rig import Rig, body, do, path_in, until

from awa_pool.errors import BootFailed, ConfigError
from awa_pool.messages import Fatal
from awa_pool.worker.start import WorkerStarter

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
APP = "from worker_apps import registry\n"
MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeRig]:
    """Make a rig for an app whose module source is given."""
    monkeypatch.syspath_prepend(tmp_path)
    with contextlib.ExitStack() as stack:

        def make(source: str, name: str, method: str = "forkserver", deadline_s: float = 20.0) -> Rig:
            (tmp_path / f"{name}.py").write_text(source)
            starter = WorkerStarter(method, f"{name}:registry", deadline_s)
            stack.callback(starter.close)
            rig = Rig(starter, f"{name}:registry")
            stack.callback(rig.close)
            return rig

        yield make


def is_gone(pid: int) -> bool:
    """A process has ended (a zombie that nobody collects counts)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_both_start_methods_give_working_workers(make_rig: MakeRig, method: str) -> None:
    rig = make_rig(APP, f"plain_{method}", method)
    worker = rig.start()
    assert set(rig.run(worker, [body(1, "noop", {"n": 1}), do(2, "own pool")]).values()) == {"completed"}
    assert rig.starter.method == method
    assert rig.stop(worker) == 0


@LINUX
@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("threaded", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n", "1 thread"),
        ("socketed", "import socket\nkept = socket.socket()\n", "1 socket"),
    ],
)  # fmt: skip
def test_an_app_that_cannot_be_forked_safely_is_spawned_with_one_warning(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture, name: str, source: str, why: str
) -> None:
    rig = make_rig(source + APP, name)
    with caplog.at_level(logging.WARNING):
        workers = [rig.start(), rig.start()]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert why in warning and name in warning
    assert rig.starter.method == "spawn"
    assert set(rig.run(workers[1], [body(1, "noop", {})]).values()) == {"completed"}


def test_an_import_that_ends_or_blocks_the_fork_server_falls_back_to_spawn(make_rig: MakeRig) -> None:
    ends = "import os, sys\nif 'forkserver' in sys.modules['multiprocess.process'].current_process().name: os._exit(7)\n"
    rig = make_rig(ends + APP, "ends_it")
    assert set(rig.run(rig.start(), [body(1, "noop", {})]).values()) == {"completed"}
    assert rig.starter.method == "spawn"
    blocks = ends.replace("os._exit(7)", "import time; time.sleep(60)")
    rig = make_rig(blocks + APP, "blocks_it", deadline_s=1.5)
    assert set(rig.run(rig.start(), [body(1, "noop", {})]).values()) == {"completed"}
    assert rig.starter.method == "spawn"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import no_such_module_anywhere\n", "no_such_module_anywhere"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("raise SystemExit('not today')\n", "not today"),
        (
            "class Odd(BaseException): ...\nraise Odd('neither exit nor error')\n",
            "Odd: neither exit nor error",
        ),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("class Mute(Exception):\n    def __str__(self): raise OSError\nraise Mute\n", "Mute"),
        ("registry = 5\n", "not an awa_pool.Client"),
        ("from awa_pool.worker.guard import check_may_run\ncheck_may_run()\n", '__name__ == "__main__"'),
    ],
)
def test_an_app_that_cannot_be_imported_is_reported_with_module_and_error(
    make_rig: MakeRig, method: str, source: str, error: str
) -> None:
    rig = make_rig(source, "broken_app", method)
    worker = rig.launch()
    fatal = until(lambda: worker.said(Fatal), "the report")
    assert "broken_app" in fatal.reason and error in fatal.reason
    assert (rig.starter.preload_error is not None) == (method == "forkserver")
    until(lambda: worker.process.exitcode is not None, "the end")
    assert worker.process.exitcode == 1


def test_an_unknown_start_method_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'fork' is none of forkserver, spawn"):
        WorkerStarter("fork")


@LINUX
def test_workers_die_with_their_fork_server_and_the_next_start_makes_another(make_rig: MakeRig) -> None:
    rig = make_rig(APP, "orphans")
    first, second = rig.start(), rig.start()
    server = rig.starter._server.pid
    os.kill(server, signal.SIGKILL)
    until(lambda: first.process.exitcode is not None and second.process.exitcode is not None, "their end")
    assert first.process.exitcode == second.process.exitcode == -signal.SIGKILL
    until(lambda: first.process.pid and is_gone(first.process.pid), "the process to go")
    assert set(rig.run(rig.start(), [body(1, "noop", {})]).values()) == {"completed"}
    assert rig.starter._server.pid != server


@LINUX
def test_a_killed_worker_leaves_its_siblings_alone_and_is_replaced(make_rig: MakeRig) -> None:
    rig = make_rig(APP, "siblings")
    victim, sibling = rig.start(), rig.start()
    victim.process.kill()
    victim.process.join(20)
    assert victim.process.exitcode == -signal.SIGKILL
    assert set(rig.run(sibling, [body(1, "noop", {})]).values()) == {"completed"}
    assert set(rig.run(rig.start(), [body(1, "noop", {})]).values()) == {"completed"}


@LINUX
def test_too_few_descriptors_refuse_one_start_and_harm_nobody(make_rig: MakeRig) -> None:
    rig = make_rig(APP, "narrow")
    first = rig.start()
    server = rig.starter._server.pid
    before = resource.prlimit(server, resource.RLIMIT_NOFILE)
    used = set(os.listdir(f"/proc/{server}/fd"))
    free = [number for number in range(256) if str(number) not in used]
    for limit in free[:4]:  # cut short at each of the first descriptors that a start takes
        until(lambda: set(os.listdir(f"/proc/{server}/fd")) == used, "the last start to be cleared away")
        resource.prlimit(server, resource.RLIMIT_NOFILE, (limit, before[1]))
        with pytest.raises(BootFailed, match="worker 1 cannot be started: .*open files"):
            rig.starter.start(1)
    resource.prlimit(server, resource.RLIMIT_NOFILE, before)
    assert set(rig.run(first, [body(1, "noop", {})]).values()) == {"completed"}
    assert set(rig.run(rig.start(), [body(1, "noop", {})]).values()) == {"completed"}
    assert rig.starter._server.pid == server


@LINUX
def test_a_worker_keeps_no_end_of_another_workers_pipes(make_rig: MakeRig) -> None:
    rig = make_rig(APP, "ends")
    first, second = rig.start(), rig.start()
    first.pipe.close()
    until(lambda: first.process.exitcode is not None, "the first to see the end of its pipe")
    assert second.process.exitcode is None


@LINUX
def test_private_memory_before_user_code_is_at_most_8_mib(make_rig: MakeRig) -> None:
    rig = make_rig(APP, "light")
    worker = rig.start()
    text = Path(f"/proc/{worker.process.pid}/smaps_rollup").read_text()
    private_kib = sum(int(kib) for kib in re.findall(r"Private_(?:Clean|Dirty):\s+(\d+)", text))
    assert private_kib <= 8 * 1024


@LINUX
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_die_with_the_supervisor_even_while_a_handler_holds_the_interpreter(
    tmp_path: Path, method: str
) -> None:
    script = f"""
import time
from worker_rig import Rig, do, until
from awa_pool.worker.start import WorkerStarter
if __name__ == "__main__":
    rig = Rig(WorkerStarter({method!r}, "worker_apps:registry"), "worker_apps:registry")
    worker = rig.start()
    rig.hand(worker, [do(1, "hold the interpreter", {path_in(tmp_path, "held")!r}, 60)])
    print(worker.process.pid, flush=True)
    time.sleep(60)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment()
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(lambda: (tmp_path / "held").exists(), "the handler")
        parent.kill()
    until(lambda: is_gone(pid), "the worker to go")


def test_handlers_of_a_script_travel_by_value(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
from dataclasses import dataclass
from awa_pool.registry import Registry
from awa_pool.worker.app import pack_app
from awa_pool.worker.start import WorkerStarter
from worker_rig import Rig, body
print("imported as", __name__, flush=True)
LIMIT = 5
registry = Registry()
@dataclass
class Add:
    a: int
    def total(self): return self.a + LIMIT
def helper(job): return job.args.total()
def add(job):
    if helper(job) != 7:
        raise ValueError(job.args)
registry.add(Add, add)
if __name__ == "__main__":
    rig = Rig(WorkerStarter("forkserver"), None)
    worker = rig.start(app_blob=pack_app(registry))
    print(rig.run(worker, [body(1, "add", {"a": 2}), body(2, "add", {"a": 3})]))
    rig.close()
    rig.starter.close()
""")
    done = subprocess.run(
        [sys.executable, str(script)],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    first, ended = done.stdout.splitlines()
    assert first == "imported as __main__"
    assert ended.startswith("{0: 'completed', 1: [1, 2, 1, 'add', 'retry'")


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        ("run()", True),
        ("if True:\n    run()", True),
        ('if __name__ == "__main__":\n    run()', False),
        ("def main():\n    run()\n\nif '__main__' == __name__:\n    main()", False),
    ],
)
def test_a_pool_started_at_the_top_level_of_a_script_is_refused_at_once(
    tmp_path: Path, call: str, refused: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"from awa_pool.worker.guard import check_may_run as run\n{call}\nprint('ran')\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert (done.returncode != 0) == refused
    assert ('if __name__ == "__main__":' in done.stderr and "script.py, line" in done.stderr) == refused
    assert (done.stdout == "ran\n") == (not refused)


def test_importing_a_worker_loads_no_database_driver_and_no_command_line() -> None:
    script = (
        "import sys, awa_pool.worker.main, awa_pool.worker.forkserver\n"
        "print({name.split('.')[0] for name in sys.modules}"
        " & {'psycopg', 'psycopg_pool', 'typer', 'click', 'rich', 'prometheus_client', 'pydantic', 'msgspec'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout == "set()\n"


def environment() -> dict[str, str]:
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}


@LINUX
def test_the_process_title_names_a_kind_that_takes_long(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig(APP, "titled")
    worker = rig.start()

    def title() -> str:
        return Path(f"/proc/{worker.process.pid}/cmdline").read_text().strip("\0")

    for gate, expected in (("first", "awa-pool: worker 0"), ("second", "awa-pool: worker 0: do")):
        path = path_in(tmp_path, gate)
        receipt_id = rig.hand(worker, [do(1, "wait for file", path)])
        until(lambda path=path: os.path.exists(path + ".started"), "the handler")  # type: ignore[misc]
        assert title() == expected
        until(
            lambda: time.monotonic() - worker.page().running[0].started_s > 0.06, "the handler to take long"
        )
        open(path, "w").close()
        rig.until(lambda receipt_id=receipt_id: rig.ended(receipt_id), "its end")  # type: ignore[misc]
    until(lambda: title() == "awa-pool: worker 0", "the title of an idle worker")


def test_what_handlers_print_and_log_comes_out_tagged(
    make_rig: MakeRig, capfd: pytest.CaptureFixture[str]
) -> None:
    rig = make_rig(APP, "talking", "spawn")
    worker = rig.start()
    rig.run(worker, [do(41, "say"), do(42, "exit text"), body(43, "noop", {})])
    assert rig.stop(worker) == 0
    out, err = capfd.readouterr()
    assert "[do 41 attempt 1] printed line\n[do 41 attempt 1] no line end\n" in out
    assert re.search(r"^\[do 41 attempt 1\] .* WARNING worker 0: logged line$", err, re.MULTILINE)

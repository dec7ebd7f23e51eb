"""Whether of all that can end a wait for a callback exactly one wins, and everybody else is told."""

from __future__ import annotations

import contextlib
import queue
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import psycopg

from awa_pool import Client
from awa_pool.store.connection import connect
from benchmarks import ours
from benchmarks.races import ledger as ledgers
from benchmarks.races import rescue
from benchmarks.races.app import QUEUE, Bout, BoutBlocking
from benchmarks.races.arena import Arena, Told
from benchmarks.races.judge import JUDGES, End, Seen, seen
from benchmarks.races.ledger import HANDLER, Pen
from benchmarks.races.referee import Handicap, Referee, Sides
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database
from benchmarks.sqltext import text

REFEREES = 6
OUTSTANDING = 24
TIMEOUT_S = 0.15
PAUSE_S = 0.004
STANDS_STILL_S = 30.0
EXAMPLES = 10
CASES = {
    "timeout": "resume against timeout",
    "entry": "resume against the entry into the wait",
    "return": "complete against the handler's return",
    "two": "two answers at once",
    "cancel": "cancel against resume",
    "rescue": "rescue against resume",
}
Judge = Callable[[Seen, End], tuple[str, str | None]]


def _numbers(race: str, rounds: int) -> range:
    first = list(CASES).index(race) * 1_000_000
    return range(first, first + rounds)


def _bouts(race: str, rounds: int) -> list[Bout]:
    forms = (Bout, BoutBlocking)
    timeout_s = TIMEOUT_S if race == "timeout" else 3600.0
    pause_s = PAUSE_S if race == "return" else 0.0
    return [forms[n % 2](n, timeout_s, pause_s, race != "return") for n in _numbers(race, rounds)]


def hold(plan: Plan, race: str, dsn: str, arena: Arena) -> None:
    """Hold all bouts of a race with a real pool, and wait until each of their jobs has ended and each handler has spoken."""
    rng = Random(plan.seed)
    with contextlib.ExitStack() as stack:
        pen = stack.enter_context(contextlib.closing(Pen(arena.ledger)))
        client = stack.enter_context(contextlib.closing(Client(dsn)))
        store = stack.enter_context(contextlib.closing(connect(dsn, role="race")))
        lock = threading.Lock()

        def expire() -> None:
            with lock:
                store.expire_callbacks(100)

        handicap = Handicap(rng, PAUSE_S if race == "return" else 0.0)
        referee = Referee(race, rng, handicap, pen, TIMEOUT_S, expire)
        heard: queue.SimpleQueue[Told | None] = queue.SimpleQueue()
        free = threading.Semaphore(OUTSTANDING)

        def judge() -> None:
            with contextlib.closing(Sides(dsn)) as sides:
                while (told := heard.get()) is not None:
                    referee.hold(sides, told)
                    free.release()

        def feed() -> None:
            for bout in _bouts(race, plan.rounds):
                free.acquire()
                client.insert(bout, queue=QUEUE, max_attempts=1)

        with ThreadPoolExecutor(REFEREES + 1) as threads:
            running = [threads.submit(judge) for _ in range(REFEREES)] + [threads.submit(feed)]
            try:
                for number in range(plan.rounds):
                    told = arena.await_told(STANDS_STILL_S)
                    if told is None:
                        raise ours.PoolFailed(
                            f"{race}: {number} of {plan.rounds} handlers have registered a callback"
                        )
                    heard.put(told)
            finally:
                for _ in range(REFEREES):
                    heard.put(None)
                free.release(plan.rounds)
        for done in running:
            done.result()
        _await_ends(dsn, arena.ledger, _numbers(race, plan.rounds))


def _await_ends(dsn: str, ledger: Path, numbers: range) -> None:
    """Wait until nothing is left to happen; what is missing at the deadline, the judge finds."""
    until_s = time.monotonic() + STANDS_STILL_S
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.monotonic() < until_s:
            row = conn.execute(text("races_left")).fetchone()
            lines = ledgers.read(ledger)
            if row == (0,) and all(any(who == HANDLER for who, _ in lines.get(n, ())) for n in numbers):
                time.sleep(0.2)  # for what should not come any more
                return
            time.sleep(0.1)


def hold_rescues(plan: Plan, dsn: str, ledger: Path) -> None:
    """The same for rescue, with hosts that are played."""
    rng = Random(plan.seed)
    with contextlib.closing(Pen(ledger)) as pen:
        handicap = Handicap(rng)
        numbers = iter(_numbers("rescue", plan.rounds))
        lock = threading.Lock()

        def play() -> None:
            with contextlib.closing(rescue.Hosts(dsn, handicap, pen)) as hosts:
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    hosts.hold(number)

        with ThreadPoolExecutor(REFEREES) as threads:
            for done in [threads.submit(play) for _ in range(REFEREES)]:
                done.result()


def verdict(dsn: str, ledger: Path, judge: Judge, numbers: range) -> tuple[Mapping[str, int], list[str]]:
    """Judge every bout; returns how often each won, and what is wrong."""
    lines = ledgers.read(ledger)
    with psycopg.connect(dsn) as conn:
        ends = {row[0]: End(*row[1:]) for row in conn.execute(text("races_ends"))}
    wins: Counter[str] = Counter()
    flaws: list[str] = []
    for number in numbers:
        end = ends.get(number)
        winner, flaw = ("", "its job is gone") if end is None else judge(seen(lines.get(number, [])), end)
        wins[winner] += not flaw
        if flaw or not winner:
            flaws.append(f"bout {number}: {flaw}; noted: {lines.get(number)}")
    return wins, flaws


def _report(
    plan: Plan, case: str, wins: Mapping[str, int], flaws: Sequence[str], took_s: float
) -> Iterator[Row]:
    for flaw in flaws[:EXAMPLES]:
        plan.note(flaw)
    told = ", ".join(f"{who} {won}" for who, won in sorted(wins.items()) if won)
    plan.note(f"{case}: {told}; {took_s:.0f} s")
    yield Row("flaws", len(flaws), "bouts", case)
    for who, won in sorted(wins.items()):
        if won:
            yield Row("won", won, "bouts", f"{case}: {who}")


def run(plan: Plan) -> Iterator[Row]:
    """Hold every race: one after the other in one pool, and rescues in a database of their own."""
    folder = Path(tempfile.mkdtemp(prefix="awa-races-"))
    flawed = 0
    with database(plan.server) as dsn:
        ours.migrate(dsn)
        with contextlib.closing(Arena(dsn, plan.workers, folder)) as arena:
            for race, judge in JUDGES.items():
                began_s = time.monotonic()
                hold(plan, race, dsn, arena)
                wins, flaws = verdict(dsn, arena.ledger, judge, _numbers(race, plan.rounds))
                flawed += len(flaws)
                yield from _report(plan, CASES[race], wins, flaws, time.monotonic() - began_s)
    with database(plan.server) as dsn:
        ours.migrate(dsn)
        began_s = time.monotonic()
        hold_rescues(plan, dsn, folder / "rescues")
        wins, flaws = verdict(dsn, folder / "rescues", rescue.judge, _numbers("rescue", plan.rounds))
        yield from _report(plan, CASES["rescue"], wins, flaws, time.monotonic() - began_s)
    if flawed + len(flaws):
        plan.note(f"log and ledger are in {folder}")
    else:
        shutil.rmtree(folder)


BENCHMARK = Benchmark(
    name="races",
    method=(
        "as many bouts as `--rounds` of each race: resume against timeout, against the entry into the wait, complete against "
        "the handler's return, two answers at once, cancel against resume, each with handlers, async and plain in turn, that wait in "
        "a real pool, and rescue against resume with hosts that are played. Both sides have connections of their own and start "
        "together, but for an offset that grows for who wins, so that both win about as often. A ledger that handlers and sides "
        "append to and what the database says of the job judge: a bout is flawed unless exactly one has won, all others were told "
        "so, the handler saw what fits, its follow-up is there if its own end counted and else not, and the job ended once. `won` says how "
        "often who did; where both a resume and a cancel or rescue were accepted, one after the other, it says both"
    ),
    run=run,
    workers=2,
    rounds=1000,
)

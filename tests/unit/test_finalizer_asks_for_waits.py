"""The finalizer's table of handlers that wait for callbacks: when it asks, and what it tells."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from awa_pool.events import Note, Tick, Trouble
from awa_pool.finalizer.core import NAP_BESIDE_WAITS_S, Finalizer
from awa_pool.finalizer.events import Event, Heard, Send, Settings, WaitForCallbacks, WaitsNotRead, WaitsRead
from awa_pool.finalizer.retry import GATHER_MOST_S, GATHER_S
from awa_pool.finalizer.waits import FORGOTTEN_S, MOST_ITEMS, POLL_DEAF_S, POLL_S
from awa_pool.messages import (
    AttemptsEnded,
    AwaitCallback,
    CallbackAnswered,
    CallbackNews,
    DispatcherHello,
    ForgetCallback,
    Message,
)
from awa_pool.metrics import Exporter, Figures


@dataclass
class Row:
    item: int
    status: str
    number: int | None = 1
    payload: str | None = None
    why: str | None = None


@dataclass
class Host:
    """A finalizer, a worker and a database that has answers for some callbacks."""

    core: Finalizer = field(default_factory=lambda: Finalizer(Settings("f1")))
    now_s: float = 100.0
    calls: list[WaitForCallbacks] = field(default_factory=list)
    told: list[tuple[CallbackAnswered, tuple[bytes, ...]]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    answers: dict[str, Row] = field(default_factory=dict)
    asked: int = 0

    def step(self, event: Event) -> None:
        for command in self.core.step(event, self.now_s):
            match command:
                case WaitForCallbacks():
                    assert not self.calls, "two calls are under way"
                    self.calls.append(command)
                    self.asked += 1
                case Send(_, CallbackAnswered() as message, payload):
                    self.told.append((message, tuple(payload)))
                case Note():
                    self.notes.append(command)

    def say(self, message: Message, peer: bytes = b"w1-i1-callbacks") -> None:
        self.step(Heard(peer, message))

    def wait(self, request: int, peer: bytes = b"w1-i1-callbacks", callback: str | None = None) -> str:
        callback = callback or str(uuid.UUID(int=request))
        self.say(AwaitCallback(request, 3, request, -request, 0, request * 10, 1, callback), peer)
        return callback

    def answer(self) -> int:
        """Answer the call under way -> how many it asked about."""
        (call,) = self.calls
        self.calls.clear()
        rows = []
        for number, item in enumerate(call.items):
            known = self.answers.get(item["callback_id"], Row(0, "waiting"))
            rows.append(Row(number, known.status, known.number, known.payload, known.why))
        self.step(WaitsRead(rows))
        self.now_s += GATHER_S
        self.step(Tick())
        return len(call.items)

    def hello(self, hears: bool) -> None:
        self.say(DispatcherHello("d1", hears), b"dispatcher-d1")

    def news(self, callback: str, word: str = "resumed") -> None:
        self.say(CallbackNews(callback, word), b"dispatcher-d1")

    def run_down(self, until_s: float) -> list[int]:
        """Let timers run, and answer every call -> the sizes of the calls."""
        sizes = []
        while True:
            if self.calls:
                sizes.append(self.answer())
                continue
            due_s = self.core.next_tick_s()
            if due_s is None or due_s > until_s:
                self.now_s = until_s
                return sizes
            self.now_s = max(self.now_s, due_s)
            before = self.asked
            self.step(Tick())
            assert self.asked > before, "a timer does not run down"


def test_a_wait_begins_at_once_and_its_answer_comes_with_the_payload() -> None:
    host = Host()
    callback = host.wait(1)
    assert host.calls[0].items == [
        {"slot": 3, "receipt_id": 1, "nonce": -1, "index": 0, "job_id": 10, "run_lease": 1, "callback_id": callback}
    ]  # fmt: skip
    host.answers[callback] = Row(0, "answered", 4, '{"a":1}')
    host.answer()
    assert host.told == [(CallbackAnswered(1, "answered", 4), (b'{"a":1}',))]
    assert host.core.waits.figures()["callback_waiting"] == 0 and host.core.next_tick_s() is None


@pytest.mark.parametrize(
    ("row", "told", "end"),
    [
        (Row(0, "refused", None), CallbackAnswered(1, "refused"), "refused"),
        (Row(0, "stale", None, None, "completed"), CallbackAnswered(1, "stale", 0, "completed"), "completed"),
        (Row(0, "stale", None, None, "expired"), CallbackAnswered(1, "stale", 0, "expired"), "expired"),
        (Row(0, "stale", None, None, ""), CallbackAnswered(1, "stale", 0, ""), "lost"),
        (Row(0, "invalid", None), CallbackAnswered(1, "failed", 0, "it cannot read this request"), "error"),
    ],
)
def test_what_ends_a_wait_is_told_without_a_payload_and_counted(
    row: Row, told: CallbackAnswered, end: str
) -> None:
    host = Host()
    callback = host.wait(1)
    host.now_s += 2.5
    host.answers[callback] = row
    host.answer()
    assert host.told == [(told, ())]
    figures = host.core.figures()
    assert figures["callback_waits"] == {end: 1} and figures["callback_wait_seconds"] == 2.5


def test_news_of_a_callback_ask_about_that_one_alone_and_at_once() -> None:
    host = Host()
    host.hello(True)
    callbacks = [host.wait(number) for number in range(1, 6)]
    while host.calls:
        host.answer()
    host.answers[callbacks[2]] = Row(0, "answered", 1, "7")
    host.news(callbacks[2])
    assert [item["callback_id"] for item in host.calls[0].items] == [callbacks[2]]
    host.answer()
    assert [message.request for message, _ in host.told] == [3]
    host.news(callbacks[2])  # nobody waits for it any more
    host.news(str(uuid.uuid4()), "completed")
    assert not host.calls
    assert host.core.figures()["callback_news"] == {"resumed": 2, "completed": 1}


def test_news_that_come_while_the_question_is_under_way_ask_again() -> None:
    host = Host()
    host.hello(True)
    callback = host.wait(1)
    host.news(callback)  # committed after the database looked
    host.answer()
    assert len(host.calls) == 1 and not host.told
    host.answers[callback] = Row(0, "answered", 1, "7")
    host.answer()
    assert len(host.told) == 1


def test_what_comes_while_a_call_is_under_way_joins_the_next_one() -> None:
    host = Host()
    host.hello(True)
    for number in range(1, 2 * MOST_ITEMS):
        host.wait(number)
    sizes = []
    while host.calls:
        sizes.append(host.answer())
    assert sizes == [1, MOST_ITEMS, MOST_ITEMS - 2]


@pytest.mark.parametrize(("hears", "period_s"), [(True, POLL_S), (False, POLL_DEAF_S)])
def test_all_waits_are_asked_about_in_batches_often_or_seldom(hears: bool, period_s: float) -> None:
    host = Host()
    host.hello(hears)
    for number in range(1, 1001):
        host.wait(number)
    while host.calls:
        host.answer()
    sizes = host.run_down(host.now_s + 10 * period_s)
    assert sizes == [MOST_ITEMS, MOST_ITEMS] * (len(sizes) // 2) and 18 <= len(sizes) <= 22


def test_without_any_dispatcher_waits_are_polled_for() -> None:
    host = Host()
    host.wait(1)
    host.answer()
    due_s = host.core.next_tick_s()
    assert due_s is not None and due_s <= host.now_s + POLL_DEAF_S


def test_a_change_of_hearing_asks_about_everything_at_once() -> None:
    host = Host()
    host.wait(1)
    host.answer()
    for hears in (True, False, True):
        host.hello(hears)
        assert len(host.calls) == 1
        host.answer()
    host.hello(True)  # said again: no news
    assert not host.calls


def test_waits_that_come_on_each_others_heels_share_a_call_however_long_one_takes() -> None:
    host = Host()
    host.hello(True)
    host.wait(1)
    assert host.core.deaf_until_s() == host.now_s + GATHER_S  # what comes would only wait for the next call
    for took_s, gathers_s in ((0.001, GATHER_S - 0.001), (0.012, 0.012), (3.0, GATHER_MOST_S)):
        asked, (call,) = host.asked, host.calls
        host.calls.clear()
        host.now_s += took_s
        host.step(WaitsRead([Row(number, "waiting") for number in range(len(call.items))]))
        for number in range(10):
            host.wait(100 * asked + number)
        assert not host.calls and host.core.next_tick_s() == pytest.approx(host.now_s + gathers_s)
        host.now_s += gathers_s + 1e-6
        host.step(Tick())
        assert [len(call.items) for call in host.calls] == [10]


def test_a_full_call_gathers_no_more() -> None:
    host = Host()
    host.wait(1)
    for number in range(2, MOST_ITEMS + 2):
        host.wait(number)
    assert [len(call.items) for call in host.calls] == [1]
    host.calls.clear()
    host.step(WaitsRead([Row(0, "waiting")]))
    assert [len(call.items) for call in host.calls] == [MOST_ITEMS]


def test_a_wait_said_again_is_one_wait_and_one_not_said_again_is_dropped() -> None:
    host = Host()
    host.hello(True)
    kept, _ = host.wait(1), host.wait(2)
    for _ in range(8):
        host.run_down(host.now_s + FORGOTTEN_S / 6)
        host.wait(1)
    assert host.core.waits.figures()["callback_waiting"] == 1
    host.now_s += GATHER_S  # since all were asked about
    host.news(kept)
    assert [len(call.items) for call in host.calls] == [1]
    host.answers[kept] = Row(0, "answered", 1, "7")
    host.answer()
    assert len(host.told) == 1


def test_a_lost_answer_is_asked_for_and_told_again() -> None:
    host = Host()
    callback = host.wait(1)
    host.answers[callback] = Row(0, "answered", 1, "7")
    for _ in range(3):
        host.answer()
        host.wait(1)
    assert len(host.told) == 3 and len({told for told, _ in host.told}) == 1


def test_who_forgets_is_told_nothing_even_where_the_question_is_under_way() -> None:
    host = Host()
    host.hello(True)
    callback = host.wait(1)
    host.say(ForgetCallback(1))
    host.answers[callback] = Row(0, "answered", 1, "7")
    host.answer()
    (gone,) = host.calls
    assert [(item["callback_id"], item["gone"]) for item in gone.items] == [(callback, True)]
    host.answer()
    host.say(ForgetCallback(1))
    host.news(callback)
    assert not host.told and not host.calls and host.core.next_tick_s() is None


def test_waits_that_were_given_up_are_told_in_one_call_until_the_database_has_heard() -> None:
    host = Host()
    host.hello(True)
    for number in range(1, 9):
        host.wait(number)
    while host.calls:
        host.answer()
    host.wait(9)
    for number in range(1, 9):
        host.say(ForgetCallback(number))
    host.answer()
    assert [len(call.items) for call in host.calls] == [8]
    host.calls.clear()
    host.step(WaitsNotRead(Trouble.AWAY, "gone"))
    host.now_s += 1.0
    host.step(Tick())
    assert [len(call.items) for call in host.calls] == [8]
    host.calls.clear()
    host.step(WaitsRead([Row(0, "busy"), *(Row(number, "left") for number in range(1, 8))]))
    host.now_s += 1.0
    host.step(Tick())
    assert [item["receipt_id"] for item in host.calls[0].items] == [1]
    host.answer()
    assert not host.told and not host.calls and len(host.core.waits) == 1


def test_a_callback_that_is_waited_for_again_is_not_given_up() -> None:
    host = Host()
    host.hello(True)
    callback = host.wait(1)
    host.say(ForgetCallback(1))
    host.wait(2, callback=callback)
    host.answer()
    assert [[item.get("gone", False) for item in call.items] for call in host.calls] == [[False]]
    host.answer()
    assert not host.calls


def test_the_database_is_told_of_a_wait_that_is_said_no_more() -> None:
    host = Host()
    host.hello(True)
    callback = host.wait(1)
    while host.calls:
        host.answer()
    while not (host.calls and host.calls[0].items[0].get("gone")):
        if host.calls:
            host.answer()
        host.now_s = host.core.next_tick_s() or 1e9
        host.step(Tick())
        assert host.now_s < 100.0 + 2 * FORGOTTEN_S
    assert host.calls[0].items[0]["callback_id"] == callback


def test_requests_of_two_workers_with_one_number_are_two_waits() -> None:
    host = Host()
    one, other = str(uuid.uuid4()), str(uuid.uuid4())
    host.wait(1, b"w1-i1-callbacks", one)
    host.wait(1, b"w2-i2-callbacks", other)
    host.say(ForgetCallback(1), b"w2-i2-callbacks")
    host.answers[one] = Row(0, "answered", 1, "7")
    host.answer()
    assert len(host.told) == 1
    assert [[item["callback_id"] for item in call.items] for call in host.calls] == [[other]]


def test_a_wait_that_is_held_by_another_session_is_asked_about_again_in_a_moment() -> None:
    host = Host()
    host.hello(True)
    callback = host.wait(1)
    host.answers[callback] = Row(0, "busy", None)
    host.answer()
    assert not host.calls
    host.answers[callback] = Row(0, "waiting")
    host.run_down(host.now_s + 0.1)
    assert host.asked == 2


@pytest.mark.parametrize("trouble", [Trouble.AWAY, Trouble.LOCKED, Trouble.CONFLICT])
def test_while_the_database_is_away_waits_stay_and_are_asked_about_later(trouble: Trouble) -> None:
    host = Host()
    host.wait(1)
    for _ in range(3):
        host.calls.clear()
        host.step(WaitsNotRead(trouble, "gone"))
        assert not host.calls and not host.told
        due_s = host.core.next_tick_s()
        assert due_s is not None and host.now_s < due_s <= host.now_s + 1
        host.now_s = due_s
        host.step(Tick())
        assert len(host.calls) == 1


def test_what_the_database_refuses_is_found_by_halves_and_told_to_nobody_else() -> None:
    host = Host()
    host.hello(True)
    host.wait(1)
    culprit = host.wait(7)
    for number in range(8, 200):
        host.wait(number)
    host.answer()
    for _ in range(40):
        if not host.calls:
            break
        if any(item["callback_id"] == culprit for item in host.calls[0].items):
            host.calls.clear()
            host.step(WaitsNotRead(Trouble.REFUSED, "no such text"))
        else:
            host.answer()
    assert host.told == [(CallbackAnswered(7, "failed", 0, "no such text"), ())]
    assert host.core.waits.figures()["callback_waiting"] == 193 and not host.calls


@pytest.mark.parametrize(
    "message",
    [
        AwaitCallback(1, -1, 1, 1, 0, 1, 1, "x"),
        AwaitCallback(1, 3, 1 << 70, 1, 0, 1, 1, "x"),
        AwaitCallback(1, 3, 1, 1, 63, 1, 1, "x"),
        CallbackNews("x", "anything"),
    ],
)
def test_what_cannot_be_read_is_noted_and_changes_nothing(message: Any) -> None:
    host = Host()
    host.say(message)
    assert [note.event for note in host.notes] == ["message.malformed"]
    assert not host.calls and host.core.next_tick_s() is None


def test_waits_said_again_do_not_keep_results_from_being_written_at_once() -> None:
    """The first result after a silence is flushed at once: a wait is no result."""
    host = Host()
    host.wait(1)
    host.now_s += 10
    host.wait(1)
    ended = AttemptsEnded("i1", 1, 3, 9, -9, [["k", 1]], [], True)
    commands = host.core.step(Heard(b"w1-i1-sync", ended, ()), host.now_s)
    assert [type(command).__name__ for command in commands] == ["Complete"]


def test_news_do_not_lie_unread_for_long_while_anybody_waits() -> None:
    host = Host()
    host.hello(True)
    for seq in range(1, 4):  # results that gather
        host.now_s += 0.001
        host.say(AttemptsEnded("i1", seq, 3, seq, -seq, [["k", 1]], [], True), b"w1-i1-sync")
    assert (host.core.deaf_until_s() or 0.0) > host.now_s + NAP_BESIDE_WAITS_S
    host.wait(1)
    assert (host.core.deaf_until_s() or 0.0) <= host.now_s + NAP_BESIDE_WAITS_S


def test_the_figures_of_waits_are_exported() -> None:
    host = Host()
    host.hello(True)
    done, open_ = host.wait(1), host.wait(2)
    host.answer()
    host.answer()
    host.now_s = 103.0
    host.answers[done] = Row(0, "answered", 1, "7")
    host.news(done)
    host.news(open_, "completed")
    host.answer()
    figures = Figures()
    figures.take("finalizer", "f1", host.core.figures())
    text = Exporter(figures, list).render()[0].decode()
    for line in (
        'awa_pool_callback_waits_total{end="answered"} 1.0',
        "awa_pool_callback_wait_seconds_total 3.0",
        'awa_pool_callback_news_total{word="resumed"} 1.0',
        'awa_pool_callback_news_total{word="completed"} 1.0',
    ):
        assert line in text.splitlines()

"""Whatever is lost, fails or is replaced, each handler that waits is told what became of its callback, and nothing else."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from awa_pool.events import Tick, Trouble
from awa_pool.finalizer.core import Finalizer
from awa_pool.finalizer.events import Event, Heard, Send, Settings, WaitForCallbacks, WaitsNotRead, WaitsRead
from awa_pool.messages import AwaitCallback, CallbackAnswered, CallbackNews, DispatcherHello, ForgetCallback

ENDS = ("answered", "stale", "refused")


@dataclass
class Row:
    item: int
    status: str
    number: int | None = 1
    payload: str | None = None
    why: str | None = None


@dataclass
class World:
    """Workers that say waits again, a database in which callbacks are answered or end, notices that may be lost."""

    now_s: float = 100.0
    core: Finalizer = field(default_factory=lambda: Finalizer(Settings("f")))
    call: WaitForCallbacks | None = None
    rows: list[Row] | None = None
    ends: dict[str, str] = field(default_factory=dict)
    waiting: dict[int, str] = field(default_factory=dict)
    told: dict[int, CallbackAnswered] = field(default_factory=dict)
    losing: bool = False
    number: int = 0

    def step(self, event: Event) -> None:
        for command in self.core.step(event, self.now_s):
            match command:
                case WaitForCallbacks():
                    assert self.call is None, "two calls are under way"
                    names = [item["callback_id"] for item in command.items]
                    assert len(names) == len(set(names)) > 0
                    self.call, self.rows = command, None
                case Send(_, CallbackAnswered() as message, payload):
                    self._tell(message, [bytes(frame) for frame in payload])

    def _tell(self, message: CallbackAnswered, payload: list[bytes]) -> None:
        callback = self.waiting.get(message.request)
        if callback is None or self.losing:
            return
        assert message.status == self.ends.get(callback), "told what is not so"
        assert payload == ([f'"{callback}"'.encode()] if message.status == "answered" else [])
        del self.waiting[message.request]
        self.told[message.request] = message

    def say(self, request: int) -> None:
        callback = self.waiting[request]
        message = AwaitCallback(request, 3, request, 1, 0, request, 1, callback)
        self.step(Heard(b"w1-i-callbacks", message))

    def begin(self) -> None:
        self.number += 1
        self.waiting[self.number] = str(uuid.UUID(int=self.number))
        self.say(self.number)

    def end(self, pick: int, *, heard: bool) -> None:
        """A callback is answered, or its attempt ends; whoever listens may hear of it."""
        open_ = [callback for callback in self.waiting.values() if callback not in self.ends]
        if open_:
            callback = open_[pick % len(open_)]
            self.ends[callback] = ENDS[pick % 3]
            if heard:
                self.step(Heard(b"dispatcher-d", CallbackNews(callback, "resumed")))

    def look(self) -> None:
        """The database looks at what it was asked, and its answer is on the way."""
        if self.call is not None and self.rows is None:
            self.rows = []
            for number, item in enumerate(self.call.items):
                end = self.ends.get(item["callback_id"], "waiting")
                payload = f'"{item["callback_id"]}"' if end == "answered" else None
                self.rows.append(Row(number, end, 1, payload, "completed" if end == "stale" else None))

    def answer(self, *, busy: int = 0) -> None:
        self.look()
        if self.rows is not None:
            rows, self.call, self.rows = self.rows, None, None
            for row in rows[:busy]:
                row.status, row.payload = "busy", None
            self.step(WaitsRead(rows))

    def fail(self) -> None:
        if self.call is not None:
            self.call = self.rows = None
            self.step(WaitsNotRead(Trouble.AWAY, "gone"))

    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.step(Tick())
        due_s = self.core.next_tick_s()
        assert due_s is None or due_s > self.now_s, "a timer does not run down"

    def replace(self) -> None:
        """The finalizer is a new one; the call of the old one is answered to nobody."""
        self.core, self.call, self.rows = Finalizer(Settings("f2")), None, None

    def settle(self) -> None:
        """Messages come through again; who waits says so now and then."""
        self.losing = False
        for callback in self.waiting.values():
            self.ends.setdefault(callback, "answered")
        for turn in range(400):
            if not self.waiting:
                return
            if turn % 40 == 0:
                for request in list(self.waiting):
                    if request in self.waiting:
                        self.say(request)
            self.answer()
            self.tick(0.25)
        raise AssertionError(f"still waiting: {self.waiting}")


ACTIONS = st.tuples(
    st.sampled_from(
        ["begin"] * 4
        + ["end", "end", "silent", "look", "answer", "answer", "answer", "busy", "fail", "tick", "long"]
        + ["say", "forget", "replace", "hello", "lose", "find"]
    ),
    st.integers(0, 50),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS, max_size=120))
def test_every_wait_is_answered_by_what_became_of_its_callback(script):
    world = World()
    for action, number in script:
        requests = sorted(world.waiting)
        match action:
            case "begin":
                world.begin()
            case "end" | "silent":
                world.end(number, heard=action == "end" and not world.losing)
            case "look":
                world.look()
            case "answer":
                world.answer()
            case "busy":
                world.answer(busy=number)
            case "fail":
                world.fail()
            case "tick" | "long":
                world.tick(0.01 * (1 + number) if action == "tick" else 7.0)
            case "say" if requests:
                world.say(requests[number % len(requests)])
            case "forget" if requests:
                request = requests[number % len(requests)]
                del world.waiting[request]
                world.step(Heard(b"w1-i-callbacks", ForgetCallback(request)))
            case "replace":
                world.replace()
            case "hello":
                world.step(Heard(b"dispatcher-d", DispatcherHello("d", number % 2 == 0)))
            case "lose" | "find":
                world.losing = action == "lose"
    world.settle()
    assert not len(world.core.waits) or not world.waiting

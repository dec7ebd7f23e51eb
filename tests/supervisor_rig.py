"""A supervisor core on a clock of its own, driven by short words."""

from __future__ import annotations

from awa_pool.messages import Drained, Fatal, Message, Ready, Stats, WorkerGone
from awa_pool.supervisor import events as ev
from awa_pool.supervisor.core import Supervisor
from awa_pool.supervisor.patience import Rules
from awa_pool.supervisor.places import Child


class Rig:
    """Feeds events, keeps what was commanded, moves time."""

    def __init__(self, *, facts_known: bool = True, **rules: object) -> None:
        self.core = Supervisor(Rules(**({"workers": 2} | rules)), "t.")  # type: ignore[arg-type]
        self.now_s = 1000.0
        self.commands: list[ev.Command] = []
        self.feed(ev.Began(facts_known))

    def feed(self, event: ev.Event) -> list[ev.Command]:
        """Take one event now; returns what it led to."""
        out = self.core.step(event, self.now_s)
        self.commands += out
        return out

    def wait(self, seconds: float) -> list[ev.Command]:
        """Let time pass in ticks as the core asks for them."""
        out: list[ev.Command] = []
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + max(0.01, min(0.5, self.core.next_due_s(self.now_s))))
            out += self.feed(ev.Tick())
        return out

    def child(self, role: str, number: int = 0) -> Child:
        """Return who sits in that place."""
        found = [p.child for p in self.core.places if p.role == role and p.number == number]
        assert found and found[0] is not None, f"nobody is {role} {number}"
        return found[0]

    def says(self, child: Child, message: Message) -> list[ev.Command]:
        return self.feed(ev.ChildSaid(child.incarnation, message))

    def ready(self, role: str, number: int = 0) -> Child:
        """Let that child say that it is ready."""
        child = self.child(role, number)
        self.says(child, Ready(role, child.incarnation, {"queues": ["default"]}))
        return child

    def all_ready(self) -> None:
        for place in self.core.places:
            self.ready(place.role, place.number)

    def alive(self, *roles: str) -> None:
        """Let actors give their sign of life."""
        for role in roles or ev.ACTORS:
            child = self.core.child_of(role)
            if child is not None:
                self.says(child, Stats(role, child.incarnation, {}))

    def live(self, seconds: float) -> list[ev.Command]:
        """Let time pass while all actors give signs of life."""
        out: list[ev.Command] = []
        for _ in range(int(seconds * 2)):
            out += self.wait(0.5)
            self.alive()
        return out

    def dies(self, child: Child, cause: str = "exited with status 1", **facts: object) -> list[ev.Command]:
        signal = facts.pop("signal", None)
        status = None if signal is not None else facts.pop("status", 1)
        return self.feed(ev.ChildExited(child.incarnation, cause, signal, status, **facts))  # type: ignore[arg-type]

    def drains(self, child: Child) -> list[ev.Command]:
        """Let a child end in order."""
        return self.says(child, Drained(child.role, child.incarnation)) + self.dies(child, "exited", status=0)

    def fatal(self, child: Child, reason: str) -> list[ev.Command]:
        return self.says(child, Fatal(child.role, reason)) + self.dies(child)


def started(commands: list[ev.Command]) -> list[tuple[str, int]]:
    return [(c.role, c.number) for c in commands if isinstance(c, ev.Start)]


def killed(commands: list[ev.Command]) -> list[str]:
    return [c.incarnation for c in commands if isinstance(c, ev.Kill)]


def told(commands: list[ev.Command], kind: type) -> list[str]:
    return [c.incarnation for c in commands if isinstance(c, ev.Tell) and isinstance(c.message, kind)]


def finished(commands: list[ev.Command]) -> list[int]:
    return [c.status for c in commands if isinstance(c, ev.Finish)]


def account(child: Child, receipt: int = 7, begun: int = 0b11, completed: int = 0b01) -> WorkerGone:
    return WorkerGone(
        child.number,
        child.incarnation,
        "killed by signal 9 (SIGKILL)",
        [[receipt, begun, completed]],
        "handler",
    )

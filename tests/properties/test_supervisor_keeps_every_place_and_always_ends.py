from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from supervisor_rig import Rig, account, finished, killed

from awa_pool.messages import Drained, Fatal, Idle, Ready, Worn
from awa_pool.supervisor import events as ev
from awa_pool.supervisor.places import Life

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "ready",
                "dies",
                "killed",
                "worked",
                "fatal",
                "drained",
                "wait",
                "alive",
                "measured",
                "worn",
                "lost",
            ]
        ),
        st.integers(0, 5),
    ),
    max_size=60,
)


def obey(rig: Rig, commands: list[ev.Command]) -> None:
    """Let those who were killed die."""
    for incarnation in killed(commands):
        child = rig.core.child(incarnation)
        if child is not None:
            obey(rig, rig.dies(child, signal=9))


def play(rig: Rig, what: str, which: int) -> None:
    children = rig.core.children()
    if what == "wait":
        obey(rig, rig.live(which))
    elif what == "lost":
        obey(rig, rig.feed(ev.RuntimeLost()))
    elif children:
        child = children[which % len(children)]
        if what == "ready":
            rig.says(child, Ready(child.role, child.incarnation, {}))
        elif what == "alive":
            rig.alive()
        elif what == "measured":
            rig.feed(ev.WorkerMeasured(child.incarnation, 1000, 1 << 40))
        elif what == "worn":
            rig.says(child, Worn(child.incarnation, 1000))
        elif what == "drained":
            obey(rig, rig.says(child, Drained(child.role, child.incarnation)))
        elif what == "fatal":
            obey(rig, rig.says(child, Fatal(child.role, "cannot go on")) + rig.dies(child))
        elif what == "worked":
            obey(rig, rig.dies(child, signal=11, worked=True, account=account(child)))
        else:
            obey(rig, rig.dies(child, **({"signal": 9} if what == "killed" else {})))


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, how=st.sampled_from(["signal", "twice", "idle", "refused"]))
def test_whatever_happens_places_are_refilled_and_the_end_comes(
    steps: list[tuple[str, int]], how: str
) -> None:
    rig = Rig(workers=3, max_rss_bytes=1 << 30, boot_timeout_s=10.0)
    for what, which in steps:
        play(rig, what, which)
        if rig.core.stopping is None:
            for place in rig.core.places:
                assert place.child is not None or place.start_at_s is not None, place
            incarnations = [child.incarnation for child in rig.core.children()]
            assert len(set(incarnations)) == len(incarnations)
    if how == "idle" and (dispatcher := rig.core.child_of("dispatcher")) is not None:
        rig.says(dispatcher, Idle(0))
    elif how == "refused":
        obey(rig, rig.feed(ev.Refused("no such schema")))
    for _ in range(2 if how == "twice" else 1):
        obey(rig, rig.feed(ev.SignalCame(15, "SIGTERM")))
    obey(rig, [c for c in rig.commands if isinstance(c, ev.Kill)])
    end_s = rig.now_s + 60.0
    while not finished(rig.commands) and rig.now_s < end_s:
        obey(rig, rig.wait(0.5))
        for child in rig.core.children():
            if child.life is Life.BOOTING and child.role == "finalizer":
                rig.ready("finalizer")
    assert len(finished(rig.commands)) == 1, rig.core.children()
    assert rig.core.children() == []

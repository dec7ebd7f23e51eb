"""Named messages over local sockets and over the control pipe, in one process."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from awa_pool import wire
from awa_pool.control import ControlPipe
from awa_pool.errors import UnknownMessage, WireError
from awa_pool.messages import AskHolding, Configure, Holding, Ready, Stats, StopNow
from awa_pool.wire import Dealer, Poller, Router, wait_for_mail


@pytest.fixture
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="awa-") as folder:
        yield f"{folder}/s"


def pair(path: str, name: str = "w1") -> tuple[Router, Dealer]:
    router, dealer = Router(path), Dealer(path, name)
    dealer.send(Holding(0, []))
    assert wait_for_mail(router, 5) and router.receive() is not None
    return router, dealer


def close(*ends: Router | Dealer) -> None:
    for end in ends:
        end.close(0)


def test_messages_and_payloads_cross_both_ways(path: str) -> None:
    router, dealer = pair(path)
    assert router.send(b"w1", AskHolding(5), b"payload", b"")
    assert wait_for_mail(dealer, 5)
    assert dealer.receive() == (b"", AskHolding(5), [b"payload", b""])
    assert dealer.send(Holding(5, [[1, 2]]), b"\0")
    assert wait_for_mail(router, 5)
    assert router.receive() == (b"w1", Holding(5, [[1, 2]]), [b"\0"])
    assert router.receive() is None and dealer.receive() is None
    close(router, dealer)


def test_an_unknown_peer_is_an_answer_and_not_silence(path: str) -> None:
    """B044."""
    router, dealer = pair(path)
    assert not router.send(b"nobody", AskHolding(1))
    close(router, dealer)


def test_a_full_queue_is_an_answer_and_not_a_wait(path: str) -> None:
    dealer = Dealer(path, "w1")
    sent = 0
    while dealer.send(AskHolding(1)):
        sent += 1
    assert sent >= 1000
    close(dealer)


def test_a_frame_above_the_cap_is_refused_at_the_sender(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FRAME_CAP_BYTES", 100)
    dealer = Dealer(path, "w1")
    with pytest.raises(WireError, match="101 bytes exceeds the cap of 100"):
        dealer.send(AskHolding(1), b"x" * 101)
    close(dealer)


def test_what_is_malformed_is_counted_and_dropped_alone(path: str, caplog: pytest.LogCaptureFixture) -> None:
    router, dealer = pair(path)
    for frames in ([b"x"], [b"AskHolding", b"nonsense"], [b"Nonsense", b"[]"], [b"AskHolding", b"[true]"]):
        dealer.socket.send_multipart(frames)
    dealer.send(AskHolding(1))
    assert wait_for_mail(router, 5)
    received = None
    while received is None:
        received = router.receive()
    assert received == (b"w1", AskHolding(1), [])
    assert router.malformed == 4 and len(caplog.records) == 4
    close(router, dealer)


def test_a_path_too_long_is_refused_with_path_length_and_limit() -> None:
    long = "/tmp/" + "ü" * 60
    for end in (lambda: Router(long), lambda: Dealer(long, "w1")):
        with pytest.raises(WireError, match=rf"{long}.* is 125 bytes long, the limit is 107"):
            end()


def test_a_stale_socket_is_replaced_and_any_other_file_is_left(path: str) -> None:
    close(Router(path))
    close(Router(path))
    Path(path).unlink(missing_ok=True)
    Path(path).write_text("precious")
    with pytest.raises(WireError, match="is not a socket"):
        Router(path)
    assert Path(path).read_text() == "precious"


def test_a_poller_watches_wires_and_descriptors(path: str) -> None:
    router, dealer = pair(path)
    ours, theirs = control_pair()
    poller = Poller([router, ours])
    assert poller.wait(0) == []
    dealer.send(AskHolding(1))
    assert poller.wait(5) == [router]
    router.receive()
    theirs.send(StopNow("now"))
    assert poller.wait(5) == [ours]
    assert ours.receive() == StopNow("now")
    theirs.close()
    assert poller.wait(5) == [ours]
    poller.remove(ours)
    assert poller.wait(0) == []
    close(router, dealer)
    ours.close()


def control_pair() -> tuple[ControlPipe, ControlPipe]:
    ours, theirs = socket.socketpair()
    return ControlPipe(ours), ControlPipe(theirs)


def test_the_control_pipe_never_blocks_and_loses_only_stats() -> None:
    ours, theirs = control_pair()
    big = Configure({"text": "x" * 300_000})
    for _ in range(5):
        assert ours.send(big)
    assert not ours.send(Stats("worker", "i", {}))
    assert ours.send(StopNow("end"))
    assert not ours.flush()
    received = []
    while len(received) < 6:
        message = theirs.receive()
        received += [message] if message is not None else []
        ours.flush()
    assert received == [big] * 5 + [StopNow("end")]
    ours.close()
    theirs.close()


def test_the_control_pipe_bounds_what_it_keeps() -> None:
    ours, theirs = control_pair()
    with pytest.raises(WireError, match="was not read"):
        for _ in range(100):
            ours.send(Configure({"text": "x" * 1_000_000}))
    ours.close()
    theirs.close()


def test_last_words_are_heard_before_the_end_of_the_pipe() -> None:
    ours, theirs = control_pair()
    theirs.send(Ready("worker", "i", {"kinds": []}))
    theirs.close()
    assert ours.wait(5) == Ready("worker", "i", {"kinds": []})
    assert ours.wait(5) is None and ours.closed
    assert not ours.send(StopNow("too late"))
    ours.close()


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (b"nonsense", WireError),
        (b"[1,2]", WireError),
        (b'["Stop"]', WireError),
        (b'["Stop",[1]]', WireError),
        (b'["Nonsense",[]]', UnknownMessage),
    ],
)
def test_nonsense_on_the_control_pipe_is_an_error(document: bytes, error: type[Exception]) -> None:
    ours, theirs = socket.socketpair()
    pipe = ControlPipe(ours)
    theirs.sendall(len(document).to_bytes(4, "big") + document)
    with pytest.raises(error):
        pipe.wait(5)
    theirs.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(WireError):
        pipe.wait(5)
    theirs.close()
    pipe.close()


def test_a_fork_gets_a_context_of_its_own(path: str) -> None:
    router, dealer = pair(path)
    before = wire._context()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if wire._context() is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    close(router, dealer)

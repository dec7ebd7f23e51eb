"""Lanes (who runs jobs) and stock (jobs claimed and not handed over): credit and chunking."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from awa_pool.messages import RunJobs

from .books import INDEXES, Receipt, bits, lowest
from .pacing import CHUNK_S, FLOOR_S, Pacing

PREFETCH_S = 0.03
"""A second job is put behind one that needs no more than this."""
REFILL_S = 0.15
"""Short jobs: a lane is handed more when no more than this much work is left before it …"""
BUFFER_S = 0.3
"""… and then, in one message, what fills it up to this. At 5 ms a job, handing over one at a time cost more CPU than
claiming and finishing it. Nothing waits behind a buffer: what turns out to be long has the rest recalled."""
MAX_CHUNKS = 16
HAND_BYTES = 1 << 20
"""A chunk with larger bodies holds one job: of 40 MB together the first would start after half a second."""
CAUTION = 0.6
"""Share of the expected time (by the 95th percentile) that a lane's chunks are counted on to last."""


class Piece:
    """A chunk handed to a lane: what is left of it, and what each of its jobs is taken, or known, to need.

    `started`: they waited for a callback, and now go on or wait still.
    """

    __slots__ = ("cost_s", "handed_s", "known", "mask", "receipt", "started")

    def __init__(
        self, receipt: Receipt, mask: int, cost_s: float, handed_s: float, known: bool, started: bool = False
    ) -> None:
        self.started = started
        self.receipt = receipt
        self.known = known
        self.mask = mask
        self.cost_s = cost_s
        self.handed_s = handed_s


class Lane:
    """One lane of a worker, by its peer identity, with the chunks it has been handed, oldest first.

    `waits`: what it says waits for a callback and has given its slot away; `waiting`: of that, what it is known to hold, which
    is no part of its chunks and jobs.
    """

    __slots__ = (
        "blocked_until_s", "capacity", "expected_s", "heard_s", "incarnation", "jobs", "name", "peer", "pieces",
        "recall_s", "resumed", "retired", "waiting", "waits", "worker",
    )  # fmt: skip

    def __init__(self, peer: bytes, worker: int, incarnation: str, name: str, capacity: int) -> None:
        self.peer = peer
        self.worker = worker
        self.incarnation = incarnation
        self.name = name
        self.capacity = capacity
        self.pieces: list[Piece] = []
        self.waits: dict[int, int] = {}
        self.waiting: dict[int, Piece] = {}
        self.jobs = 0
        self.resumed = 0  # of the jobs, what has waited before
        self.expected_s = 0.0
        self.heard_s = 0.0
        self.retired = False
        self.blocked_until_s = 0.0
        self.recall_s: float | None = None

    @property
    def unstarted(self) -> bool:
        """Something stands before it that it cannot have started."""
        return self.jobs > self.capacity and self.jobs > self.resumed

    @property
    def idle_slots(self) -> int:
        """Attempts it could start at once."""
        return 0 if self.retired else max(0, self.capacity - self.jobs)

    def room(self, chunk: int, now_s: float) -> int:
        """How many jobs of a chunk it may be handed now; never negative."""
        if self.retired or now_s < self.blocked_until_s:
            return 0
        if self.capacity > 1:
            ahead = chunk if chunk > 1 and self.recall_s is None else 0
            return max(0, min(self.capacity + ahead - self.jobs, 63))
        if not self.pieces:
            return chunk
        if self.recall_s is not None or len(self.pieces) >= MAX_CHUNKS:
            return 0
        return chunk if self.expected_s <= (PREFETCH_S if self.jobs == 1 else REFILL_S) else 0

    def busy_until_s(self) -> float:
        """Until when it will not run dry, cautiously: what nobody has run yet may be over at once."""
        if self.capacity > 1 or any(not piece.known for piece in self.pieces):
            return self.heard_s
        return self.heard_s + CAUTION * self.expected_s

    def left_s(self, now_s: float) -> float:
        """How much work it has before it, by what is expected and the time since it was heard of."""
        return max(0.0, self.expected_s - max(0.0, now_s - self.heard_s))

    def hand(self, receipt: Receipt, mask: int, cost_s: float, now_s: float, *, known: bool = True) -> None:
        if not self.pieces:
            self.heard_s = now_s
        self.pieces.append(Piece(receipt, mask, cost_s, now_s, known))
        self.jobs += mask.bit_count()
        self.expected_s += cost_s * mask.bit_count()

    def drop(self, receipt_id: int, mask: int) -> int:
        """Forget these attempts of a receipt; returns those that this lane had."""
        had = self._wait_no_more(receipt_id, mask) if self.waits else 0
        emptied = False
        for piece in self.pieces:
            if piece.receipt.receipt_id == receipt_id:
                here = piece.mask & mask
                if here:
                    piece.mask &= ~here
                    had |= here
                    self.jobs -= here.bit_count()
                    if piece.started:
                        self.resumed -= here.bit_count()
                    self.expected_s -= piece.cost_s * here.bit_count()
                    emptied = emptied or not piece.mask
        if emptied:
            self.pieces = [piece for piece in self.pieces if piece.mask]
            if not self.pieces:
                self.expected_s = 0.0
                self.recall_s = None
        return had

    def held(self) -> list[Piece]:
        """All that it holds, what waits included."""
        return [*self.pieces, *self.waiting.values()] if self.waiting else self.pieces

    def wait(self, receipt_id: int, mask: int, now_s: float) -> int:
        """Of these, what stood in chunks waits from now on; returns that."""
        piece = next((p for p in self.pieces if p.receipt.receipt_id == receipt_id and p.mask & mask), None)
        if piece is None:
            return 0
        waits, known = self.waits, self.waiting.get(receipt_id)
        self.waits = {}  # so that what waits already is left alone
        begun = self.drop(receipt_id, mask)
        self.waits = waits
        before = 0 if known is None else known.mask
        self.waiting[receipt_id] = Piece(piece.receipt, before | begun, 0.0, now_s, True, started=True)
        return begun

    def go_on(self, receipt_id: int, mask: int, now_s: float) -> int:
        """Of these, what waited stands among the chunks again; returns that."""
        known = self.waiting.get(receipt_id)
        back = 0 if known is None else known.mask & mask
        if known is None or not back:
            return 0
        known.mask &= ~back
        if not known.mask:
            del self.waiting[receipt_id]
        self.pieces.append(Piece(known.receipt, back, 0.0, now_s, True, started=True))
        self.jobs += back.bit_count()
        self.resumed += back.bit_count()
        return back

    def _wait_no_more(self, receipt_id: int, mask: int) -> int:
        left = self.waits.get(receipt_id, 0) & ~mask
        if left:
            self.waits[receipt_id] = left
        else:
            self.waits.pop(receipt_id, None)
        known = self.waiting.get(receipt_id)
        if known is None:
            return 0
        had = known.mask & mask
        known.mask &= ~had
        if not known.mask:
            del self.waiting[receipt_id]
        return had


class Lanes:
    """All lanes by peer, and which lane name runs which kind."""

    def __init__(self) -> None:
        self.by_peer: dict[bytes, Lane] = {}
        self.name_of_kind: dict[str, str] = {}
        self._names: dict[str, list[Lane]] = {}

    def __iter__(self) -> Iterator[Lane]:
        return iter(list(self.by_peer.values()))

    def get(self, peer: bytes) -> Lane | None:
        return self.by_peer.get(peer)

    def add(self, lane: Lane, kinds: list[str]) -> None:
        self.by_peer[lane.peer] = lane
        self._names.setdefault(lane.name, []).append(lane)
        self.learn(lane.name, kinds)

    def learn(self, name: str, kinds: list[str]) -> None:
        for kind in kinds:
            self.name_of_kind[kind] = name

    def remove(self, lane: Lane) -> None:
        self.by_peer.pop(lane.peer, None)
        self._names[lane.name].remove(lane)

    def named(self, name: str) -> list[Lane]:
        return self._names.get(name, [])

    def for_kind(self, kind: str) -> str:
        """The lane name that runs a kind; one that the app does not know goes to any lane, which refuses it."""
        name = self.name_of_kind.get(kind)
        if name is None:
            name = "sync" if "sync" in self._names else next(iter(self._names), "sync")
        return name

    def of_worker(self, worker: int, incarnation: str) -> list[Lane]:
        return [lane for lane in self if lane.worker == worker and lane.incarnation == incarnation]

    def best(self, name: str, chunk: int, now_s: float) -> tuple[Lane, int] | None:
        """The lane with the least before it that may be handed something, and how many jobs."""
        best: Lane | None = None
        room = 0
        for lane in self._names.get(name, ()):
            if best is None or (lane.expected_s, lane.jobs) < (best.expected_s, best.jobs):
                fits = lane.room(chunk, now_s)
                if fits > 0:
                    best, room = lane, fits
        return None if best is None else (best, room)

    def holder(self, receipt_id: int, mask: int) -> Lane | None:
        """The lane that has these attempts of a receipt."""
        for lane in self.by_peer.values():
            for piece in lane.held():
                if piece.receipt.receipt_id == receipt_id and piece.mask & mask:
                    return lane
        return None


class Segment:
    """Attempts of one kind and receipt that wait to be handed over."""

    __slots__ = ("kind", "mask", "receipt", "since_s")

    def __init__(self, receipt: Receipt, kind: str, mask: int, since_s: float) -> None:
        self.receipt = receipt
        self.kind = kind
        self.mask = mask
        self.since_s = since_s


class Stock:
    """Jobs that wait here, per lane name, in the order in which they were claimed."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self.shelves: dict[str, deque[Segment]] = {}

    def put(self, receipt: Receipt, mask: int, now_s: float, *, first: bool = False) -> None:
        """Shelve attempts of a receipt, at the front if they have waited before."""
        kinds = receipt.kinds
        if kinds.count(kinds[0]) == len(kinds):
            self._shelve(Segment(receipt, kinds[0], mask, now_s), first)
            return
        by_kind: dict[str, int] = {}
        for index in bits(mask):
            by_kind[kinds[index]] = by_kind.get(kinds[index], 0) | 1 << index
        for kind, some in reversed(by_kind.items()) if first else by_kind.items():
            self._shelve(Segment(receipt, kind, some, now_s), first)

    def _shelve(self, segment: Segment, first: bool) -> None:
        shelf = self.shelves.setdefault(self._lanes.for_kind(segment.kind), deque())
        shelf.appendleft(segment) if first else shelf.append(segment)

    def head(self, name: str) -> Segment | None:
        """The first segment that still has something in stock."""
        shelf = self.shelves.get(name)
        while shelf:
            segment = shelf[0]
            segment.mask &= segment.receipt.stock
            if segment.mask:
                return segment
            shelf.popleft()
        return None

    def take(self, name: str, limit: int, pacing: Pacing) -> tuple[Receipt, int, float] | None:
        """Take the next chunk: attempts of one receipt, of several kinds while they fit into the chunk's time.

        Shape: (receipt, mask, mean cost of its jobs in seconds); the bits have left the segments, not yet the books.
        """
        segment = self.head(name)
        if segment is None:
            return None
        receipt, cost_s = segment.receipt, pacing.cost_s(segment.kind)
        taken = self._cut(segment, limit)
        jobs = taken.bit_count()
        spent_s = cost_s * jobs
        while jobs < limit and (more := self.head(name)) is not None and more.receipt is receipt:
            each_s = pacing.cost_s(more.kind)
            fits = min(limit - jobs, int((CHUNK_S - spent_s) / each_s))
            if fits < 1 or receipt.size_bytes > HAND_BYTES:
                break
            some = self._cut(more, fits)
            spent_s, jobs, taken = spent_s + each_s * some.bit_count(), jobs + some.bit_count(), taken | some
        return receipt, taken, max(spent_s / jobs, FLOOR_S)

    @staticmethod
    def _cut(segment: Segment, count: int) -> int:
        taken = segment.receipt.light(lowest(segment.mask, count), HAND_BYTES)
        segment.mask ^= taken
        return taken


def run_jobs(receipt: Receipt, mask: int) -> tuple[RunJobs, bytes]:
    """The message and payload that hand these attempts over."""
    n = len(receipt.job_ids)
    if mask.bit_count() == n:
        indexes, payload = INDEXES[n], "\0".join(receipt.bodies)
    else:
        indexes = bits(mask)
        payload = "\0".join([receipt.bodies[index] for index in indexes])
    message = RunJobs(
        receipt.queue, receipt.priority, receipt.slot, receipt.receipt_id, receipt.nonce, indexes
    )
    return message, payload.encode()

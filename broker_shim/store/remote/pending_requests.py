"""The requests and reads of a remote store that wait for their answers. Pure.

Kept in the order of their numbers: what is sent, sent again and completed is always a run of this
order. A request leaves it once, by DONE, by WELCOME after a lost connection, or because it has
waited for a lost service too long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import (
    MAX_WAITING_READS,
    MAX_WAITING_REQUESTS,
    Refusal,
    Welcome,
    error_of,
)


class ReadWindow:
    """Lets so many questions out at a time; the others wait here, and requests do not behind them.

    Any number may come at once: each session of a client has one.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._out: set[int] = set()
        self._waiting: dict[int, None] = {}

    def enter(self, read: int) -> bool:
        """Add a question; True if it may be sent now."""
        if len(self._out) >= self._size:
            self._waiting[read] = None
            return False
        self._out.add(read)
        return True

    def is_out(self, read: int) -> bool:
        """True if a question was sent, or may be."""
        return read in self._out

    def leave(self, read: int) -> int | None:
        """Remove a question, and return the one that may be sent in its place."""
        self._waiting.pop(read, None)
        if read not in self._out:
            return None
        self._out.remove(read)
        following = next(iter(self._waiting), None)
        if following is not None:
            del self._waiting[following]
            self._out.add(following)
        return following


MAX_READS_OUT = MAX_WAITING_READS // 2
"""Reads, and as many orders, that are sent and not answered."""

Answer = tuple[bool, tuple[Any, ...], StoreError | None]
"""Of a read: if it is the last one, what it brings, or the error instead."""
OnAnswer = Callable[[Answer], None]
Completed = list[tuple[OnComplete, StoreError | None]]


class Waiting(NamedTuple):
    """A request without an answer.

    Attributes:
        request: The number of the request; of one incarnation, they only rise.
        frame: As it is sent, again and again.
        on_complete: Told what came of it.
        refusal: What it fails with whatever the service says: it was refused on this side.
        since_s: When it was made, on the caller's clock.
        outcomes: If the frame is many requests (BATCH, RUN), from `request` on: what came of each,
            as soon as all have their answers. `on_complete` is told only of what all failed with.
    """

    request: int
    frame: bytes
    on_complete: OnComplete
    refusal: StoreError | None
    since_s: float
    outcomes: list[StoreError | None] | None = None

    @property
    def last(self) -> int:
        """The number of the last request of the frame."""
        return self.request if self.outcomes is None else self.request + len(self.outcomes) - 1


class PendingRequests:
    """Requests in the order of their numbers, and what is to be sent. One thread at a time.

    Attributes:
        next_request: The number of the next one.
        waiting_bytes: Of the frames that wait for an answer.
    """

    def __init__(self, window: int = MAX_WAITING_REQUESTS) -> None:
        self.next_request = 1
        self.waiting_bytes = 0
        self._window = window
        self._waiting: deque[Waiting] = deque()
        self._kept: dict[int, dict[int, bytes]] = {}
        self._unsent: deque[tuple[int, bytes]] = deque()  # last request (0: a read) and frame
        self._reads: dict[int, bytes] = {}
        self._questions, self._orders = ReadWindow(MAX_READS_OUT), ReadWindow(MAX_READS_OUT)
        self._instance = ""

    def __len__(self) -> int:
        """The number of frames that wait for an answer."""
        return len(self._waiting)

    def add(self, waiting: Waiting) -> None:
        """Queue the next request to be sent, with its numbers."""
        self.next_request = waiting.last + 1
        self.waiting_bytes += len(waiting.frame)
        self._waiting.append(waiting)
        self._unsent.append((waiting.last, waiting.frame))

    def keep(self, message_id: int, request: int, frame: bytes) -> None:
        """A piece of content: another run of the service needs it again, until `forget`."""
        self._kept.setdefault(message_id, {})[request] = frame

    def forget(self, message_id: int) -> None:
        """Forget the pieces of a message that is enqueued."""
        self._kept.pop(message_id, None)

    def add_read(self, read: int, frame: bytes, *, is_order: bool = False) -> None:
        """Send a read after the requests before it, if not too many are unanswered.

        Orders, which take their time, and other reads do not wait for each other.
        """
        self._reads[read] = frame
        if (self._orders if is_order else self._questions).enter(read):
            self._unsent.append((0, frame))

    def add_word(self, frame: bytes) -> None:
        """Queue a frame that has no answer.

        It is sent once, after the frames that came before it.
        """
        self._unsent.append((0, frame))

    def end_read(self, read: int) -> None:
        """Forget a read that was answered, and send the next one that its window held back."""
        self._reads.pop(read, None)
        for window in (self._questions, self._orders):
            following = window.leave(read)
            if following is not None:
                self._unsent.append((0, self._reads[following]))

    def take(self, max_bytes: int) -> bytes:
        """Take the frames to send next, of about `max_bytes` in all.

        At least one frame, if one may be sent; b"" else.
        """
        frames: list[bytes] = []
        size, unsent = 0, self._unsent
        last = self._waiting[0].request + self._window if self._waiting else 0
        while unsent and size < max_bytes:
            request, frame = unsent[0]
            if request >= last > 0 and request:
                break
            unsent.popleft()
            frames.append(frame)
            size += len(frame)
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def done(self, through: int, refusals: Iterable[Refusal]) -> Completed:
        """Take out the requests up to `through`, which are decided: what completes, in order.

        Of many that came in one frame, and of which a part is decided, nothing completes: they are
        sent again, and the service says again what it refused.
        """
        refused = {request: error_of(name, text) for request, name, text in refusals}
        completed: Completed = []
        waiting = self._waiting
        while waiting and waiting[0].last <= through:
            one = waiting.popleft()
            self.waiting_bytes -= len(one.frame)
            error = one.refusal
            if one.outcomes is None:
                error = error or refused.get(one.request)
            elif refused:
                one.outcomes[:] = map(refused.get, range(one.request, one.last + 1))
            completed.append((one.on_complete, error))
        return completed

    def welcome(self, welcome: Welcome) -> Completed:
        """Sort requests after a new connection: return what completes, send the rest again."""
        completed = self.done(welcome.last_request, welcome.refusals)
        self.next_request = max(self.next_request, welcome.last_request + 1)
        frames = {one.last: one.frame for one in self._waiting}
        if welcome.instance != self._instance:
            for pieces in self._kept.values():
                frames |= pieces
        self._instance = welcome.instance
        self._unsent = deque(sorted(frames.items()))
        for read, frame in self._reads.items():
            if self._questions.is_out(read) or self._orders.is_out(read):
                self._unsent.append((0, frame))
        return completed

    def give_up(self, before_s: float, error: StoreError) -> Completed:
        """Fail what was made before a time; it is not sent again."""
        completed: Completed = []
        while self._waiting and self._waiting[0].since_s <= before_s:
            one = self._waiting.popleft()
            self.waiting_bytes -= len(one.frame)
            completed.append((one.on_complete, one.refusal or error))
        return completed


def answer_of(frame: wire.Frame) -> Answer:
    """Read an ANSWER or FAILED frame as an answer."""
    kind, body = frame
    if kind == wire.FAILED:
        return True, (), wire.error_of(*body[1:])
    return bool(body[1]), body[2:], None


class PendingReads:
    """The reads that wait for their answers, by number. One thread at a time.

    They are told of all answers when the last one is there. For a read whose answers were under way
    when a connection was lost is answered anew, from its begin: what had come of it counts no more.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[OnAnswer, list[Answer]]] = {}
        self._last = 0

    def __len__(self) -> int:
        """The number of reads that wait for an answer."""
        return len(self._waiting)

    def add(self, on_answer: OnAnswer) -> int:
        """Add a read, and return its number."""
        self._last += 1
        self._waiting[self._last] = on_answer, []
        return self._last

    def answered(self, read: int, answer: Answer) -> tuple[OnAnswer, list[Answer]] | None:
        """Keep an answer; after the last, return who is to be told of which, in order."""
        waiting = self._waiting.get(read)
        if waiting is None:
            return None
        waiting[1].append(answer)
        is_last, _body, _error = answer
        return self._waiting.pop(read) if is_last else None

    def begin_anew(self) -> None:
        """Drop partial answers, as all reads are answered from the begin by a new connection."""
        for _on_answer, answers in self._waiting.values():
            answers.clear()

    def end_all(self) -> dict[int, OnAnswer]:
        """Forget all reads, and return who waited for each."""
        ended, self._waiting = self._waiting, {}
        return {read: on_answer for read, (on_answer, _answers) in ended.items()}


def framed(
    pack: Callable[[int, Sequence[Any]], bytes],
    kind: int,
    body: tuple[Any, ...],
    on_unwritable: Callable[[], None] | None,
) -> tuple[int, bytes, StoreError | None]:
    """The type of a request's frame, and the frame; or the refusal of what cannot be one.

    With `on_unwritable`, that is called for a record that cannot be written, and nothing is asked.
    """
    try:
        return kind, pack(kind, body), None
    except InvalidRequest as too_large:
        refusal = too_large
    except (OverflowError, ValueError) as reason:
        if on_unwritable is not None:
            on_unwritable()
            return wire.DO, pack(wire.DO, (body[0], ())), None
        refusal = InvalidRequest(f"a record cannot be written: {reason}")
    return wire.DO, pack(wire.DO, (body[0], ())), refusal

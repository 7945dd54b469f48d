"""The requests of a remote store that wait for their answers, and what is to be sent. Pure.

Kept in the order of their numbers: what is sent, sent again and completed is always a run of this
order. A request leaves it once, by DONE, by WELCOME after a lost connection, or because it has
waited for a lost service too long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.service.protocol import MAX_WAITING_REQUESTS, Refusal, Welcome, error_of

Completed = list[tuple[OnComplete, StoreError | None]]


class Waiting(NamedTuple):
    """A request without an answer.

    Attributes:
        request: The number of the request; of one incarnation, they only rise.
        frame: As it is sent, again and again.
        on_complete: Told what came of it.
        refusal: What it fails with whatever the service says: it was refused on this side.
        since_s: When it was made, on the caller's clock.
    """

    request: int
    frame: bytes
    on_complete: OnComplete
    refusal: StoreError | None
    since_s: float


class PendingRequests:
    """See above. One thread at a time.

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
        self._unsent: deque[tuple[int, bytes]] = deque()  # request (0 for a read) and frame
        self._reads: dict[int, bytes] = {}
        self._instance = ""

    def __len__(self) -> int:
        """How many wait for an answer."""
        return len(self._waiting)

    def add(self, waiting: Waiting) -> None:
        """The next request."""
        self.next_request = waiting.request + 1
        self.waiting_bytes += len(waiting.frame)
        self._waiting.append(waiting)
        self._unsent.append((waiting.request, waiting.frame))

    def keep(self, message_id: int, request: int, frame: bytes) -> None:
        """A piece of content: another run of the service needs it again, until `forget`."""
        self._kept.setdefault(message_id, {})[request] = frame

    def forget(self, message_id: int) -> None:
        """The message is enqueued."""
        self._kept.pop(message_id, None)

    def add_read(self, read: int, frame: bytes) -> None:
        """A read is sent after the requests that came before it."""
        self._reads[read] = frame
        self._unsent.append((0, frame))

    def end_read(self, read: int) -> None:
        """It was answered."""
        self._reads.pop(read, None)

    def take(self, max_bytes: int) -> bytes:
        """What is to be sent next, at least one frame if one may be; b"" else."""
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
        """The service decided all up to `through`; what completes, in order."""
        refused = {request: error_of(name, text) for request, name, text in refusals}
        completed: Completed = []
        waiting = self._waiting
        while waiting and waiting[0].request <= through:
            one = waiting.popleft()
            self.waiting_bytes -= len(one.frame)
            completed.append((one.on_complete, one.refusal or refused.get(one.request)))
        return completed

    def welcome(self, welcome: Welcome) -> Completed:
        """Connected again: what completes, in order; the rest is to be sent again."""
        completed = self.done(welcome.last_request, welcome.refusals)
        self.next_request = max(self.next_request, welcome.last_request + 1)
        frames = {one.request: one.frame for one in self._waiting}
        if welcome.instance != self._instance:
            for pieces in self._kept.values():
                frames |= pieces
        self._instance = welcome.instance
        self._unsent = deque(sorted(frames.items()))
        self._unsent += [(0, frame) for frame in self._reads.values()]
        return completed

    def give_up(self, before_s: float, error: StoreError) -> Completed:
        """Fail what was made before a time; it is not sent again."""
        completed: Completed = []
        while self._waiting and self._waiting[0].since_s <= before_s:
            one = self._waiting.popleft()
            self.waiting_bytes -= len(one.frame)
            completed.append((one.on_complete, one.refusal or error))
        return completed

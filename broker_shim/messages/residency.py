"""Keep wanted content in memory, counted to the byte. One thread; `Hold`s say what is wanted.

Content comes in by a load, which the first interest starts, and is kept as long as anybody is
interested. After that it stays while there is room: what nobody wants any more goes first, that
which was wanted longest ago before the rest (flow to disk: the store has it all the same). What is
wanted is never dropped, so the bytes may exceed the limit by what all interests together hold.
Whoever takes interests bounds that (a link has at most a batch under way).

Invariant: `byte_count` is the sum of header and content of all that is in memory, `wanted_bytes`
of that part of it which somebody wants.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from broker_shim.errors import StoreError
from sparkstore.core.records import MessageHeader


class LoadedMessage(NamedTuple):
    """Header and content of a message, as its store gave them back."""

    header: MessageHeader
    body: bytes


def byte_count_of(contents: Iterable[LoadedMessage]) -> int:
    """Sum the bytes that count against the limit."""
    return sum([len(header.header or b"") + len(body) for header, body in contents])


OnLoaded = Callable[[LoadedMessage | StoreError], None]


class ContentSource(Protocol):
    """Source of content that is not in memory."""

    def now(self, message_ids: Sequence[int]) -> Mapping[int, LoadedMessage]:
        """Content that can be had without waiting, by id; what is missing has to be loaded."""

    def load(self, message_id: int, on_loaded: OnLoaded) -> None:
        """Load content, in the order of the calls; `on_loaded` later, on the caller's thread."""

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """A part of the content, waiting for it; b"" at the end.

        Raises:
            StoreError: It cannot be read.
        """


class Residency:
    """Content of messages in memory, within a limit of bytes.

    Attributes:
        byte_count: In memory now.
        wanted_bytes: Bytes of these that somebody is interested in.
        loads: Loads started so far.
    """

    def __init__(self, limit_bytes: int, source: ContentSource) -> None:
        self._limit_bytes = limit_bytes
        self._source = source
        self._counts: dict[int, int] = {}
        self._here: dict[int, LoadedMessage] = {}
        self._waiting: dict[int, list[OnLoaded]] = {}
        self._idle: OrderedDict[int, LoadedMessage] = OrderedDict()
        self.byte_count = 0
        self.wanted_bytes = 0
        self.loads = 0

    def want(self, message_ids: Sequence[int]) -> None:
        """Load content that one more holder wants, unless it is in memory or on its way."""
        counts, new = self._counts, dict.fromkeys(message_ids, 1)
        if len(new) == len(message_ids) and counts.keys().isdisjoint(new):
            counts.update(new)
        else:
            new = {message_id: 1 for message_id in new if message_id not in counts}
            for message_id in message_ids:
                counts[message_id] = counts.get(message_id, 0) + 1
        idle = self._idle
        again = {i: idle.pop(i) for i in new if i in idle} if idle else {}
        self._here.update(again)
        self.wanted_bytes += byte_count_of(again.values())
        missing = [message_id for message_id in new if message_id not in again]
        if not missing:
            return
        at_hand = self._source.now(missing)
        self._came(at_hand)
        for message_id in missing if len(at_hand) < len(missing) else ():
            if message_id not in at_hand:
                self._load(message_id)

    def unwant(self, message_ids: Iterable[int]) -> None:
        """End one interest in messages.

        After the last one their content goes when room is needed.
        """
        counts, here = self._counts, self._here
        ended: dict[int, LoadedMessage] = {}
        for message_id in message_ids:
            if (left := counts[message_id] - 1) > 0:
                counts[message_id] = left
                continue
            del counts[message_id]
            if (content := here.pop(message_id, None)) is not None:
                ended[message_id] = content
        self.wanted_bytes -= byte_count_of(ended.values())
        self._idle.update(ended)
        if self.byte_count > self._limit_bytes:
            self._make_room()

    def when_here(self, message_id: int, call: OnLoaded) -> None:
        """Call with the content, at once if it is here, or with why it cannot be loaded.

        Somebody must be interested; whoever is no longer, when it comes, is called all the same.
        A load that failed is tried again when it is asked for again.
        """
        content = self._here.get(message_id)
        if content is not None:
            call(content)
            return
        if message_id not in self._waiting:
            self._load(message_id)
        self._waiting[message_id].append(call)

    def wanted_here(self, message_ids: Iterable[int]) -> list[LoadedMessage | None]:
        """Return the content of wanted messages, in their order; None where it is not here yet."""
        return [*map(self._here.get, message_ids)]

    def get(self, message_id: int) -> LoadedMessage | None:
        """Content that is in memory."""
        return self._here.get(message_id) or self._idle.get(message_id)

    def read(self, message_id: int, offset: int, length: int) -> bytes | memoryview:
        """A part of the content, from memory or from where it is; b"" at the end.

        Raises:
            StoreError: It cannot be read.
        """
        content = self.get(message_id)
        if content is not None:
            return memoryview(content.body)[offset : offset + length]
        return self._source.read(message_id, offset, length)

    def forget(self, message_ids: Iterable[int]) -> None:
        """Drop messages that are gone. Content that somebody wants stays as it is."""
        idle = self._idle
        gone = [idle.pop(message_id, None) for message_id in message_ids] if idle else []
        self.byte_count -= byte_count_of(filter(None, gone))

    def _load(self, message_id: int) -> None:
        waiting = self._waiting[message_id] = []

        def loaded(result: LoadedMessage | StoreError) -> None:
            is_last = self._waiting.get(message_id) is waiting
            if is_last:
                del self._waiting[message_id]
            is_missing = message_id in self._counts and message_id not in self._here
            if isinstance(result, LoadedMessage) and is_last and is_missing:
                self._came({message_id: result})
            for call in waiting:
                call(result)

        self.loads += 1
        self._source.load(message_id, loaded)

    def _came(self, contents: Mapping[int, LoadedMessage]) -> None:
        self._here.update(contents)
        byte_count = byte_count_of(contents.values())
        self.byte_count += byte_count
        self.wanted_bytes += byte_count
        if self.byte_count > self._limit_bytes:
            self._make_room()

    def _make_room(self) -> None:
        while self._idle and self.byte_count > self._limit_bytes:
            self.byte_count -= byte_count_of([self._idle.popitem(last=False)[1]])

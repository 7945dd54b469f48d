"""Keep wanted content in memory, counted to the byte. One thread; `Interest`s say what is wanted.

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

    @property
    def byte_count(self) -> int:
        """Return the bytes that count against the limit."""
        return len(self.header.header or b"") + len(self.body)


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


class _Wanted:
    """Content that somebody wants: how many do, and who waits for its load."""

    __slots__ = ("byte_count", "content", "count", "waiting")

    def __init__(self, content: LoadedMessage | None) -> None:
        self.count = 0
        self.content = content
        self.byte_count = 0 if content is None else content.byte_count
        self.waiting: list[OnLoaded] | None = None  # a list while it is being loaded


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
        self._wanted: dict[int, _Wanted] = {}
        self._idle: OrderedDict[int, LoadedMessage] = OrderedDict()
        self.byte_count = 0
        self.wanted_bytes = 0
        self.loads = 0

    def want(self, message_ids: Iterable[int]) -> None:
        """Load content that one more holder wants, unless it is in memory or on its way."""
        missing: dict[int, _Wanted] = {}
        for message_id in message_ids:
            wanted = self._wanted.get(message_id)
            if wanted is None:
                wanted = self._wanted[message_id] = _Wanted(self._idle.pop(message_id, None))
                if wanted.content is None:
                    missing[message_id] = wanted
                self.wanted_bytes += wanted.byte_count
            wanted.count += 1
        if not missing:
            return
        at_hand = self._source.now([*missing])
        for message_id, wanted in missing.items():
            content = at_hand.get(message_id)
            if content is None:
                self._load(message_id, wanted)
            else:
                self._came(wanted, content)

    def unwant(self, message_ids: Iterable[int]) -> None:
        """End one interest in messages.

        After the last one their content goes when room is needed.
        """
        for message_id in message_ids:
            wanted = self._wanted[message_id]
            wanted.count -= 1
            if wanted.count:
                continue
            del self._wanted[message_id]
            if wanted.content is not None:
                self.wanted_bytes -= wanted.byte_count
                self._idle[message_id] = wanted.content
        if self.byte_count > self._limit_bytes:
            self._make_room()

    def when_here(self, message_id: int, call: OnLoaded) -> None:
        """Call with the content, at once if it is here, or with why it cannot be loaded.

        Somebody must be interested; whoever is no longer, when it comes, is called all the same.
        A load that failed is tried again when it is asked for again.
        """
        wanted = self._wanted[message_id]
        if wanted.content is not None:
            call(wanted.content)
            return
        if wanted.waiting is None:
            self._load(message_id, wanted)
        assert wanted.waiting is not None
        wanted.waiting.append(call)

    def wanted_here(self, message_ids: Iterable[int]) -> dict[int, LoadedMessage]:
        """Return the wanted messages whose content is in memory, by id."""
        wanted, here = self._wanted, dict[int, LoadedMessage]()
        for message_id in message_ids:
            content = wanted[message_id].content
            if content is not None:
                here[message_id] = content
        return here

    def get(self, message_id: int) -> LoadedMessage | None:
        """Content that is in memory."""
        wanted = self._wanted.get(message_id)
        return self._idle.get(message_id) if wanted is None else wanted.content

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
        for message_id in message_ids:
            content = self._idle.pop(message_id, None)
            if content is not None:
                self.byte_count -= content.byte_count

    def _load(self, message_id: int, wanted: _Wanted) -> None:
        waiting = wanted.waiting = []

        def loaded(result: LoadedMessage | StoreError) -> None:
            wanted.waiting = None
            if isinstance(result, LoadedMessage) and self._wanted.get(message_id) is wanted:
                self._came(wanted, result)
            for call in waiting:
                call(result)

        self.loads += 1
        self._source.load(message_id, loaded)

    def _came(self, wanted: _Wanted, content: LoadedMessage) -> None:
        if wanted.content is None:
            wanted.content = content
            wanted.byte_count = byte_count = content.byte_count
            self.byte_count += byte_count
            self.wanted_bytes += byte_count
            if self.byte_count > self._limit_bytes:
                self._make_room()

    def _make_room(self) -> None:
        while self._idle and self.byte_count > self._limit_bytes:
            _message_id, content = self._idle.popitem(last=False)
            self.byte_count -= content.byte_count

"""A cache by message id, bounded by the size of what is in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

from sparkstore.core.records import MessageHeader

Content = tuple[MessageHeader, bytes]
_OVERHEAD_BYTES = 1024
"""Of a header and its place in a cache, about."""

T = TypeVar("T")


def size_of(content: Content) -> int:
    """Bytes of memory that a message takes, about."""
    return _OVERHEAD_BYTES + content[0].header_bytes + len(content[1])


class ContentCache(Generic[T]):
    """Cache that drops the least recently used content first. Not thread-safe: its owner locks."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._contents: OrderedDict[int, tuple[T, int]] = OrderedDict()

    def get(self, message_id: int) -> T | None:
        """Return a message's cached value, which becomes the newest; None if it is not cached."""
        kept = self._contents.get(message_id)
        if kept is None:
            return None
        self._contents.move_to_end(message_id)
        return kept[0]

    def peek(self, message_ids: Sequence[int]) -> dict[int, T]:
        """Return the cached values of messages, from any thread, without the lock.

        One look-up for each, which changes nothing.
        """
        pairs = zip(message_ids, map(self._contents.get, message_ids), strict=True)
        return {message_id: kept[0] for message_id, kept in pairs if kept is not None}

    def put(self, message_id: int, what: T, size: int = 1) -> None:
        """Keep it, if there is room when all else is gone."""
        if message_id in self._contents:
            return
        self._contents[message_id] = (what, size)
        self._size += size
        while self._size > self._limit:
            self._size -= self._contents.popitem(last=False)[1][1]

"""Content of messages that was just written, kept in memory. Safe from any thread.

All that Delta does not hold yet is here, and the rest up to a number of bytes; the least recently
used goes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from sparkstore.records import Kind, MessageHeader, Record

Content = tuple[MessageHeader, bytes]


class RecentContent:
    """Finds content by message id."""

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = cache_bytes
        self._guard = threading.Lock()
        self._uncommitted: dict[int, Content] = {}
        self._cached: OrderedDict[int, Content] = OrderedDict()
        self._cached_bytes = 0

    def add(self, records: Iterable[Record]) -> None:
        """Keep the content that these records bring, at least until `committed`."""
        for record in records:
            if record.kind is Kind.ENQUEUED and record.body is not None:
                assert record.message_id is not None
                assert record.message is not None
                self._uncommitted[record.message_id] = (record.message, record.body)

    def committed(self, records: Iterable[Record]) -> None:
        """Delta holds these records: their content may be dropped from now on."""
        with self._guard:
            for record in records:
                if record.kind is Kind.ENQUEUED and record.body is not None:
                    self._move(record.message_id or 0)
                elif record.kind is Kind.DEQUEUED:
                    self._drop(record.message_id or 0)
            while self._cached_bytes > self._cache_bytes:
                _, (_, body) = self._cached.popitem(last=False)
                self._cached_bytes -= len(body)

    def get(self, message_id: int) -> Content | None:
        """Header and body if they are here."""
        content = self._uncommitted.get(message_id)
        if content is None:
            with self._guard:
                content = self._cached.get(message_id)
                if content is not None:
                    self._cached.move_to_end(message_id)
        return content

    def _move(self, message_id: int) -> None:
        content = self._uncommitted.get(message_id)
        if content is not None:
            self._cached[message_id] = content
            self._cached_bytes += len(content[1])
            # Only now: a reader looks here first, then in the cache.
            del self._uncommitted[message_id]

    def _drop(self, message_id: int) -> None:
        content = self._cached.pop(message_id, None)
        if content is not None:
            self._cached_bytes -= len(content[1])

"""Content of messages that was just written, kept in memory. Safe from any thread.

All that Delta does not hold yet is here, and the rest up to a number of bytes; the least recently
used goes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from sparkstore.content.cache import Content, size_of
from sparkstore.core.records import Kind, Record, Run


class RecentContent:
    """Finds content by message id."""

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = cache_bytes
        self._guard = threading.Lock()
        self._uncommitted: dict[int, Content] = {}
        self._cached: OrderedDict[int, Content] = OrderedDict()
        self._cached_bytes = 0
        self._staged: OrderedDict[int, dict[int, bytes]] = OrderedDict()
        self._staged_bytes = 0

    def add(self, runs: Iterable[Run]) -> None:
        """Keep the content that these records bring, at least until `committed`."""
        for run in runs:
            record = run.record
            if record.kind is Kind.ENQUEUED and run.bodies:
                contents = zip(run.headers, run.bodies, strict=True)
                self._uncommitted.update(zip(run.message_ids, contents, strict=True))  # type: ignore[arg-type]  # each has a header
            elif record.kind is Kind.ENQUEUED:
                for single in run.singles():
                    self._enqueued_staged(single)
            elif record.kind is Kind.CONTENT:
                self._stage(record.message_id or 0, record.body_offset or 0, record.body or b"")

    def committed(self, runs: Iterable[Run]) -> None:
        """Delta holds these records: their content may be dropped from now on."""
        cached = self._cached
        with self._guard:
            for run in runs:
                if run.record.kind is Kind.ENQUEUED and _brings_message(run):
                    self._cache(run.message_ids)
                elif run.record.kind is Kind.DEQUEUED:
                    gone = [cached.pop(i, None) for i in run.message_ids]
                    self._cached_bytes -= sum(map(size_of, filter(None, gone)))
            while self._cached_bytes > self._cache_bytes:
                self._cached_bytes -= size_of(cached.popitem(last=False)[1])

    def _cache(self, message_ids: Iterable[int]) -> None:
        """Keep content as far as there is room, no longer because it is nowhere else."""
        for message_id in message_ids:
            content = self._uncommitted.get(message_id)
            if content is not None:
                self._cached[message_id] = content
                self._cached_bytes += size_of(content)
                # Only now: a reader looks here first, then in the cache.
                del self._uncommitted[message_id]

    def get(self, message_id: int) -> Content | None:
        """Header and body if they are here."""
        content = self._uncommitted.get(message_id)
        if content is None:
            with self._guard:
                content = self._cached.get(message_id)
                if content is not None:
                    self._cached.move_to_end(message_id)
        return content

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Header and body of those messages that are here, as `get` has them."""
        contents: dict[int, Content] = {}
        for message_id in message_ids:
            content = self._uncommitted.get(message_id)
            if content is not None:
                contents[message_id] = content
        if len(contents) < len(message_ids):
            cached = self._cached
            with self._guard:
                for message_id in message_ids:
                    content = None if message_id in contents else cached.get(message_id)
                    if content is not None:
                        cached.move_to_end(message_id)
                        contents[message_id] = content
        return contents

    def _enqueued_staged(self, record: Record) -> None:
        """Keep the content that came in pieces; an entry of a message that is here brings none."""
        header, message_id = record.message, record.message_id or 0
        if header is None or not _brings_message(record):
            return
        pieces = self._staged.pop(message_id, {})
        body = b"".join(pieces[offset] for offset in sorted(pieces))
        self._staged_bytes -= len(body)
        if len(body) == header.body_bytes:  # else some were dropped: Delta has or will have them
            self._uncommitted[message_id] = (header, body)

    def _stage(self, message_id: int, body_offset: int, piece: bytes) -> None:
        """Keep a piece until its message is enqueued; up to the limit, as it may never be.

        One that comes a second time is the same.
        """
        pieces = self._staged.setdefault(message_id, {})
        self._staged_bytes += len(piece) - len(pieces.get(body_offset, b""))
        pieces[body_offset] = piece
        while self._staged_bytes > self._cache_bytes and self._staged:
            _, pieces = self._staged.popitem(last=False)
            self._staged_bytes -= sum(map(len, pieces.values()))


def _brings_message(run: Run) -> bool:
    header = run.headers[0]
    return header is not None and header.protocol is not None

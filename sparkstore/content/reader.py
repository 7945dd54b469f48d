"""Content of messages read back from journal or history by message id, with read-ahead.

Files never change once they are there, and a message's content is written once, so what is found
under an id in any version is right for ever. What changes is *where* it is: merges and compaction
rewrite it, trims and vacuum take the old file away. So a reader keeps the versions it knows, and
asks for the newest ones only if a message, a piece or a file is not there. The journal's version
is taken before history's: what a trim takes from the journal is in history already
(ARCHITECTURE: Rule 5), so nothing that moves in between is missed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from sparkstore.content.cache import Content, ContentCache, size_of
from sparkstore.content.files import ContentFiles
from sparkstore.content.index import ContentLocation, RowIndex
from sparkstore.content.pieces import Layout, LayoutBuilder, lacking
from sparkstore.content.rows import Rows
from sparkstore.content.versions import ContentVersions
from sparkstore.core.records import MessageHeader
from sparkstore.errors import CorruptData, InvalidRequest, StoreError, Unavailable
from sparkstore.tables.root import Root
from sparkstore.tables.schema import HEADER_FIELDS

_BATCH_BYTES = 2 << 20
_BATCH_ROWS = 1_024
_HEADERS = 16_384
"""Of headers that were read without content so many are kept."""
_LAYOUTS = 16
"""So many messages in pieces are read at a time without being looked for again."""
_TRIES = 4
_HEADER_COLUMNS = [
    "position",
    "epoch",
    "kind",
    "message_id",
    *(field.name for field in HEADER_FIELDS),
]
_COLUMNS = [*_HEADER_COLUMNS, "body"]

T = TypeVar("T")


class ContentReader:
    """Reads messages that are in the tables. Any thread may call it; one reads at a time.

    Args:
        root: The root whose tables are read.
        cache_bytes: About how much decoded content is kept, of what was read or read ahead.
    """

    def __init__(self, root: Root, cache_bytes: int = 64 << 20) -> None:
        self._guard = threading.Lock()
        self._cache: ContentCache[Content] = ContentCache(cache_bytes)
        self._headers: ContentCache[MessageHeader] = ContentCache(_HEADERS)
        self._versions = ContentVersions(root)
        self._index = RowIndex()
        batch_bytes = min(_BATCH_BYTES, max(1, cache_bytes // 4))
        self._bodies = ContentFiles(_COLUMNS, _BATCH_ROWS, batch_bytes)
        self._narrow = ContentFiles(_HEADER_COLUMNS, _BATCH_ROWS, _BATCH_BYTES)
        self._layouts: ContentCache[Layout] = ContentCache(_LAYOUTS)

    def read(self, message_id: int) -> Content:
        """Header and whole body of a message.

        Raises:
            InvalidRequest: Neither journal nor history has it.
            CorruptData: A piece of it is missing, it is longer or shorter than it was, or its file
                is gone or is no Parquet.
            Unavailable: Storage did not answer, again and again.
        """
        with self._guard:
            there = self._cache.get(message_id)
            return there or self._insist(message_id, self._assemble)

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        """Return the contents of those messages that are in the cache already.

        It never waits for whoever reads meanwhile: what is kept is right in every version of the
        tables, so one look-up for each is enough.
        """
        return self._cache.peek(message_ids)

    def read_part(self, message_id: int, offset: int, length: int) -> bytes:
        """A part of the body of a message, b"" after its end; as `read` in what it raises.

        Only the pieces that are needed are read.
        """
        with self._guard:
            there = self._cache.get(message_id)
            if there is not None:
                return there[1][offset : offset + length]
            return self._insist(message_id, partial(self._part, offset=offset, length=length))

    def headers(self, message_ids: Sequence[int]) -> dict[int, MessageHeader]:
        """Headers of those messages that journal or history has; fast in the order of the rows."""
        found = {}
        for message_id in message_ids:
            with self._guard:
                header = self._headers.get(message_id)
                try:
                    found[message_id] = header or self._insist(message_id, self._header)
                except InvalidRequest:
                    continue
        return found

    def _insist(self, message_id: int, read: Callable[[int], T]) -> T:
        """Read from the versions at hand, then from the newest ones."""
        failure: StoreError = InvalidRequest(f"message {message_id} is not in the store")
        for attempt in range(_TRIES):
            is_fresh = attempt > 0 or not self._versions.is_known
            try:
                if is_fresh:
                    self._refresh()
                return read(message_id)
            except (InvalidRequest, CorruptData) as reason:
                failure = reason
                if is_fresh:
                    break
            except (OSError, DeltaError, pa.ArrowException) as reason:
                failure = _failure(message_id, reason)
        raise failure

    def _refresh(self) -> None:
        paths = self._versions.refresh()
        self._layouts = ContentCache(_LAYOUTS)
        for kept in (self._index, self._bodies, self._narrow):
            kept.forget_all_but(paths)

    def _part(self, message_id: int, *, offset: int, length: int) -> bytes:
        layout = self._layout(message_id)
        size = layout.header.body_bytes
        return self._slice(message_id, layout, min(offset, size), min(offset + length, size))

    def _assemble(self, message_id: int) -> Content:
        """Read the content of a message.

        One row nearly always brings it all, and then its whole batch is kept ready.
        """
        place = self._first_place(message_id)
        if place.body_offset is None:
            rows, row = self._bodies.row(place.key, place.row)
            self._read_ahead(place.key.path, rows)
            header = rows.headers[row]
            if header is not None and rows.length(row) == header.body_bytes and rows.has_body(row):
                return header, rows.part(row, 0, header.body_bytes)
        layout = self._layout(message_id)
        body = self._slice(message_id, layout, 0, layout.header.body_bytes)
        content = (layout.header, body)
        self._cache.put(message_id, content, size_of(content))
        return content

    def _slice(self, message_id: int, layout: Layout, start: int, end: int) -> bytes:
        """Bytes of the content; `end` is not after its own.

        Raises:
            InvalidRequest: Not all pieces came yet.
            CorruptData: Not all pieces are there, or one is not as long as it was.
        """
        found = bytearray()
        for piece in layout.pieces():
            at, last = start + len(found), min(end, piece.end)
            if at == end or piece.start > at:
                break
            if at < last:
                rows, row = self._bodies.row(piece.place.key, piece.place.row)
                found += rows.part(row, at - piece.start, last - piece.start)
                if rows.length(row) != piece.end - piece.start:
                    raise lacking(message_id, layout, start + len(found))
        if start + len(found) < end:
            raise lacking(message_id, layout, start + len(found))
        return bytes(found)

    def _header(self, message_id: int) -> MessageHeader:
        place = self._first_place(message_id)
        if place.body_offset is not None:
            return self._layout(message_id).header
        rows, row = self._narrow.row(place.key, place.row)
        if not rows.is_ahead:
            rows.is_ahead = True
            limits = self._limits(place.key.path, rows)
            for position, epoch, number, found in rows.enqueued():
                if position < limits.get(epoch, position + 1):
                    self._headers.put(number, found)
        header = rows.headers[row]
        assert header is not None  # the index says that it brings one
        return header

    def _first_place(self, message_id: int) -> ContentLocation:
        for file in self._versions.that_name(message_id):
            for place in self._index.places_of(file.path, message_id):
                if self._versions.counts(file.path, place.position, place.epoch):
                    return place
        message = f"message {message_id} is not in the store"
        raise InvalidRequest(message)

    def _layout(self, message_id: int) -> Layout:
        """Return the layout of a message that came in pieces. It is kept for the next piece."""
        there = self._layouts.get(message_id)
        if there is None:
            there = self._find_layout(message_id)
            if there.is_enqueued:
                self._layouts.put(message_id, there)
        return there

    def _find_layout(self, message_id: int) -> Layout:
        """All pieces have lower positions than the row that enqueues; files may not be in order."""
        builder = LayoutBuilder()
        for file in self._versions.that_name(message_id):
            if file.positions[0] > builder.last_position:
                break
            for place in self._index.places_of(file.path, message_id):
                if self._versions.counts(file.path, place.position, place.epoch):
                    builder.add(place, self._header_at(place) if not place.body_offset else None)
        if builder.ends_with is not None:
            builder.add(builder.ends_with, self._header_at(builder.ends_with))
        return builder.layout(message_id)

    def _header_at(self, place: ContentLocation) -> MessageHeader | None:
        rows, row = self._narrow.row(place.key, place.row)
        return rows.headers[row]

    def _read_ahead(self, path: Path, rows: Rows) -> None:
        """Make the messages of a batch ready, once."""
        if not rows.is_ahead:
            rows.is_ahead = True
            limits = self._limits(path, rows)
            for position, epoch, message_id, content in rows.whole():
                if position < limits.get(epoch, position + 1):
                    self._cache.put(message_id, content, size_of(content))

    def _limits(self, path: Path, rows: Rows) -> dict[int, int]:
        return self._versions.limits(path, {*rows.epochs}, max(rows.positions))


def _failure(message_id: int, reason: Exception) -> StoreError:
    """Return the error for a failed read: a file that is listed but missing will not come back."""
    text = f"message {message_id} cannot be read: {reason}"
    is_lost = isinstance(reason, (FileNotFoundError, pa.ArrowException))
    if is_lost and not isinstance(reason, DeltaError):
        return CorruptData(text)
    return Unavailable(text)

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
from sparkstore.content.scratch import Scratch
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
        scratch: Keeps what was decoded beside it, on disk, until `close`; None: that is decoded
            again, which is much for whoever reads one queue of many after the other.
    """

    def __init__(
        self, root: Root, cache_bytes: int = 64 << 20, scratch: Scratch | None = None
    ) -> None:
        self._guard, self._cache_bytes = threading.Lock(), cache_bytes
        self._cache: ContentCache[Content] = ContentCache(cache_bytes)
        self._headers: ContentCache[MessageHeader] = ContentCache(_HEADERS)
        self._versions = ContentVersions(root)
        self._scratch = scratch
        self._index = RowIndex(scratch)
        batch_bytes = min(_BATCH_BYTES, max(1, cache_bytes // 4))
        self._bodies = ContentFiles(_COLUMNS, _BATCH_ROWS, batch_bytes, scratch)
        self._narrow = ContentFiles(_HEADER_COLUMNS, _BATCH_ROWS, _BATCH_BYTES, scratch)
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
            content = self._cache.get(message_id)
            return content or self._insist(message_id, self._assemble)

    def read_ahead(self, message_ids: Sequence[int]) -> None:
        """Make messages ready, in the order of their rows, as far as half of the cache takes them.

        What cannot be read is left out, and all that follows while storage does not answer: whoever
        reads it by itself is told why.
        """
        room = self._cache_bytes // 2
        for message_id in sorted(message_ids):
            if room <= 0:
                break
            try:
                room -= size_of(self.read(message_id))
            except Unavailable:
                break
            except StoreError:
                continue

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
            content = self._cache.get(message_id)
            if content is not None:
                return content[1][offset : offset + length]
            return self._insist(message_id, partial(self._part, offset=offset, length=length))

    def headers(self, message_ids: Sequence[int]) -> dict[int, MessageHeader]:
        """Headers of those messages that journal or history has; fast in the order of the rows."""
        headers = {}
        for message_id in message_ids:
            with self._guard:
                header = self._headers.get(message_id)
                try:
                    headers[message_id] = header or self._insist(message_id, self._header)
                except InvalidRequest:
                    continue
        return headers

    def close(self) -> None:
        """Let the scratch file go; content can be read still."""
        with self._guard:
            if self._scratch is not None:
                self._scratch.close()

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

        One row nearly always brings it all. What lies beside it is made ready with it where rows
        are asked for in their turn.
        """
        place, content = self._first_place(message_id), None
        if place.body_offset is None:
            rows, row = self._row(self._bodies, place, message_id)
            if rows.is_in_turn(row):
                self._read_ahead(place.key.path, rows)
            content = rows.content(row)
        if content is None:
            layout = self._layout(message_id)
            content = layout.header, self._slice(message_id, layout, 0, layout.header.body_bytes)
        self._cache.put(message_id, content, size_of(content))
        return content

    def _slice(self, message_id: int, layout: Layout, start: int, end: int) -> bytes:
        """Bytes of the content; `end` is not after its own.

        Raises:
            InvalidRequest: Not all pieces came yet.
            CorruptData: Not all pieces are there, or one is not as long as it was.
        """
        content = bytearray()
        for piece in layout.pieces():
            at, last = start + len(content), min(end, piece.end)
            if at == end or piece.start > at:
                break
            if at < last:
                rows, row = self._row(self._bodies, piece.place, message_id)
                content += rows.part(row, at - piece.start, last - piece.start)
                if rows.length(row) != piece.end - piece.start:
                    raise lacking(message_id, layout, start + len(content))
        if start + len(content) < end:
            raise lacking(message_id, layout, start + len(content))
        return bytes(content)

    def _header(self, message_id: int) -> MessageHeader:
        place = self._first_place(message_id)
        if place.body_offset is not None:
            return self._layout(message_id).header
        rows, row = self._row(self._narrow, place, message_id)
        if rows.is_in_turn(row) and not rows.is_ahead:
            rows.is_ahead = True
            limits = self._limits(place.key.path, rows)
            for position, epoch, number, other in rows.enqueued():
                if position < limits.get(epoch, position + 1):
                    self._headers.put(number, other)
        header = rows.header(row)
        assert header is not None  # the index says that it brings one
        self._headers.put(message_id, header)
        return header

    def _row(
        self, files: ContentFiles, place: ContentLocation, message_id: int
    ) -> tuple[Rows, int]:
        """Find the row of a place, which is of this message or refused, whatever a disk gave back.

        Raises:
            pyarrow.ArrowException: The file has another message there.
        """
        rows, row = files.row(place.key, place.row)
        if rows.message_id(row) != message_id:
            refusal = f"{place.key.path} has another message in row {place.row}"
            raise pa.ArrowInvalid(refusal)
        return rows, row

    def _first_place(self, message_id: int) -> ContentLocation:
        for file in self._versions.that_name(message_id):
            for place in self._index.places_of(file.path, message_id):
                if self._versions.counts(file.path, place.position, place.epoch):
                    return place
        message = f"message {message_id} is not in the store"
        raise InvalidRequest(message)

    def _layout(self, message_id: int) -> Layout:
        """Return the layout of a message that came in pieces. It is kept for the next piece."""
        layout = self._layouts.get(message_id)
        if layout is None:
            layout = self._find_layout(message_id)
            if layout.is_enqueued:
                self._layouts.put(message_id, layout)
        return layout

    def _find_layout(self, message_id: int) -> Layout:
        """Find the rows that bring a message, also where files are not in order.

        All its pieces have lower positions than the row that enqueues it.
        """
        builder = LayoutBuilder()
        for file in self._versions.that_name(message_id):
            if file.positions[0] > builder.last_position:
                break
            for place in self._index.places_of(file.path, message_id):
                if self._versions.counts(file.path, place.position, place.epoch):
                    is_first = not place.body_offset
                    builder.add(place, self._header_at(place, message_id) if is_first else None)
        if (last := builder.ends_with) is not None:
            builder.add(last, self._header_at(last, message_id))
        return builder.layout(message_id)

    def _header_at(self, place: ContentLocation, message_id: int) -> MessageHeader | None:
        rows, row = self._row(self._narrow, place, message_id)
        return rows.header(row)

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

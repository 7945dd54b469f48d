"""Content of messages read back from journal or history by message id, with read-ahead.

Files never change once they are there, and a message's content is written once, so what is found
under an id in any version is right for ever. What changes is *where* it is: merges and compaction
rewrite it, trims and vacuum take the old file away. So a reader keeps the versions it knows, and
asks for the newest ones only if a message, a piece or a file is not there. The journal's version
is taken before history's: what a trim takes from the journal is in history already (Rule 5), so
nothing that moves in between is missed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from sparkstore.content_files import ContentFiles, Placed
from sparkstore.errors import CorruptData, InvalidRequest, StoreError, Unavailable
from sparkstore.records import Kind, MessageHeader, Record
from sparkstore.root import Root
from sparkstore.schema import ROW
from sparkstore.snapshot import FileStats, columns_of, read_files, snapshot

Content = tuple[MessageHeader, bytes]

_ENTRY_OVERHEAD_BYTES = 1024
"""Of a header and its place in the cache, about."""
_BATCH_BYTES = 2 << 20
_TRIES = 4


class ContentReader:
    """Reads messages that are in the tables. Any thread may call it; one reads at a time.

    Args:
        root: Where.
        cache_bytes: About how much decoded content is kept, of what was read or read ahead.
    """

    def __init__(self, root: Root, cache_bytes: int = 64 << 20) -> None:
        self._root = root
        self._guard = threading.Lock()
        self._cache = _Cache(cache_bytes)
        self._files: list[FileStats] | None = None
        self._searched: set[Path] = set()
        self._openings: set[tuple[int, int]] = set()
        self._reader = ContentFiles(min(_BATCH_BYTES, max(1, cache_bytes // 4)), self._read_ahead)

    def read(self, message_id: int) -> Content:
        """Header and whole body of a message.

        Raises:
            InvalidRequest: Neither journal nor history has it.
            CorruptData: A piece of it is missing, it is longer or shorter than it was, or its file
                is gone or is no Parquet.
            Unavailable: Storage did not answer, again and again.
        """
        with self._guard:
            return self._cache.get(message_id) or self._find(message_id)

    def read_part(self, message_id: int, offset: int, length: int) -> bytes:
        """A part of the body of a message; as `read` in what it raises."""
        return self.read(message_id)[1][offset : offset + length]

    def headers(self, message_ids: Sequence[int]) -> dict[int, MessageHeader]:
        """Headers of those messages that journal or history has."""
        found = {}
        for message_id in message_ids:
            with suppress(InvalidRequest):
                found[message_id] = self.read(message_id)[0]
        return found

    def _find(self, message_id: int) -> Content:
        """Look in the versions at hand, then in the newest ones."""
        failure: StoreError = InvalidRequest(f"message {message_id} is not in the store")
        for attempt in range(_TRIES):
            is_fresh = attempt > 0 or self._files is None
            try:
                if is_fresh:
                    self._refresh()
                content = self._assemble(message_id)
            except (InvalidRequest, CorruptData) as reason:
                failure = reason
                if is_fresh:
                    break
            except (OSError, DeltaError, pa.ArrowException) as reason:
                failure = _failure(message_id, reason)
            else:
                self._cache.put(message_id, content)
                return content
        raise failure

    def _refresh(self) -> None:
        journal = snapshot(self._root.journal)
        history = snapshot(self._root.history)
        self._openings |= _openings(file for file in journal if file.path not in self._searched)
        self._searched = {file.path for file in journal}
        self._files = [*journal, *history]
        self._reader.forget_all_but({file.path for file in self._files})

    def _assemble(self, message_id: int) -> Content:
        found = _Found()
        for record in self._records_of(message_id):
            content = _whole_content(record)
            if content is not None:
                return content
            found.add(record)
        return found.content(message_id)

    def _records_of(self, message_id: int) -> Iterator[Record]:
        """The records that bring a message, or pieces of it, and count."""
        for file in self._files or ():
            if file.message_ids[0] <= message_id <= file.message_ids[1]:
                for placed in self._reader.rows_of(file.path, message_id):
                    if placed[2].message_id == message_id and self._counts(placed):
                        yield placed[2]

    def _counts(self, placed: Placed) -> bool:
        """False for a row of a fenced writer (Rule 3): its ids may have been given out again."""
        position, epoch, _ = placed
        return not any(
            opened_epoch > epoch and opened_position <= position
            for opened_position, opened_epoch in self._openings
        )

    def _read_ahead(self, batch: list[Placed]) -> None:
        for placed in batch:
            record = placed[2]
            content = _whole_content(record)
            if content is not None and record.message_id is not None and self._counts(placed):
                self._cache.put(record.message_id, content)


def _failure(message_id: int, reason: Exception) -> StoreError:
    """What a read that failed means: a file that is listed and not there will not come back."""
    text = f"message {message_id} cannot be read: {reason}"
    is_lost = isinstance(reason, (FileNotFoundError, pa.ArrowException))
    if is_lost and not isinstance(reason, DeltaError):
        return CorruptData(text)
    return Unavailable(text)


class _Cache:
    """Content by message id, bounded by bytes; what was not asked for longest goes first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._byte_count = 0
        self._contents: OrderedDict[int, Content] = OrderedDict()

    def get(self, message_id: int) -> Content | None:
        content = self._contents.get(message_id)
        if content is not None:
            self._contents.move_to_end(message_id)
        return content

    def put(self, message_id: int, content: Content) -> None:
        if message_id in self._contents:
            return
        self._contents[message_id] = content
        self._byte_count += _size(content)
        while self._byte_count > self._limit_bytes:
            self._byte_count -= _size(self._contents.popitem(last=False)[1])


def _size(content: Content) -> int:
    return _ENTRY_OVERHEAD_BYTES + content[0].header_bytes + len(content[1])


def _openings(files: Iterable[FileStats]) -> set[tuple[int, int]]:
    """(position, epoch) of each `opened` in some files; such a fact stays true for ever."""
    where = ds.field("kind") == Kind.OPENED.column
    rows = read_files(files, columns_of(ROW, ["position", "epoch", "kind"]), where)
    return set(zip(rows["position"].to_pylist(), rows["epoch"].to_pylist(), strict=True))


def _whole_content(record: Record) -> Content | None:
    """Header and body, if this one row brings both; pieces and staged messages need more."""
    header, body = record.message, record.body
    if record.kind is not Kind.ENQUEUED or header is None or header.protocol is None:
        return None
    if body is None:
        return None
    return (header, body) if len(body) == header.body_bytes else None


def _whole_header(record: Record) -> MessageHeader | None:
    """The header, if this row brings it; the rows of a message's other queues cut it short."""
    header = record.message
    return None if header is None or header.protocol is None else header


class _Found:
    """What the rows of one message brought so far: each piece once, by its offset."""

    def __init__(self) -> None:
        self._header: MessageHeader | None = None
        self._staged: MessageHeader | None = None
        self._pieces: dict[int, bytes] = {}

    def add(self, record: Record) -> None:
        """A row that brings a header or a piece; the one that enqueues has the better header."""
        if record.kind is Kind.CONTENT:
            self._staged = _whole_header(record) or self._staged
            self._pieces[record.body_offset or 0] = record.body or b""
        else:
            self._header = _whole_header(record) or self._header

    def content(self, message_id: int) -> Content:
        """The message that they make.

        Raises:
            InvalidRequest: They make none; or it is not enqueued yet, and more of it may come.
            CorruptData: A piece is missing.
        """
        header = self._header or self._staged
        if header is None:
            message = f"message {message_id} is not in the store"
            raise InvalidRequest(message)
        body = bytearray()
        for offset in sorted(self._pieces):
            if offset != len(body):
                break
            body += self._pieces[offset]
        if len(body) == header.body_bytes:
            return header, bytes(body)
        if self._header is None:
            message = f"message {message_id}: of {header.body_bytes} bytes came {len(body)} so far"
            raise InvalidRequest(message)
        message = (
            f"message {message_id}: its content has {header.body_bytes} bytes, but what follows"
            f" byte {len(body)} is missing: restore it from a replica"
        )
        raise CorruptData(message)

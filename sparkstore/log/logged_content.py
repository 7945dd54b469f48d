"""Content of messages that were given to the log: from memory, or from Delta. Any thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from sparkstore.content.reader import ContentReader
from sparkstore.core.records import MessageHeader
from sparkstore.errors import InvalidRequest, StoreError, Unavailable
from sparkstore.log.batcher import Fire
from sparkstore.log.log_metrics import LogMetrics
from sparkstore.log.recent_content import RecentContent

_FLUSH_WAIT_S = 5.0

T = TypeVar("T")


class LoggedContent:
    """Reads the content of messages that the log accepted.

    Args:
        recent: What is in memory.
        content: Reads the tables.
        flush: Fires its argument once Delta has all that came before.
        metrics: Say why Delta does not take it.
    """

    def __init__(
        self,
        recent: RecentContent,
        content: ContentReader,
        flush: Callable[[Fire], None],
        metrics: LogMetrics,
    ) -> None:
        self._recent, self._content = recent, content
        self._flush, self._metrics = flush, metrics

    def load(self, message_id: int) -> tuple[MessageHeader, bytes]:
        """Header and content of a message.

        Raises:
            InvalidRequest: No such message.
            CorruptData: Its content is not whole.
            Unavailable: Storage does not answer, or does not take what is still to be written.
        """
        recent = self._recent.get(message_id)
        return recent or self._read_again(lambda: self._content.read(message_id))

    def read_ahead(self, message_ids: Sequence[int]) -> None:
        """Make messages ready that are not in memory; what cannot be read now is left out."""
        at_hand = self.at_hand(message_ids)
        self._content.read_ahead([number for number in message_ids if number not in at_hand])

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, tuple[MessageHeader, bytes]]:
        """Header and content of those messages that are in memory: written or read just now."""
        contents = self._recent.at_hand(message_ids)
        if len(contents) < len(message_ids):
            missing = [message_id for message_id in message_ids if message_id not in contents]
            contents |= self._content.at_hand(missing)
        return contents

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """A part of the content of a message; as `load` in what it raises."""
        recent = self._recent.get(message_id)
        if recent is not None:
            return recent[1][offset : offset + length]
        return self._read_again(lambda: self._content.read_part(message_id, offset, length))

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Headers of messages in that order, None for one that is nowhere."""
        recent = self._recent.get
        headers = {i: content[0] for i in message_ids if (content := recent(i)) is not None}
        missing = [i for i in message_ids if i not in headers]
        if missing:
            headers |= self._content.headers(missing)
        if len(headers) < len(message_ids) and any(i not in headers for i in missing):
            # Staged content that no Delta commit holds yet.
            self._wait_for_flush()
            headers |= self._content.headers([i for i in missing if i not in headers])
        return [headers.get(message_id) for message_id in message_ids]

    def _read_again(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except InvalidRequest:
            # Staged content that no Delta commit holds yet.
            self._wait_for_flush()
            return read()

    def _wait_for_flush(self) -> None:
        done: SimpleQueue[StoreError | None] = SimpleQueue()
        self._flush(done.put)
        try:
            error = done.get(timeout=_FLUSH_WAIT_S)
        except Empty as reason:
            message = f"Delta does not take content ({self._metrics.delta_error}); retry later"
            raise Unavailable(message) from reason
        if error is not None:
            raise error

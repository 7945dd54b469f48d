"""A message that is being received: content is added in pieces until it is complete. One thread.

For content that is large: it goes to the store as it comes, so that a message of any size takes
little memory. At most `MOST_UNDER_WAY` bytes are under way to be durable, and at most two times
`FLUSHED_BYTES` are durable, but not yet where the store reads them from. Until then it has them in
memory. When it is more, `is_full` says that no more should be read from whoever sends.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.completion import Completion, OnComplete
from broker_shim.errors import StoreError

MOST_UNDER_WAY = 4 << 20
"""Bytes of one message that may be on their way to disk."""

FLUSHED_BYTES = 16 << 20
"""After so many bytes of one message the store is asked to put them where it reads them from."""

Add = Callable[[bytes, OnComplete], None]
"""add(piece, on_complete): a store takes the next piece; it may raise StoreError."""


class NewMessage:
    """Content of a message until all of it has come.

    Attributes:
        byte_count: Content added so far.
    """

    def __init__(
        self, add: Add, flush: Callable[[OnComplete], None], on_room: Callable[[], None]
    ) -> None:
        """Prepare to receive a message in pieces; nothing has come yet.

        Args:
            add: Where the pieces go; it completes on the caller's thread.
            flush: Completes, there too, when the store need not keep what was added in memory.
            on_room: Called when `is_full` has become false again.
        """
        self._add, self._flush, self._on_room = add, flush, on_room
        self._under_way = self._since_flush = self._flushes = 0
        self._is_whole = False
        self._error: StoreError | None = None
        self._completion = Completion()
        self.byte_count = 0

    @property
    def is_full(self) -> bool:
        """True while so much is under way that no more should be read."""
        return self._under_way >= MOST_UNDER_WAY or self._flushes > 1

    def add_content(self, piece: bytes) -> None:
        """Add the next piece. After an error pieces are passed over: the completion tells it."""
        if self._is_whole:
            raise RuntimeError("content was added after it was complete")
        self.byte_count += len(piece)
        if self._error is not None:
            return
        self._under_way += len(piece)
        try:
            self._add(piece, lambda error: self._added(len(piece), error))
        except StoreError as error:
            self._under_way -= len(piece)
            self._error = error
        self._since_flush += len(piece)
        if self._since_flush >= FLUSHED_BYTES and self._error is None:
            self._since_flush = 0
            self._flushes += 1
            self._flush(self._flushed)

    def content_complete(self) -> Completion:
        """All content has come; done when all of it is durable, with the first error if any."""
        self._is_whole = True
        self._finish_if_done()
        return self._completion

    def _added(self, byte_count: int, error: StoreError | None) -> None:
        was_full = self.is_full
        self._under_way -= byte_count
        self._error = self._error or error
        self._finish_if_done()
        if was_full and not self.is_full:
            self._on_room()

    def _flushed(self, _error: StoreError | None) -> None:
        """Note the end of a flush. Its error is no reason to refuse: what is durable stays so."""
        was_full = self.is_full
        self._flushes -= 1
        if was_full and not self.is_full:
            self._on_room()

    def _finish_if_done(self) -> None:
        if self._is_whole and not self._under_way and not self._completion.is_complete:
            self._completion.finish(self._error)

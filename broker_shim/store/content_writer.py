"""Content that is given to a store in pieces, as they come from whoever sends them.

The store's lock is held for each piece only. Pieces of one message are records of their own, each
durable by itself, in order; until `end` the message cannot be enqueued: half of it may be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_shim.completion import OnComplete
from broker_shim.errors import Closed, StoreError
from broker_shim.store.interface import ContentWriter
from sparkstore.core.state_machine.arguments import (
    PIECE_BYTES,
    check_body,
    check_completion,
    check_pieces,
    check_size,
)
from sparkstore.core.state_machine.call_values import StoredMessage

TakePiece = Callable[[StoredMessage, int, bytes, OnComplete], None]
"""take(message, body_offset, piece, on_complete): append one record."""


class LocalContentWriter:
    """A `ContentWriter` of a store in this process.

    Of content that the store does not keep, the pieces are held here.
    """

    def __init__(
        self,
        message: StoredMessage,
        take: TakePiece | None,
        end: Callable[[StoredMessage, OnComplete], None],
        max_message_bytes: int,
    ) -> None:
        """Begin with no content of the message.

        Args:
            message: The message that the pieces are the content of; its own body is empty.
            take: None if the store does not keep the content.
            end: Makes it a message that may be enqueued.
            max_message_bytes: How long all pieces together may be, in bytes, inclusive.
        """
        self._message, self._take, self._end = message, take, end
        self._max_message_bytes = max_message_bytes
        self._held: list[bytes] = []
        self._body_bytes = 0

    def add(self, piece: bytes, on_complete: OnComplete) -> None:
        """Append the next piece, cut to the size of a record. See `ContentWriter.add`."""
        check_body(piece)
        check_completion(on_complete)
        check_size(self._body_bytes + len(piece), self._max_message_bytes)
        cuts = [piece[at : at + PIECE_BYTES] for at in range(0, len(piece), PIECE_BYTES)]
        if self._take is None or not cuts:
            self._held.append(piece)
            self._body_bytes += len(piece)
            on_complete(None)
            return
        for number, cut in enumerate(cuts, 1):
            on_taken = on_complete if number == len(cuts) else _by_the_next
            self._take(self._message, self._body_bytes, cut, on_taken)
            self._body_bytes += len(cut)

    def end(self, on_complete: OnComplete) -> StoredMessage:
        """Complete the content, and make the message that may be enqueued.

        See `ContentWriter.end`.
        """
        check_completion(on_complete)
        self._end(self._message, on_complete)
        header = self._message.header._replace(body_bytes=self._body_bytes)
        is_staged = self._take is not None and self._body_bytes > 0
        return StoredMessage(
            self._message.message_id, header, b"".join(self._held), is_staged=is_staged
        )


def staged(
    content_of: Callable[[StoredMessage], ContentWriter],
    message: StoredMessage,
    pieces: Iterable[bytes],
    on_complete: OnComplete,
    refuse: Callable[[StoreError], None],
) -> StoredMessage:
    """Give all pieces to a writer: `ContentCalls.stage`, for every kind of store.

    Args:
        content_of: Makes the writer.
        message: The message that the pieces are the content of.
        pieces: The content, in order.
        on_complete: Of the whole.
        refuse: Completes the call with a refusal in its turn.

    Raises:
        Closed: The store is closed.
    """
    check_completion(on_complete)
    try:
        check_pieces(pieces)
        content = content_of(message)
        for piece in pieces:
            content.add(piece, _by_the_next)
    except Closed:
        raise
    except StoreError as refusal:
        refuse(refusal)
        return message
    return content.end(on_complete)


def _by_the_next(_error: object) -> None:
    """The last cut of a piece tells: records of one store complete in order."""

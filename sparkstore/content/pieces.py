"""Assemble a message from the rows that bring it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from sparkstore.content.index import ContentLocation
from sparkstore.core.records import MessageHeader
from sparkstore.errors import CorruptData, InvalidRequest


class Piece(NamedTuple):
    """A part of a message's content.

    Attributes:
        start: Its first byte in the content.
        end: After its last byte.
        place: The row that has it.
    """

    start: int
    end: int
    place: ContentLocation


class Layout(NamedTuple):
    """Places of a message's content: its header and its pieces.

    Attributes:
        header: Its header, as it was enqueued if it was.
        is_enqueued: False if it is staged with its header, and more of it may come.
        offsets: Where pieces begin, rising, with the row of each; none for one row that has all.
        row: The row with the header.
    """

    header: MessageHeader
    is_enqueued: bool
    offsets: list[tuple[int, ContentLocation]]
    row: ContentLocation

    def pieces(self) -> Iterator[Piece]:
        """The pieces, each once, in order; the last one's end is what the header says."""
        end = self.header.body_bytes
        starts = self.offsets or [(0, self.row)]
        for (start, place), (next_start, _) in pairwise([*starts, (end, self.row)]):
            yield Piece(start, next_start, place)


_LAST = (1 << 63) - 1


class LayoutBuilder:
    """Builds a layout from the rows of one message in file order; each offset counts once.

    Attributes:
        last_position: No row after it is of interest.
    """

    def __init__(self) -> None:
        self._staged: tuple[MessageHeader, ContentLocation] | None = None
        self._enqueued: tuple[MessageHeader, ContentLocation] | None = None
        self._offsets: dict[int, ContentLocation] = {}
        self.last_position = _LAST

    def add(self, place: ContentLocation, header: MessageHeader | None) -> None:
        """Add a row, with the header that it brings; the row that enqueues has the better one."""
        if place.body_offset is None:
            self._enqueued = self._enqueued or (header and (header, place)) or None
            self.last_position = place.position
        else:
            self._offsets.setdefault(place.body_offset, place)
            self._staged = self._staged or (header and (header, place)) or None

    @property
    def ends_with(self) -> ContentLocation | None:
        """Return the last piece if no row brought a header: a branch in doubt has it there."""
        if self._enqueued or self._staged or not self._offsets:
            return None
        return self._offsets[max(self._offsets)]

    def layout(self, message_id: int) -> Layout:
        """Return the layout of the content, as far as its rows have come.

        Raises:
            InvalidRequest: None of them brings its header.
        """
        first = self._enqueued or self._staged
        if first is None:
            message = f"message {message_id} is not in the store"
            raise InvalidRequest(message)
        header, row = first
        return Layout(header, self._enqueued is not None, sorted(self._offsets.items()), row)


def lacking(message_id: int, layout: Layout, body_bytes: int) -> CorruptData | InvalidRequest:
    """Return the error for content of which only so many bytes are stored."""
    size = layout.header.body_bytes
    if not layout.is_enqueued:
        message = f"message {message_id}: of {size} bytes came {body_bytes} so far"
        return InvalidRequest(message)
    message = (
        f"message {message_id}: its content has {size} bytes, but what follows"
        f" byte {body_bytes} is missing: restore it from a replica"
    )
    return CorruptData(message)

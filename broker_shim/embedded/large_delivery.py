"""One message that is sent in pieces: as much at a time as there is room for at the peer."""

from __future__ import annotations

from typing import Any

from cproton import (
    pn_delivery,
    pn_delivery_abort,
    pn_link_advance,
    pn_link_send,
)

from broker_shim.errors import CorruptData
from broker_shim.messages.header import FramingHeader
from broker_shim.messages.message import Message

_PIECE_BYTES = 1 << 18


class LargeDelivery:
    """A delivery whose content is read from where it is while it is sent.

    Attributes:
        delivery: Proton's.
    """

    def __init__(self, link: Any, tag: int, message: Message, framing: FramingHeader) -> None:
        self._link, self._message, self._framing = link, message, framing
        self._buffer = memoryview(bytearray(_PIECE_BYTES))
        self._offset = 0
        self.delivery = pn_delivery(link, tag.to_bytes(8, "big"))
        pn_link_send(link, framing.lead)

    def write(self, room_bytes: int) -> bool:
        """Write about as much as there is room for; True when all of it is written.

        Raises:
            StoreError: Content cannot be read, or ends too early: `abort` it.
        """
        written = 0
        while self._offset < self._framing.body_bytes:
            if written >= room_bytes:
                return False
            count = self._message.read_content(self._offset, self._buffer)
            if count == 0:
                message = f"content of {self._framing.body_bytes} bytes ends at {self._offset}"
                raise CorruptData(message)
            pn_link_send(self._link, bytes(self._buffer[:count]))
            self._offset += count
            written += count
        if self._framing.tail:
            pn_link_send(self._link, self._framing.tail)
        pn_link_advance(self._link)
        return True

    def abort(self) -> None:
        """Tell the peer that the rest will not come."""
        pn_delivery_abort(self.delivery)

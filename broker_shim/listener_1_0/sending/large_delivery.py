"""One message that is sent in pieces: as much at a time as there is room for at the peer."""

from __future__ import annotations

from broker_shim.errors import CorruptData
from broker_shim.messages.header import FramingHeader
from broker_shim.messages.message import Message
from broker_shim.protocol_1_0.links.deliveries import Delivery
from broker_shim.protocol_1_0.links.sender import SenderLink

_PIECE_BYTES = 1 << 18


class LargeDelivery:
    """A delivery whose content is read from where it is while it is sent.

    Attributes:
        delivery: Of the protocol.
    """

    def __init__(
        self, link: SenderLink, delivery: Delivery, message: Message, framing: FramingHeader
    ) -> None:
        """Go on with a delivery whose lead was sent."""
        self._link, self._message, self._framing = link, message, framing
        self._buffer = memoryview(bytearray(_PIECE_BYTES))
        self._offset = 0
        self.delivery = delivery

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
            # A copy: the buffer is used again before this is written.
            self._link.transfer_more((bytes(self._buffer[:count]),), more=True)
            self._offset += count
            written += count
        self._link.transfer_more((self._framing.tail,))
        return True

    def abort(self) -> None:
        """Tell the peer that the rest will not come."""
        if not self._link.is_gone:
            self._link.abort()

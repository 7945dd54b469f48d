"""Messages on the wire of one link: a small one at once, a large one in pieces, one at a time.

`Wire` sends them, as much as there is room for at the peer.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.broker.delivery.taken_message import Arrived, TakenMessage
from broker_shim.errors import CorruptData
from broker_shim.listener_1_0.messages.message import FramingHeader, framing
from broker_shim.messages.message import Message
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.store.interface import MessageHeader
from sparkstore.core.annotations import is_untouched

_AROUND_BYTES = 64
"""What framing adds to a message as it came, beside annotations, at most: a header section."""
_PIECE_BYTES = 1 << 18
_NO_FRAMING = FramingHeader(b"", b"", 0)


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


class Wire:
    """The transfers of one link: nothing else is begun while a large message is sent.

    Attributes:
        large: What is being sent in pieces: nothing else may be begun meanwhile.
    """

    def __init__(self, link: SenderLink) -> None:
        self._link = link
        self._delivery: LargeDelivery | None = None
        self.large: TakenMessage | None = None

    def takes(self, taken: TakenMessage, header: MessageHeader) -> bool:
        """Whether the peer takes a message so large."""
        most = self._link.remote.max_message_size
        if not most:
            return True
        around = _AROUND_BYTES + len((taken.detail or "").encode())
        return header.header_bytes + header.body_bytes + around <= most

    def begin(
        self,
        tag: bytes,
        taken: TakenMessage,
        header: MessageHeader,
        *,
        failures: int,
        now_us: int,
        is_first: bool = False,
        waits: bool = False,
        state: TransactionalState | None = None,
    ) -> Delivery:
        """Send a message whose content is here, or begin a large one; `state`: of a new delivery.

        Raises:
            InvalidCommand: The link has ended; or there is no credit, unless it `waits` for more.
        """
        if taken.expires_at != header.expires_at:
            header = header._replace(expires_at=taken.expires_at)
        around = framing(
            header, delivery_count=failures, now_us=now_us, is_first=is_first, detail=taken.detail
        )
        settled = self._link.snd_settle_mode == SenderSettleMode.SETTLED
        if taken.is_large:
            first = self._start(tag, (around.lead,), state, settled=settled, more=True, waits=waits)
            self._delivery = LargeDelivery(self._link, first, taken.message, around)
            self.large = taken
            return first
        content = taken.message.content_now()
        assert content is not None
        pieces = (around.lead, content.body, around.tail)
        delivery = self._start(tag, pieces, state, settled=settled, more=False, waits=waits)
        assert taken.interest is not None
        taken.interest.release()
        return delivery

    def begin_all(
        self, arrived: Sequence[Arrived], failures: Sequence[int], now_us: int
    ) -> list[Delivery]:
        """Send new messages whose content is here, as `begin` each, or none of them.

        Args:
            arrived: The messages, none of which the link brought from before.
            failures: Failed deliveries of each.
            now_us: The time of sending, UTC µs.

        Raises:
            InvalidCommand: As `begin`; or another one is being sent.
            DecodeError: A header is not what a listener makes.
        """
        new = []
        before, around = None, _NO_FRAMING
        for (taken, content), count in zip(arrived, failures, strict=True):
            header, detail = content.header, taken.detail
            if taken.expires_at != header.expires_at:
                header = header._replace(expires_at=taken.expires_at)
            of = header, count, detail
            if of != before:  # many in a row are framed alike
                before, is_first = of, is_untouched(detail, count)
                around = framing(
                    header, delivery_count=count, now_us=now_us, is_first=is_first, detail=detail
                )
            pieces = (around.lead, content.body, around.tail)
            new.append((taken.message_id.to_bytes(8, "big"), pieces))
        settled = self._link.snd_settle_mode == SenderSettleMode.SETTLED
        return self._link.transfer_all(new, settled=settled)

    def _start(
        self,
        tag: bytes,
        pieces: tuple[bytes, ...],
        state: TransactionalState | None,
        *,
        settled: bool,
        more: bool,
        waits: bool,
    ) -> Delivery:
        """A new delivery, or the same one again if the link brought it from before."""
        if tag in self._link.earlier:
            return self._link.resume(tag, pieces, settled=settled, more=more, waits=waits)
        return self._link.transfer(
            tag, pieces, settled=settled, more=more, waits=waits, state=state
        )

    def go_on(self, room_bytes: int) -> bool:
        """Write about so much of the large one; True when all of it is written.

        Raises:
            StoreError: Its content cannot be read: `break_off`.
        """
        assert self._delivery is not None
        if not self._delivery.write(room_bytes):
            return False
        self.large = self._delivery = None
        return True

    def is_sending(self, delivery: Delivery) -> bool:
        """True if this delivery is begun and not written whole."""
        return self._delivery is not None and self._delivery.delivery is delivery

    def break_off(self) -> Delivery:
        """Tell the peer that the rest of the large one will not come; its delivery."""
        assert self._delivery is not None
        broken = self._delivery
        self.large = self._delivery = None
        broken.abort()
        return broken.delivery

    def drop(self) -> None:
        """Forget what was begun, as the link ended."""
        self.large = self._delivery = None

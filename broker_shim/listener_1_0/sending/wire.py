"""Messages of one link on the wire: small ones at once, a large one in pieces, one at a time."""

from __future__ import annotations

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.listener_1_0.messages.headers import Amqp10Session
from broker_shim.listener_1_0.sending.large_delivery import LargeDelivery
from broker_shim.listener_1_0.sending.outgoing_message import Taken
from broker_shim.protocol_1_0.links.deliveries import Delivery
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.store.interface import MessageHeader

_AROUND_BYTES = 64
"""What framing adds to a message as it came, beside annotations, at most: a header section."""


class Wire:
    """See above.

    Attributes:
        large: What is being sent in pieces: nothing else may be begun meanwhile.
    """

    def __init__(self, link: SenderLink) -> None:
        self._link = link
        self._delivery: LargeDelivery | None = None
        self.large: Taken | None = None

    def takes(self, taken: Taken, header: MessageHeader) -> bool:
        """Whether the peer takes a message so large."""
        most = self._link.remote.max_message_size
        if not most:
            return True
        around = _AROUND_BYTES + len((taken.detail or "").encode())
        return header.header_bytes + header.body_bytes + around <= most

    def begin(
        self,
        tag: bytes,
        taken: Taken,
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
        around = Amqp10Session(failures, now_us, is_first, taken.detail).framing(header)
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
        taken.sent()
        return delivery

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
        """The link ended: forget what was begun."""
        self.large = self._delivery = None

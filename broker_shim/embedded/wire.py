"""Messages of one link on the wire: small ones at once, a large one in pieces, one at a time."""

from __future__ import annotations

from itertools import count
from typing import Any

from broker_shim.embedded.engine import send
from broker_shim.embedded.headers import HEADERS, Amqp10Session
from broker_shim.embedded.large_delivery import LargeDelivery
from broker_shim.embedded.taking import Taken
from broker_shim.store.interface import MessageHeader


class Wire:
    """See above.

    Attributes:
        large: What is being sent in pieces: nothing else may be begun meanwhile.
    """

    def __init__(self, link: Any) -> None:
        self._link = link
        self._tags = count(1)
        self._delivery: LargeDelivery | None = None
        self.large: Taken | None = None

    def begin(self, taken: Taken, header: MessageHeader, *, failures: int, now_us: int) -> Any:
        """Send a message whose content is here, or begin a large one; the delivery."""
        if taken.expires_at != header.expires_at:
            header = header._replace(expires_at=taken.expires_at)
        around = HEADERS.of(header).for_session(Amqp10Session(failures, now_us))
        if taken.is_large:
            self.large = taken
            self._delivery = LargeDelivery(self._link, next(self._tags), taken.message, around)
            return self._delivery.delivery
        content = taken.message.content_now()
        assert content is not None
        encoded = b"".join((around.lead, content.body, around.tail))
        delivery = send(self._link, next(self._tags), encoded)
        taken.sent()
        return delivery

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

    def is_sending(self, delivery: Any) -> bool:
        """True if this delivery is begun and not written whole."""
        return self._delivery is not None and self._delivery.delivery == delivery

    def break_off(self) -> Any:
        """Tell the peer that the rest of the large one will not come; its delivery."""
        assert self._delivery is not None
        broken = self._delivery
        self.large = self._delivery = None
        broken.abort()
        return broken.delivery

    def drop(self) -> None:
        """The link ended: forget what was begun."""
        self.large = self._delivery = None

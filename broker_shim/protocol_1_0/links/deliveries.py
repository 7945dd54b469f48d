"""One delivery: what was said of it, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_shim.protocol_1_0.links.link import Link

MAX_TAG_BYTES = 32
"""Of a delivery's tag (2.8.7)."""


@dataclass(slots=True, eq=False)
class Delivery:
    """A message's trip over one link.

    Attributes:
        link: Our end of the link that the delivery is made on.
        tag: Its name on the link.
        message_format: As the sender says; 0 is AMQP's own.
        delivery_id: Its number on the session; None until its first frame was sent.
        byte_count: Payload so far.
        is_settled: True once it is forgotten here.
        state: What we said of it last.
        remote_state: What the peer said of it last.
        is_resumed: True if its sender resumed it from an earlier attachment.
        ends_at: Of all bytes of the connection, the number that were made when its last frame was;
            None while it is not made whole.
        is_second: True if its receiver settles it after its sender (rcv-settle-mode second).
    """

    link: Link
    tag: bytes
    message_format: int
    delivery_id: int | None = None
    byte_count: int = 0
    is_settled: bool = False
    state: Any = None
    remote_state: Any = None
    is_resumed: bool = False
    ends_at: int | None = None
    is_second: bool = False

    @property
    def is_incoming(self) -> bool:
        """True if we receive it."""
        return self.link.is_receiver

    def dispose(self, state: Any, *, settled: bool = True) -> None:
        """Tell the peer a state of it, and settle it or not; goes out with the next output.

        Nothing is sent of a delivery that is settled already or whose link has ended.

        Raises:
            InvalidCommand: The state cannot be encoded.
        """
        self.link.port.dispose(self, state, settled=settled)

    def answer(self, state: Any) -> None:
        """Tell what came of it where we receive; its sender settles it first in mode second."""
        self.link.port.dispose(self, state, settled=not self.is_second)

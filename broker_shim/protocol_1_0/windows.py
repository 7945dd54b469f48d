"""Count the transfer frames that a session still takes, each way (2.5.6)."""

from __future__ import annotations

from broker_shim.amqp_1_0.definitions import SessionError
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation, Scope
from broker_shim.protocol_1_0.serial import WRAP, distance


class IncomingWindow:
    """The window in which the peer may still send transfer frames.

    Attributes:
        size: Frames that it takes when it is open.
        next_id: Id of the transfer frame that comes next.
        left: Frames that the peer may send before it is told of more.
    """

    def __init__(self, size: int, next_id: int) -> None:
        self.size = size
        self.next_id = next_id
        self.left = size

    @property
    def is_low(self) -> bool:
        """True once half of the window is used: tell the peer of more before it has to wait."""
        return 2 * self.left <= self.size

    def take(self) -> None:
        """Count a transfer frame that came.

        Raises:
            ProtocolViolation: window-violation: there was no room for it.
        """
        if not self.left:
            text = f"a transfer beyond the session's window of {self.size}"
            raise ProtocolViolation(SessionError.WINDOW_VIOLATION, text, Scope.SESSION)
        self.take_many(1)

    def take_many(self, count: int) -> None:
        """Count frames that came, `left` at most."""
        self.left -= count
        self.next_id = (self.next_id + count) % WRAP

    def note_next_id(self, next_id: int) -> None:
        """Check and note which transfer frame the peer sends next.

        Raises:
            ProtocolViolation: window-violation: of one that came already, or the frames that it
                has passed over since are more than there was room for (2.5.6).
        """
        passed_over = distance(self.next_id, next_id)
        if not 0 <= passed_over <= self.left:
            text = f"next-outgoing-id {next_id}, where {self.next_id} is next"
            raise ProtocolViolation(SessionError.WINDOW_VIOLATION, text, Scope.SESSION)
        self.left -= passed_over
        self.next_id = next_id

    def reopen(self) -> None:
        """Open the whole window again, as the peer was told."""
        self.left = self.size


class OutgoingWindow:
    """The window in which we may still send transfer frames.

    Attributes:
        next_id: Id of the transfer frame that goes next.
        left: Frames that the peer takes before it tells us of more.
    """

    def __init__(self, left: int) -> None:
        self.next_id = 0
        self.left = left

    def take(self, count: int = 1) -> None:
        """Count transfer frames that go."""
        self.left -= count
        self.next_id = (self.next_id + count) % WRAP

    def note_window(self, next_incoming_id: int | None, window: int) -> None:
        """Note the peer's window. A peer that has seen no begin of ours tells no id."""
        seen = 0 if next_incoming_id is None else next_incoming_id
        on_the_way = distance(seen, self.next_id)
        self.left = max(0, window - max(0, on_the_way))

"""How many messages a sending client may have under way, and when its link gets more credit.

Full credit while the store keeps up. `NotNow` (no room, storage does not answer) cuts it to
one message a probe, so that clients are held back by the protocol rather than refused again and
again. Each success doubles it. Credit once given cannot be taken back (AMQP 1.0 section 2.6.7), so
what was already allowed may still be refused.
"""

from __future__ import annotations

from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.receiving.received_deliveries import ReceivedDeliveries
from broker_shim.protocol_1_0.links.receiver import ReceiverLink

_MOST_DOUBLINGS = 32
"""From 1 to more than anybody has."""


class LinkCredit:
    """The credit of one link on which a client sends. On the loop's thread only.

    Attributes:
        takes_none: True once nothing more is taken.
    """

    def __init__(
        self,
        connection: Connection,
        link: ReceiverLink,
        answering: ReceivedDeliveries | None,
    ) -> None:
        """Begin before the link is answered.

        Args:
            connection: That the link is on.
            link: Of the protocol.
            answering: Told before more is given, if the link answers in two steps.
        """
        self._connection, self._broker, self._link = connection, connection.broker, link
        self._answering = answering
        self._full = self._window = connection.broker.settings.credit
        self._outstanding = 0
        self._is_held_back = self._is_due = self.takes_none = False

    def used(self, count: int = 1) -> None:
        """Count messages that came in, until each is `done` or `refused`."""
        self._outstanding += count

    def done(self, count: int = 1) -> None:
        """Count messages that were stored."""
        self._outstanding -= count
        if self._window < self._full:
            self._window = min(self._full, self._window << min(count, _MOST_DOUBLINGS))

    def refused(self) -> None:
        """Count out a message that was refused."""
        self._outstanding -= 1

    def failed(self) -> None:
        """Hold the peer back, as the store takes none now: ask for one more after a while."""
        if not self._is_held_back:
            self._broker.again(self._probe)
        self._window, self._is_held_back = 1, True

    def go_on(self) -> None:
        """Give credit when all that came in this turn was taken in, and is counted."""
        self._connection.has_output()
        if not self._is_due:
            self._is_due = True
            self._broker.before_dispatch(self.give)

    def give(self) -> None:
        """Give what the peer may have now; nothing until half the window is free."""
        self._is_due = False
        is_over = self.takes_none or self._broker.is_stopping or self._link.is_gone
        if is_over or self._is_held_back:
            return
        credit = self._link.credit
        more = self._window - credit - self._outstanding
        if more > 0 and more * 2 >= self._window:
            if self._answering is not None:
                self._answering.granted(credit + more)
            self._link.flow(credit + more)

    def _probe(self) -> None:
        self._is_held_back = False
        if not self.takes_none:
            self.go_on()

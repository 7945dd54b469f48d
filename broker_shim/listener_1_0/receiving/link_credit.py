"""When one link on which a client sends gets more credit, and how much (`credit_window`)."""

from __future__ import annotations

from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.receiving.credit_window import CreditWindow
from broker_shim.listener_1_0.receiving.received_deliveries import ReceivedDeliveries
from broker_shim.protocol_1_0.links.receiver import ReceiverLink


class LinkCredit:
    """The credit of one link on which a client sends. On the loop's thread only.

    Attributes:
        takes_none: True once nothing more is taken.
    """

    def __init__(
        self,
        connection: Connection,
        link: ReceiverLink,
        window: CreditWindow,
        answering: ReceivedDeliveries | None,
    ) -> None:
        """Begin before the link is answered.

        Args:
            connection: That the link is on.
            link: Of the protocol.
            window: Says how much.
            answering: Told before more is given, if the link answers in two steps.
        """
        self._connection, self._broker, self._link = connection, connection.broker, link
        self._window, self._answering = window, answering
        self._is_due = self.takes_none = False

    def go_on(self) -> None:
        """Give credit when all that came in this turn was taken in, and is counted."""
        self._connection.has_output()
        if not self._is_due:
            self._is_due = True
            self._broker.before_dispatch(self.give)

    def failed(self) -> None:
        """Ask for one more message after a while, as the store takes none now."""
        if not self._window.is_held_back:
            self._broker.again(self._probe)
        self._window.failed()

    def give(self) -> None:
        """Give what the peer may have now."""
        self._is_due = False
        if self.takes_none or self._broker.is_stopping or self._link.is_gone:
            return
        credit = self._link.credit
        more = self._window.to_give(credit)
        if more:
            if self._answering is not None:
                self._answering.granted(credit + more)
            self._link.flow(credit + more)

    def _probe(self) -> None:
        self._window.probe()
        if not self.takes_none:
            self.go_on()

"""Where the messages of one sending link go out: its credit, its transfers, its tags.

What becomes of a message that does not go out is decided by `broker.delivery`, for every protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker_shim.broker.delivery.consumer_delivery import ConsumerDelivery
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.resumption import tag_of
from broker_shim.listener_1_0.sending.wire import Wire
from broker_shim.listener_1_0.transactions.acquisitions import Acquisitions
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.protocol_1_0.links.sender import SenderLink

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


class LinkOutlet:
    """The outlet of one link; a `ResumingOutlet`. On the loop's thread only.

    Attributes:
        delivery: What brings it its messages.
    """

    def __init__(
        self,
        owner: OutgoingLink,
        connection: Connection,
        link: SenderLink,
        acquisitions: Acquisitions,
        *,
        is_settled: bool,
    ) -> None:
        """Begin before the first message is sent.

        Args:
            owner: The link's endpoint.
            connection: The connection that the link is on.
            link: Of the protocol.
            acquisitions: What the link acquires in transactions.
            is_settled: The peer asked for settled deliveries.
        """
        self._owner, self._connection, self._link = owner, connection, link
        self._broker, self._acquisitions = connection.broker, acquisitions
        self._is_settled = is_settled
        self._wire = Wire(link, connection.broker.calls.contents)
        self.delivery = ConsumerDelivery(
            owner.holdings,
            connection.broker.undelivered,
            owner,
            self,
            is_settled=is_settled,
            resuming=self,
            now_us=lambda: connection.now_us(),  # noqa: PLW0108  # tests change it
        )

    @property
    def is_gone(self) -> bool:
        """True once the link's endpoint is gone. See `Outlet`."""
        return self._owner.is_gone

    def took(self, run: TakenRun) -> None:
        """Do nothing: the credit of a link is spent by its transfers. See `Outlet`."""

    def unsent(self, run: TakenRun) -> None:
        """Do nothing: the credit of an unsent message was not spent. See `Outlet`."""

    @property
    def room(self) -> int:
        """The number of transfers that the link has credit for. See `Outlet`."""
        return self._link.credit

    def may_send_again(self) -> bool:
        """Tell whether the link has credit to resume a delivery. See `Outlet`."""
        return self._link.resume_credit > 0

    def fits(self, run: TakenRun) -> Sequence[bool]:
        """Tell of each message whether the client takes one of its size. See `Outlet`."""
        return self._wire.takes(run)

    def send(self, run: TakenRun, failures: Sequence[int]) -> None:
        """Send messages as deliveries of the link, in this order. See `Outlet.send`."""
        sent = self._wire.send(
            [*map(tag_of, run.message_ids)],
            run,
            failures,
            now_us=self._connection.now_us(),
            # What is off its queue already cannot be given back: it waits for credit.
            waits=self._is_settled,
            state=self._acquisitions.state,
        )
        self._owner.sent(sent)
        if self._is_settled:
            run.release()
        elif not run.is_large:
            for begun in sent:
                begun.held.went()

    def begin(self, run: TakenRun, failures: int) -> None:
        """Begin to send a large message, and write it piece by piece. See `Outlet.begin`."""
        self.send(run, (failures,))
        self._broker.later(0.0, self.write)

    def keep(self, message_id: int, delay_s: float) -> None:
        """Have the link send a message later that its client has in pieces. See `Outlet`."""
        self._owner.send_later(message_id, delay_s)

    def went(self) -> None:
        """Have the connection write, and let the link take more. See `Outlet`."""
        self._connection.has_output()
        self._owner.refresh()

    def gone(self) -> None:
        """End the outlet: what is under way goes back, and what is sent in pieces is forgotten."""
        self.delivery.gone()
        if self._wire.large is not None:
            self.delivery.large_ended(self._wire.large, is_sent=False)
            self._wire.drop()

    def write(self) -> None:
        """Go on with the large message that is being sent, if any: there is room again."""
        taken = self._wire.large
        if taken is None or self._owner.is_gone:
            return
        try:
            is_written = self._wire.go_on(self._connection.room_bytes(self._link))
        except StoreError as error:
            self._wire.break_off().held = None  # nothing is to be decided about it any more
            self.delivery.large_failed(taken, error)
            return
        if is_written:
            self.delivery.large_ended(taken, is_sent=True)
        else:
            self._owner.wait_for_room()
        self._connection.has_output()

    @property
    def is_sending(self) -> bool:
        """True while a delivery is begun and not sent whole."""
        return self._wire.large is not None

    def decided(self, delivery: Run) -> bool:
        """Break off a delivery that was decided about before all of it was sent; True if so."""
        if not self._wire.is_sending(delivery):
            return False
        assert self._wire.large is not None
        self.delivery.large_ended(self._wire.large, is_sent=False)
        self._wire.break_off()
        return True

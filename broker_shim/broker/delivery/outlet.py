"""The narrow side that a listener brings to a delivery: its credit, its frames, and its tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker_shim.broker.delivery.taken_message import Arrived, TakenMessage
from broker_shim.messages.residency import LoadedMessage
from broker_shim.store.interface import MessageHeader


class Outlet(Protocol):
    """The way out of one consumer's messages. On the loop's thread only."""

    @property
    def is_gone(self) -> bool:
        """True once nothing can be sent any more."""

    def took(self, batch: Sequence[TakenMessage]) -> None:
        """Spend credit on messages that are on their way now, if it is spent that early."""

    def may_send(self) -> bool:
        """Tell whether there is credit for one more message now."""

    def may_send_all(self, arrived: Sequence[Arrived]) -> bool:
        """Tell whether all of these may go together: there is credit, and none is too large."""

    def fits(self, taken: TakenMessage, header: MessageHeader) -> bool:
        """Tell whether the client takes a message of this size."""

    def send(self, arrived: Sequence[Arrived], failures: Sequence[int]) -> None:
        """Send messages in this order: all of them, or raise and send none.

        From then on their references are the outlet's. What has left its queue waits for credit.

        Args:
            arrived: The messages, with their content.
            failures: How often the delivery of each has failed.

        Raises:
            Exception: One of them cannot be written; if there is only one, it is this one.
        """

    def unsent(self, taken: TakenMessage) -> None:
        """Give back the credit of a message that is on its way no longer, and was not sent."""

    def went(self) -> None:
        """Go on: something was sent or went back, so more may be taken."""


class ResumingOutlet(Outlet, Protocol):
    """An outlet whose client has large messages in pieces, and others again after it was away."""

    def begin(self, taken: TakenMessage, header: MessageHeader, failures: int) -> None:
        """Begin to send a large message; `ConsumerDelivery.large_ended` says that it is over.

        Raises:
            Exception: It cannot be written.
        """

    def may_send_again(self) -> bool:
        """Tell whether a message may go out again that the consumer holds from before."""

    def keep(self, message_id: int, delay_s: float) -> None:
        """Keep a message that the consumer holds from before: it could not be sent again now."""


class CopyOutlet(Protocol):
    """The way out of copies to a browser of a queue. On the loop's thread only."""

    @property
    def is_gone(self) -> bool:
        """True once nothing can be sent any more."""

    def took(self, batch: Sequence[TakenMessage]) -> None:
        """Spend credit on copies that are on their way now, if it is spent that early."""

    def unsent(self, taken: TakenMessage) -> None:
        """Give back the credit of a copy that is on its way no longer, and was not sent."""

    def copy(
        self,
        taken: TakenMessage,
        header: MessageHeader,
        content: LoadedMessage | None,
        failures: int,
    ) -> bool:
        """Send a copy; without `content` it is a large one, and begins to be sent.

        Returns:
            False if the client takes no message of this size.

        Raises:
            Exception: It cannot be written.
        """

    def went(self) -> None:
        """Go on: something was sent, or is never shown."""

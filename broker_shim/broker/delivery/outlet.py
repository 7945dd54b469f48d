"""The narrow side that a listener brings to a delivery: its credit, its frames, and its tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker_shim.broker.delivery.taken_run import TakenRun


class Outlet(Protocol):
    """The way out of one consumer's messages. On the loop's thread only."""

    @property
    def is_gone(self) -> bool:
        """True once nothing can be sent any more."""

    def took(self, run: TakenRun) -> None:
        """Spend credit on messages that are on their way now, if it is spent that early."""

    @property
    def room(self) -> int:
        """The number of messages that there is credit for now."""

    def fits(self, run: TakenRun) -> Sequence[bool]:
        """Tell of each message whether the client takes one of its size."""

    def send(self, run: TakenRun, failures: Sequence[int]) -> None:
        """Send messages with their content: all of them, or raise and send none.

        From then on the run is the outlet's. What has left its queue waits for credit.

        Args:
            run: Messages that follow each other, and their content.
            failures: How often the delivery of each has failed.

        Raises:
            Exception: One of them cannot be written; if there is only one, it is this one.
        """

    def unsent(self, run: TakenRun) -> None:
        """Give back the credit of messages that are on their way no longer, and were not sent."""

    def went(self) -> None:
        """Go on: something was sent or went back, so more may be taken."""


class ResumingOutlet(Outlet, Protocol):
    """An outlet whose client has large messages in pieces, and others again after it was away."""

    def begin(self, run: TakenRun, failures: int) -> None:
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

    def took(self, run: TakenRun) -> None:
        """Spend credit on copies that are on their way now, if it is spent that early."""

    def unsent(self, run: TakenRun) -> None:
        """Give back the credit of copies that are on their way no longer, and were not sent."""

    def copy(self, run: TakenRun, failures: int) -> bool:
        """Send a copy, a run of one; a large one begins to be sent.

        Returns:
            False if the client takes no message of this size.

        Raises:
            Exception: It cannot be written.
        """

    def went(self) -> None:
        """Go on: something was sent, or is never shown."""

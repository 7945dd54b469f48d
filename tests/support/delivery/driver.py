"""What a client of any protocol does with messages, as far as the rules of delivery need it.

A protocol's driver answers each of these. A row of the suite that needs more adds it here, and then
no driver can be made that does not answer it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from tests.support.delivery.places import DeliveryPlace


class Got(NamedTuple):
    """A message that came.

    Attributes:
        body: Its content.
        number: What the protocol calls the delivery.
        is_redelivered: It says that it was delivered before.
    """

    body: str
    number: int
    is_redelivered: bool


class Driver(ABC):
    """One client: a connection with one consumer at most.

    It takes and sends frames as small as its protocol allows if it `has_small_frames`.

    Attributes:
        name: Of the protocol.
        place: Where the client is.
    """

    name: ClassVar[str]

    def __init__(self, place: DeliveryPlace, *, has_small_frames: bool = False) -> None:
        self.place, self.has_small_frames = place, has_small_frames

    @abstractmethod
    def send(self, queue: str, *bodies: str, **said: Any) -> list[bool]:
        """Send messages, durable unless `said`; whether each was taken, once that is told.

        `said` is of their headers: `durable`, `ttl_ms`, `priority`, `group`, `properties`,
        `message_id` (a text or a number), and `delivery`: what they say of the time of their
        delivery, by the name of an annotation.
        """

    @abstractmethod
    def declare(self, queue: str, **arguments: Any) -> None:
        """Have a queue with arguments, as a client of this protocol makes one, if it can."""

    @abstractmethod
    def consume(
        self,
        queue: str,
        credit: int = 100,
        *,
        selector: str | None = None,
        settled: bool = False,
        browse: bool = False,
        kept: bool = False,
    ) -> None:
        """Begin to consume; the answer is awaited. One that is `kept` may `come_back`."""

    @property
    @abstractmethod
    def is_turned_away(self) -> bool:
        """True if the consumer, or what it is of, was ended by the broker."""

    @abstractmethod
    def got(self) -> list[Got]:
        """All that came to the consumer so far, in order."""

    @abstractmethod
    def drain(self) -> None:
        """Take what there is now; return when the broker has said that nothing is left."""

    def drain_what_is_there(self) -> None:
        """Move the broker as far as it goes by itself; what is under way may not have ended."""
        self.place.run()

    @abstractmethod
    def accept(self, *deliveries: Got) -> None:
        """Accept deliveries, within the transaction if one has begun."""

    @abstractmethod
    def release(self, *deliveries: Got, failed: bool = False) -> None:
        """Give deliveries back."""

    @abstractmethod
    def reject(self, *deliveries: Got) -> None:
        """Reject deliveries, outside of any transaction."""

    @abstractmethod
    def renew(self, *deliveries: Got) -> bool:
        """Ask for more time to decide about deliveries; False if the protocol has no such word."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def commit(self) -> bool:
        """Commit it; False if that was refused."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll it back."""

    @abstractmethod
    def cancel(self) -> None:
        """End the consumer in good order; what it was sent and did not decide waits again."""

    @abstractmethod
    def lose(self) -> None:
        """Lose the connection."""

    @abstractmethod
    def come_back(self, *, undecided: Sequence[Got], accepted: Sequence[Got]) -> None:
        """Lose the connection, and go on with the consumer on another one.

        Args:
            undecided: What the client has, and has not decided about.
            accepted: What it has accepted, of which the broker has not heard.

        It has no trace of all else. From then on `got` has what it is to decide about: what is
        undecided, and what comes.
        """

    def bodies(self) -> list[str]:
        """The bodies of what came."""
        return [each.body for each in self.got()]

    def receive(self, count: int) -> Sequence[Got]:
        """Wait until so many messages have come in all; the newest of them."""
        self.place.until(lambda: len(self.got()) >= count, f"{count} messages of {self.name}")
        return self.got()[:count]

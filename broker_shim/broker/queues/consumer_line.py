"""The consumers of a queue in the order in which they came. Pure.

Where a queue has a single active consumer, only the first of them gets messages. The others stand
by, as if they had given no credit, until it is gone; what it held is back on the queue by then, or
comes back as anything that is given back.
"""

from __future__ import annotations

from broker_shim.broker.queues.selective_cursor import Consumer


class ConsumerLine:
    """The consumers of one queue, some of which may stand by.

    Attributes:
        is_single: Only the first consumer gets any.
    """

    def __init__(self, *, is_single: bool) -> None:
        self.is_single = is_single
        self._consumers: dict[Consumer, None] = {}

    def add(self, consumer: Consumer) -> None:
        """Add a consumer, after the others."""
        self._consumers[consumer] = None

    def discard(self, consumer: Consumer) -> None:
        """Remove a consumer, if it is there."""
        self._consumers.pop(consumer, None)

    def stands_by(self, consumer: Consumer) -> bool:
        """True if a consumer gets nothing, as another one came before it."""
        return self.is_single and next(iter(self._consumers), consumer) is not consumer

    def credit_of(self, consumer: Consumer) -> int:
        """The number of messages that a consumer takes now; none while it stands by."""
        return 0 if self.is_single and self.stands_by(consumer) else consumer.credit

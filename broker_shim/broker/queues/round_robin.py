"""Consumers of a queue who take whatever is next, one message each in turn. Pure.

Where a queue has a single active consumer, only the first of them gets messages. The others stand
by, as if they had given no credit, until it is gone; what it held is back on the queue by then, or
comes back as anything that is given back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping

from broker_shim.broker.queues.queue_index import Cursor, QueueIndex
from broker_shim.broker.queues.selective_cursor import Batch, Consumer, MeasuringConsumer


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


_LOOK = 256
"""So many are looked at in one go, at most."""

Shares = dict[Consumer, list[tuple[int, int]]]
"""(place, message id) of what each is to get."""


class RoundRobin:
    """The consumers without a selector, in the order of their turns.

    It says who gets what; whoever asks holds it for them.

    Args:
        credit_of: How many messages a consumer takes now.
        measuring: Consumers that are asked about each message, kept up to date by the caller.
        refused_by: By message id, who must not get it; likewise.
    """

    def __init__(
        self,
        credit_of: Callable[[Consumer], int],
        measuring: Mapping[Consumer, MeasuringConsumer],
        refused_by: Mapping[int, Collection[Consumer]],
    ) -> None:
        self._credit_of = credit_of
        self._measuring, self._refused_by = measuring, refused_by
        self._consumers: deque[Consumer] = deque()

    def __len__(self) -> int:
        """The number of consumers in turn."""
        return len(self._consumers)

    def __iter__(self) -> Iterator[Consumer]:
        """Iterate over the consumers, the one whose turn it is first."""
        return iter(self._consumers)

    def add(self, consumer: Consumer) -> None:
        """Add a consumer, after the others."""
        self._consumers.append(consumer)

    def discard(self, consumer: Consumer) -> None:
        """Remove a consumer, if it is there."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def clear(self) -> None:
        """Remove all consumers at once."""
        self._consumers.clear()

    def deal(self, index: QueueIndex) -> Shares:
        """Deal waiting messages to consumers with credit, one each in turn."""
        measuring = self._measuring
        left: dict[Consumer, int] = {}
        for user in self._consumers:
            if (credit := self._credit_of(user)) > 0:
                # Those that measure get one at a time: its bytes decide about the next.
                left[user] = 1 if user in measuring and measuring[user].measures else credit
        shares: Shares = {}
        turns, looking, last = deque(left), Cursor(), None
        while turns and (batch := index.look(looking, min(sum(left.values()), _LOOK))):
            last = self._share_out(batch, turns, left, shares) or last
        if last is not None:  # it is the others' turn next
            self._consumers.rotate(-1 - self._consumers.index(last))
        return shares

    def _share_out(
        self, batch: Batch, turns: deque[Consumer], left: dict[Consumer, int], shares: Shares
    ) -> Consumer | None:
        """Deal out a batch, as far as there is credit `left`; who got the last of it."""
        if len(turns) == 1 and not (self._measuring or self._refused_by):  # as most: all at once
            shares.setdefault(turns[0], []).extend(batch)
            left[turns[0]] -= len(batch)
            return turns[0] if left[turns[0]] else turns.popleft()
        last = None
        for place, message_id in batch:
            consumer = self._next_of(turns, message_id)
            if consumer is None:
                continue
            last = consumer
            shares.setdefault(consumer, []).append((place, message_id))
            left[consumer] -= 1
            if not left[consumer]:
                turns.remove(consumer)
                if not turns:
                    break
        return last

    def _next_of(self, turns: deque[Consumer], message_id: int) -> Consumer | None:
        """Find the next in turn that has not refused this message."""
        refusers = self._refused_by.get(message_id, ())
        for _ in range(len(turns)):
            consumer = turns[0]
            turns.rotate(-1)
            if consumer in refusers:
                continue
            measuring = self._measuring.get(consumer)
            if measuring is None or measuring.takes(message_id):
                return consumer
            turns.remove(consumer)  # it waits for bytes: nothing overtakes this message
        return None

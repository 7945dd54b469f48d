"""A consumer that does not want whatever comes next: its own place in the queue. Pure.

It looks at each waiting message once, in order, in batches whose headers the caller reads
(`header_scan`), and remembers what it found and has not taken, at most a batch. A message that was
given back behind its cursor is looked at again, alone: the cursor never goes back for it. The one
thing that sends it back to the head of the queue is a message group that became free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from broker_shim.broker.queues.message_groups import Groups, bucket_of
from broker_shim.broker.queues.queue_index import Cursor, QueueIndex
from broker_shim.messages.header import CommonHeader
from broker_shim.selectors import Selector

Batch = list[tuple[int, int]]
"""(place, message id) of waiting messages, in order."""

_GROUP = "JMSXGroupID"


def group_of(header: CommonHeader) -> int | None:
    """Find the bucket of a message's group; None: it is of no group."""
    group = header.get(_GROUP)
    return bucket_of(group) if isinstance(group, str) and group else None


class WorkBudget:
    """The work that may be done in one go, in steps of some µs.

    Attributes:
        left: Of them; what was begun with one left is ended.
    """

    def __init__(self, left: int) -> None:
        self.left = left


class Browser(Protocol):
    """A client that looks at a queue and takes nothing."""

    def look(self) -> None:
        """Look at the queue, where something may be new."""

    def queue_deleted(self) -> None:
        """An administrator deletes the queue: end your link."""


class Consumer(Protocol):
    """A client that takes messages from a queue."""

    @property
    def holder(self) -> str:
        """The name by which the store knows the consumer."""

    @property
    def is_draining(self) -> bool:
        """True while the consumer waits for what there is now, or to hear that there is nothing."""

    @property
    def credit(self) -> int:
        """The number of messages that it takes now."""

    def assign(self, message_ids: Sequence[int]) -> int:
        """Deliver messages that are held for the consumer, in order; `credit` of them at most.

        Lower your credit by as many as you take.

        Returns:
            How many: the first ones, one at least.
        """

    def caught_up(self) -> None:
        """Hear that all that waits was looked at for you, and nothing is left that you want."""

    def queue_deleted(self) -> None:
        """An administrator deletes the queue: end your link."""

    def turned_away(self, reason: str) -> None:
        """End your link: another consumer has the queue alone, says the broker that decides."""


class MeasuringConsumer(Consumer, Protocol):
    """A consumer whose credit depends on what comes: it has bytes beside messages."""

    @property
    def measures(self) -> bool:
        """False while the bytes of messages do not matter to it: it takes whatever comes."""

    def takes(self, message_id: int) -> bool:
        """Whether this message is next for you; False leaves you without credit (`credit` is 0)."""


class Match(NamedTuple):
    """A message that somebody wants; the order of the tuple is the order of the queue."""

    place: int
    message_id: int
    group: int | None


class SelectiveCursor:
    """One consumer's look at one queue.

    Attributes:
        consumer: The consumer that gets what its selector takes.
        selector: What it wants; None: everything.
    """

    def __init__(
        self, consumer: Consumer, selector: Selector | None, groups: Groups | None
    ) -> None:
        self.consumer = consumer
        self.selector = selector
        self._groups = groups
        self._cursor = Cursor()
        self._again: dict[int, int] = {}
        self._found: list[Match] = []
        self._is_reading = False
        if groups is not None:
            groups.came(consumer.holder, consumer)

    def is_done(self, index: QueueIndex) -> bool:
        """True if nothing that waits is left to look at or to take."""
        return not (self._is_reading or self._found or self._again) and index.is_past(self._cursor)

    def next_batch(self, index: QueueIndex, count: int) -> Batch:
        """Choose what to look at next: nothing that comes after what was found already.

        End it by `judge` or `put_off`.
        """
        before = self._found[0].place if self._found else None
        batch = sorted(self._again.items())[:count]
        for place, _id in batch:
            del self._again[place]
        batch += index.look(self._cursor, count - len(batch), before)
        self._is_reading = bool(batch)
        return batch

    def put_off(self, batch: Batch) -> None:
        """Look at a batch later, which cannot be looked at now."""
        self._is_reading = False
        self._again.update(batch)

    def given_back(self, place: int, message_id: int) -> None:
        """A message waits again."""
        self._again[place] = message_id

    def judge(
        self, batch: Batch, headers: Mapping[int, CommonHeader | None], steps: WorkBudget
    ) -> Batch:
        """Remember what is wanted of a batch; one without a header is on no queue any more.

        Returns:
            What there were no steps left for: judge that next.
        """
        for number, (place, message_id) in enumerate(batch):
            if steps.left <= 0:
                return batch[number:]
            header = headers.get(message_id)
            if header is None:
                continue
            steps.left -= 1 + header.steps
            if self.selector is not None:
                steps.left -= self.selector.steps
                if not self.selector.fits(header.get):
                    continue
            group = None if self._groups is None else group_of(header)
            if self._groups is None or self._groups.may_have(group, self.consumer):
                heappush(self._found, Match(place, message_id, group))
        self._is_reading = False
        return []

    def take(self, index: QueueIndex) -> Match | None:
        """Take the next that is wanted and still there for it; it is the caller's to hold.

        None, too, while something that comes before it was not looked at.
        """
        while self._found and not self._is_behind(index):
            match = heappop(self._found)
            if index.waits(match.place, match.message_id) and (
                self._groups is None or self._groups.may_have(match.group, self.consumer)
            ):
                return match
        return None

    def _is_behind(self, index: QueueIndex) -> bool:
        first = self._found[0].place
        if self._is_reading or not index.is_past(self._cursor, first):
            return True
        return bool(self._again) and min(self._again) < first

    def restart(self) -> None:
        """Look at everything anew."""
        self._cursor = Cursor()
        self._again.clear()
        self._found.clear()

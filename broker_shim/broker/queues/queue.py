"""The dispatch of one queue: which consumer gets which message next.

Pure: ids, never bodies; no store, no clock.

Higher priority first, then the order of arrival; a message that was given back is again where it
was. Consumers with credit take turns. A consumer with a selector, and every consumer of a queue
with message groups, has a look of its own at the queue (`selective_cursor`). It is offered what it
wants before the others are, who take the next message whatever it is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from typing import Protocol

from broker_shim.broker.queues.delayed_messages import DelayedMessages
from broker_shim.broker.queues.last_values import LastValues
from broker_shim.broker.queues.local_messages import NoLocal
from broker_shim.broker.queues.message_groups import Groups
from broker_shim.broker.queues.queue_index import Cursor, QueueIndex, Survivors, Withdrawn
from broker_shim.broker.queues.round_robin import ConsumerLine, RoundRobin
from broker_shim.broker.queues.selective_cursor import (
    Batch,
    Browser,
    Consumer,
    MeasuringConsumer,
    SelectiveCursor,
    WorkBudget,
)
from broker_shim.broker.queues.taken_out import TakenOut, TakenOutRuns
from broker_shim.messages.header import CommonHeader
from broker_shim.selectors import Selector
from sparkstore.core.fold import Entry
from sparkstore.core.queue_arguments import QueueArguments


class UseWatcher(Protocol):
    """A listener that wants to know whether queues are used."""

    def used(self, queue: QueueDispatch) -> None:
        """Hear that a consumer was added."""

    def unused(self, queue: QueueDispatch) -> None:
        """Hear that the last consumer is gone."""


_FEW = 16
"""Consumers that are dealt to in some µs."""


class QueueDispatch:
    """The messages and the consumers of one queue, and who holds what.

    Invariant: a message on the queue is either waiting or held, never both. What another member of
    the store's service holds is held here, too, by nobody of this broker (`elsewhere`).

    Attributes:
        name: Of the queue.
        is_kept: Durable messages on it survive a restart.
        arguments: What the queue asks of its messages.
        groups: Who has which message group, if the queue asks for that.
        browsers: Who looks at it.
        last_values: Which message is the newest of its key, on a last-value queue.
        arrivals: Messages that came to it, since the start.
        departures: Messages that left it, since the start.
        departed: How many of them left in which way, as far as that is known where they leave.
        redelivered: Failed deliveries of its messages, since the start.
        dead_lettered: Messages that went from it to its dead letters, since the start.
        elsewhere: The messages that other members hold; they are held here, too.
        owner: Whose client had the broker make and name it (`owners.shared`); None: nobody's.
        maker: The number of the connection that did; None: nobody, or before a restart.
        watcher: Told when consumers come, and when the last one goes.
        only: What is not so is not routed here (a subscription with a selector).
        delayed: Messages that are hidden until their time.
        no_local: Whose messages are not routed here either; None: everybody's are.
    """

    def __init__(
        self,
        name: str,
        *,
        is_kept: bool = True,
        arguments: QueueArguments = QueueArguments(),  # noqa: B008  # a value, and frozen
    ) -> None:
        self.name = name
        self.is_kept = is_kept
        self.arguments = arguments
        self._index = QueueIndex()
        self._held: dict[int, int] = {}
        self._taken_out = TakenOutRuns(self._index, self.withdraw)
        self.elsewhere: set[int] = set()
        self._delivery_counts: dict[int, int] = {}
        self._refused_by: dict[int, set[Consumer]] = {}
        self._cursors: deque[SelectiveCursor] = deque()
        self._measuring: dict[Consumer, MeasuringConsumer] = {}
        self._line = ConsumerLine(is_single=arguments.single_active_consumer)
        self._credit_of = self._line.credit_of
        self._consumers = RoundRobin(self._credit_of, self._measuring, self._refused_by)
        self.groups = Groups() if arguments.message_groups else None
        self.browsers: list[Browser] = []
        key = arguments.last_value_key
        self.last_values = None if key is None else LastValues(key)
        self._not_durable: set[int] = set()
        self.watcher: UseWatcher | None = None
        self.delayed = DelayedMessages(self._index, self._held)
        self.only: Selector | None = None
        self.no_local: NoLocal | None = None
        self.owner: str | None = None
        self.maker: int | None = None
        self.redelivered = self.dead_lettered = 0
        self.arrivals = self.departures = 0
        self.departed = Counter[str]()

    def __len__(self) -> int:
        """The number of messages on the queue, held ones too."""
        return len(self._index) + self.held_count

    def __contains__(self, message_id: int) -> bool:
        """True if a message is on the queue."""
        return self._holds(message_id) or self._index.find(message_id) is not None

    @property
    def held_count(self) -> int:
        """The number of messages that are held."""
        return len(self._held) + len(self._taken_out)

    def _holds(self, message_id: int) -> bool:
        return message_id in self._held or message_id in self._taken_out

    @property
    def consumer_count(self) -> int:
        """The number of consumers that are attached."""
        return len(self._consumers) + len(self._cursors)

    @property
    def is_simple(self) -> bool:
        """True if `dispatch` is little work, and it alone says who gets what."""
        has_few = not self._cursors and len(self._consumers) <= _FEW
        return has_few and self.last_values is None

    @property
    def consumers(self) -> list[Consumer]:
        """The consumers that are attached."""
        return [*self._consumers, *(cursor.consumer for cursor in self._cursors)]

    def alter(self, arguments: QueueArguments) -> None:
        """Take other arguments of the queue, from now on.

        Whose last values change has nothing on it that is known, and a consumer that is there when
        message groups change takes its place anew (see `sparkstore.operations.queue_alteration`).
        """
        before, self.arguments = self.arguments, arguments
        self._line.is_single = arguments.single_active_consumer
        key = arguments.last_value_key
        if key != before.last_value_key:
            self.last_values = None if key is None else LastValues(key)
        if arguments.message_groups != before.message_groups:
            attached: list[tuple[Consumer, Selector | None]]
            attached = [(consumer, None) for consumer in self._consumers]
            attached += [(cursor.consumer, cursor.selector) for cursor in self._cursors]
            self.groups = Groups() if arguments.message_groups else None
            self._consumers.clear()
            self._cursors.clear()
            for consumer, selector in attached:
                self.add(consumer, selector)
        if self.watcher is not None and self.consumer_count:
            self.watcher.used(self)

    def recovered(self, survivors: Iterable[Survivors]) -> None:
        """Take what survived a restart, in queue order; once, before anything arrives."""
        for message_ids, priorities, failures in survivors:
            self._delivery_counts.update(failures)
            self._index.recovered(message_ids, priorities)

    @property
    def not_durable(self) -> int:
        """The number of messages that end with the broker, and that SQL does not see."""
        return len(self._not_durable) if self.is_kept else len(self)

    def arrived(self, message_ids: Sequence[int], priority: int, *, durable: bool = True) -> None:
        """Add messages that were enqueued, in this order."""
        self.arrivals += len(message_ids)
        self._index.extend(message_ids, priority)
        if not durable:
            self._not_durable.update(message_ids)

    def released(self, message_id: int, *, delivery_failed: bool) -> None:
        """Let a held message wait again."""
        place = self._held.pop(message_id)
        self.elsewhere.discard(message_id)
        self._index.put_back(place)
        for cursor in self._cursors:
            cursor.given_back(place, message_id)
        self._ended(message_id)
        if self.last_values is not None:
            self.last_values.released(message_id)
        if delivery_failed:
            self.redelivered += 1
            self._delivery_counts[message_id] = self.delivery_count(message_id) + 1

    def withdraw(self, message_ids: Iterable[int]) -> Withdrawn:
        """Take waiting messages out of dispatch; end each by `released` or `removed`."""
        held, left, gone = [], 0, 0
        for message_id in message_ids:
            place = None if message_id in self._held else self._index.find(message_id)
            if place is not None:
                self._hold(place, message_id)
                held.append(message_id)
            elif self._holds(message_id):
                left += 1
            else:
                gone += 1
        return Withdrawn(held, left, gone)

    def take_out(self, message_ids: Sequence[int], most: int) -> TakenOut:
        """Take waiting messages out of dispatch, as runs where many that follow each other wait.

        End what is held by `removed` or `waits_again`: what is a range by ranges within it.

        Args:
            message_ids: In the order of the queue.
            most: Leave the rest alone once so many are in no run; a run counts as some.
        """
        are_alike = self.groups is None and self.last_values is None
        return self._taken_out.take(message_ids, most, as_runs=are_alike)

    def waits_again(self, message_ids: Sequence[int]) -> None:
        """Let messages wait that were taken out, or are held."""
        if type(message_ids) is range and message_ids.start in self._taken_out:
            self._held.update(self._taken_out.come_back(message_ids))
        for message_id in message_ids:
            self.released(message_id, delivery_failed=False)

    def removed(self, message_ids: Sequence[int], kind: str = "other") -> None:
        """Forget held messages that left the queue, all in one way, as history names it."""
        if type(message_ids) is range and message_ids.start in self._taken_out:
            self._taken_out.left(message_ids)
        else:
            self._index.drop([self._held.pop(message_id) for message_id in message_ids])
        self._departed(message_ids, kind)
        if self.groups is not None or self.last_values is not None:
            for message_id in message_ids:
                self._ended(message_id)
                if self.last_values is not None:
                    self.last_values.ended(message_id)

    def _departed(self, message_ids: Sequence[int], kind: str) -> None:
        self.departures += len(message_ids)
        self.departed[kind] += len(message_ids)
        for noted in (self._not_durable, self.elsewhere):
            if noted:
                noted.difference_update(message_ids)
        for counted in (self._delivery_counts, self._refused_by):
            if counted:
                for message_id in message_ids:
                    counted.pop(message_id, None)

    def held_elsewhere(self, message_ids: Sequence[int]) -> None:
        """Note that others hold messages that waited here, or were handed out in vain.

        End it by `released` or `removed`, as they do.
        """
        self.taken_elsewhere(message_ids)
        self.elsewhere.update(filter(self._held.__contains__, message_ids))

    def taken_elsewhere(self, message_ids: Sequence[int]) -> None:
        """Note that others hold those of messages that waited here, as of `held_elsewhere`.

        What this broker has handed out itself is left to that: its own call tells what became
        of it.
        """
        others = filterfalse(self._held.__contains__, message_ids)
        self.elsewhere.update(self.withdraw(others).held)

    def held_here(self, message_id: int) -> None:
        """Note that a link of this broker holds now what another member held."""
        self.elsewhere.discard(message_id)

    def unknown(self, message_ids: Sequence[int]) -> Sequence[int]:
        """Return those of messages that are not on the queue; rising ones mostly are all new."""
        if message_ids and message_ids[0] > self._index.highest:
            return message_ids
        return [message_id for message_id in message_ids if message_id not in self]

    def cursor(self) -> Cursor:
        """Make the cursor of a browser, which begins at the head."""
        return Cursor()

    def can_look(self, _cursor: Cursor, _on_known: Callable[[], None]) -> bool:
        """True if what comes after a cursor is known; else `on_known` is called when it is."""
        return True

    def entry_of_browsed(self, _message_id: int) -> Entry | None:
        """Take the service's entry of a browsed message, once; None: the store knows it."""
        return None

    def take_browsed(self, message_id: int, _entry: Entry | None, _holder: str) -> Withdrawn:
        """Withdraw a message that a browser was shown with this entry (`entry_of_browsed`)."""
        return self.withdraw((message_id,))

    def is_acquired(self, _message_id: int) -> bool:
        """True if what was handed out needs no acquire: the store did it."""
        return False

    def waits(self, message_id: int) -> bool:
        """True if a message is on the queue, and held by nobody."""
        return message_id not in self._held and self._index.find(message_id) is not None

    def count_failures(self, message_id: int, delivery_count: int) -> None:
        """Note that a message comes with failed deliveries, before it arrives."""
        if delivery_count:
            self._delivery_counts[message_id] = delivery_count

    def delivery_count(self, message_id: int) -> int:
        """The number of failed deliveries of a message so far."""
        return self._delivery_counts.get(message_id, 0)

    def delivery_counts(self, message_ids: Sequence[int]) -> list[int]:
        """Tell the `delivery_count` of each message."""
        counts = self._delivery_counts
        return [counts.get(i, 0) for i in message_ids] if counts else [0] * len(message_ids)

    def failed_too_often(self) -> list[int]:
        """List waiting messages that failed more often than the queue allows."""
        is_over_delivered = self.arguments.is_over_delivered
        failed = [i for i, n in self._delivery_counts.items() if is_over_delivered(n)]
        return [i for i in failed if self._index.find(i) is not None]

    def add_measuring(self, consumer: MeasuringConsumer, selector: Selector | None = None) -> None:
        """Add a consumer that is asked about each message (`ConsumerCredit`)."""
        self._measuring[consumer] = consumer
        self.add(consumer, selector)

    def add(self, consumer: Consumer, selector: Selector | None = None) -> None:
        """Add a consumer, after the others."""
        self._line.add(consumer)
        if selector is None and self.groups is None:
            self._consumers.add(consumer)
        else:
            self._cursors.append(SelectiveCursor(consumer, selector, self.groups))
        if self.watcher is not None:
            self.watcher.used(self)

    def discard(self, consumer: Consumer) -> None:
        """Remove a consumer; what it holds is for the caller to release."""
        self._measuring.pop(consumer, None)
        self._line.discard(consumer)
        self._consumers.discard(consumer)
        for cursor in [cursor for cursor in self._cursors if cursor.consumer is consumer]:
            self._cursors.remove(cursor)
            if self.groups is not None and self.groups.left(consumer):
                self._look_anew()
        for refusers in self._refused_by.values():
            refusers.discard(consumer)
        if self.watcher is not None and not self.consumer_count:
            self.watcher.unused(self)

    def refuse(self, message_id: int, consumer: Consumer) -> None:
        """Never hand a message to this consumer again (modified, undeliverable-here)."""
        self._refused_by.setdefault(message_id, set()).add(consumer)

    def dispatch(self) -> None:
        """Hand out messages to consumers with credit that take any, one each in turn.

        Each gets its share at once (`Consumer.assign`); what it does not take then waits again.
        What every consumer with credit has refused stays where it is.
        """
        while shares := self._consumers.deal(self._index):
            for share in shares.values():
                self._index.hold([place for place, _id in share])
                self._held.update([(message_id, place) for place, message_id in share])
            for consumer, share in shares.items():
                count = consumer.assign([message_id for _place, message_id in share])
                for place, message_id in share[count:]:
                    del self._held[message_id]
                    self._index.put_back(place)

    def to_look_at(self, count: int) -> list[tuple[SelectiveCursor, Batch]]:
        """Choose what consumers with credit look at next, `count` messages in all.

        End it by `judge`.
        """
        wanting = [cursor for cursor in self._cursors if self._credit_of(cursor.consumer) > 0]
        share = max(1, count // max(1, len(wanting)))
        batches = [(cursor, cursor.next_batch(self._index, share)) for cursor in wanting]
        return [(cursor, batch) for cursor, batch in batches if batch]

    def judge(
        self,
        batches: Sequence[tuple[SelectiveCursor, Batch]],
        headers: Mapping[int, CommonHeader | None],
        steps: WorkBudget,
    ) -> list[tuple[SelectiveCursor, Batch]]:
        """Have each consumer find what it wants among what it looked at.

        Returns:
            What there were no steps left for: judge that next.
        """
        judged = ((cursor, cursor.judge(batch, headers, steps)) for cursor, batch in batches)
        return [(cursor, left) for cursor, left in judged if left]

    def take_found(self) -> Iterator[tuple[int, Consumer]]:
        """Hand out what was found, one each in turn, and hold it: `assign` it to its consumer."""
        is_going_on = True
        while is_going_on:
            is_going_on = False
            for cursor in list(self._cursors):
                has_credit = self._credit_of(cursor.consumer) > 0
                match = cursor.take(self._index) if has_credit else None
                if match is None:
                    continue
                is_going_on = True
                if cursor.consumer in self._refused_by.get(match.message_id, ()):
                    continue
                if not self._is_taken(cursor.consumer, match.message_id):
                    cursor.given_back(match.place, match.message_id)
                    continue
                self._hold(match.place, match.message_id)
                if self.groups is not None:
                    self.groups.handed_out(match.message_id, match.group, cursor.consumer)
                yield match.message_id, cursor.consumer
        self._cursors.rotate(-1)

    def unfinished(self) -> bool:
        """True if a consumer with credit has more to look at."""
        return any(
            self._credit_of(cursor.consumer) > 0 and not cursor.is_done(self._index)
            for cursor in self._cursors
        )

    def has_caught_up(self, consumer: Consumer) -> bool:
        """True if nothing that waits is left for this consumer to look at, or it stands by."""
        its = [cursor for cursor in self._cursors if cursor.consumer is consumer]
        return self._line.stands_by(consumer) or all(cursor.is_done(self._index) for cursor in its)

    def caught_up(self) -> list[Consumer]:
        """List the consumers with credit who have looked at all that waits, or stand by."""
        consumers = [cursor.consumer for cursor in self._cursors if cursor.consumer.credit > 0]
        return [consumer for consumer in consumers if self.has_caught_up(consumer)]

    def browse(self, cursor: Cursor, count: int) -> Batch:
        """Get what waits after a cursor, in order, `count` at most, and move the cursor past it."""
        return self._index.look(cursor, count)

    def has_browsed(self, cursor: Cursor) -> bool:
        """True if nothing has come since the cursor was here."""
        return self._index.is_past(cursor)

    def _hold(self, place: int, message_id: int) -> None:
        self._index.hold((place,))
        self._held[message_id] = place

    def _ended(self, message_id: int) -> None:
        if self.groups is not None and self.groups.ended(message_id):
            self._look_anew()

    def _look_anew(self) -> None:
        for cursor in self._cursors:
            cursor.restart()

    def _is_taken(self, consumer: Consumer, message_id: int) -> bool:
        measuring = self._measuring.get(consumer)
        return measuring is None or measuring.takes(message_id)

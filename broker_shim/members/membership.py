"""A broker that is a member of a store service: what it says there, and what it is told.

After each new connection it says what it holds, and asks for its consumers' messages anew; the
service gives back all that was on its way. So nothing that was said before counts, and a lost
connection, or a restart of the service, costs clients nothing but time.

Why no message is had by two: what comes here was acquired in the holder's name, durably, before it
was sent. Why none is lost on the way: see `broker_shim.members.grants`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest, NotNow, StoreError
from broker_shim.links.kept_link import KeptLink, OnLink
from broker_shim.members.remote_administration import RemoteAdministration
from broker_shim.members.remote_browse import RemoteCursor
from broker_shim.members.remote_queue import GrantedEntries, RemoteQueue, granted_entry
from broker_shim.members.volatile_wiring import make_again
from broker_shim.members.wiring_rows import Row, applied, forget_others
from broker_shim.selectors import Selector
from broker_shim.service.dispatcher import MOST_LOOKED
from broker_shim.store import protocol as wire
from broker_shim.store.granted_run import GrantedRun, runs_of
from broker_shim.store.interface import Entry
from broker_shim.store.remote.pending_requests import Answer
from broker_shim.store.remote.remote_store import RemoteMessageStore
from broker_shim.store.remote.wiring_barrier import as_it_is
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.records import Kind

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.5
"""A browser that found nothing looks again then."""
_CONNECT_AGAIN_S = 1.0


class _Subscription:
    """The subscription of one consumer, on this connection or the next.

    Attributes:
        number: What the service is told to call it.
        limit: How many messages it was said to take in all.
        received: How many came.
        idle_limit: The limit at which the service had nothing more.
    """

    __slots__ = ("consumer", "idle_limit", "limit", "number", "queue", "received", "selector")

    def __init__(
        self, number: int, queue: RemoteQueue, consumer: Consumer, selector: Selector | None
    ) -> None:
        self.number, self.queue, self.consumer, self.selector = number, queue, consumer, selector
        self.received = self.limit = 0
        self.idle_limit = -1

    @property
    def wanted(self) -> int:
        """The number of messages that the consumer takes in all, as of now."""
        return self.received + max(0, self.consumer.credit)


class Membership:
    """A broker's dialogue with its store service, as `ServiceListener`.

    On the loop's thread, unless said otherwise.

    Attributes:
        entries: What this member holds.
        answer_administrator: Called with a question and with who takes the answer, once; both are
            objects of JSON.
    """

    def __init__(self, store: RemoteMessageStore, inbox: Inbox) -> None:
        self._store, self._inbox = store, inbox
        self._broker: Broker | None = None
        self._administration: RemoteAdministration | None = None
        self.entries = GrantedEntries()
        self._numbers = count(1)
        self._by_consumer: dict[Consumer, _Subscription] = {}
        self._by_number: dict[int, _Subscription] = {}
        self._cancelled: dict[int, tuple[RemoteQueue, str]] = {}
        self._looks: dict[int, tuple[RemoteQueue, RemoteCursor]] = {}
        self._connection = self._making = self._seen_late = 0
        self._run, self._position = "", 0
        self._all: list[Row] = []
        self._link_moved: Callable[[str], None] = _nothing
        self.answer_administrator: Callable[[str, Callable[[str], None]], None] = _no_answer

    def make_queue(self, name: str, *, is_kept: bool, arguments: QueueArguments) -> RemoteQueue:
        """Make a queue whose messages the service grants. See `MakeQueue`."""
        return RemoteQueue(name, is_kept=is_kept, arguments=arguments, subscriber=self)

    def begin(self, broker: Broker, link_moved: Callable[[str], None]) -> None:
        """The broker has its wiring: keep it alike from now on.

        Args:
            broker: The broker of this process.
            link_moved: Told of each link that another member has now, by its text.
        """
        self._broker, self._link_moved = broker, link_moved
        self._administration = RemoteAdministration(self._store, broker, self._claimed)
        broker.administration.decider = broker.xid_claims.decider = self._administration
        self.entries.queues = broker.queues
        self._store.behind = self._administration.barrier.behind
        self._store.listen(self)

    # What the service says, on the store's thread.

    def connected(self, *, is_new_run: bool) -> None:
        """Say again all that this member subscribes to.

        On any thread; it is done on the loop's. See `ServiceListener.connected`.
        """
        self._inbox.post(lambda _nothing: self._connected(is_new_run=is_new_run), None)

    def hear(self, kind: int, body: wire.Body) -> None:
        """Handle a frame that the service pushed.

        On any thread; it is done on the loop's. See `ServiceListener.hear`.
        """
        self._inbox.post(partial(self._act, kind), body)

    def _act(self, kind: int, body: wire.Body) -> None:
        """Do what a frame says; a fault ends in a new connection, which tells all there is again.

        Else a frame would be lost without a word: SEEN would never be said of it, and after
        `WINDOW` of them this member would hear of no queue again. Not at once, as the same fault
        may come again.
        """
        try:
            self._ACTS[kind](self, body)
        except Exception:  # noqa: BLE001  # whatever it is, the service has to tell it again
            _log.exception("what the service said could not be acted on: it is asked again")
            self._run = ""
            assert self._broker is not None
            self._broker.later(_CONNECT_AGAIN_S, self._store.connect_again)

    def fetch(self, text: str, on_found: OnLink) -> None:
        """Ask the service for a link, which is this member's from now on with what it holds.

        See `LinkSource.fetch`.
        """

        def answered(answer: Answer) -> None:
            self._inbox.post(lambda _nothing: self._found(text, answer, on_found), None)

        self._store.ask_for_link(text, answered)

    def _found(self, text: str, answer: Answer, on_found: OnLink) -> None:
        assert self._broker is not None
        _is_last, body, error = answer
        if error is not None:
            on_found(error, None)
            return
        detail, unsettled, held = body
        for name, message_id, shown in held:
            queue = self._broker.queues.get(name)
            if isinstance(queue, RemoteQueue):
                queue.granted[message_id] = granted_entry(shown, text)
        states = {tag: None if state is None else json.loads(state) for tag, state in unsettled}
        terms = None if detail is None else json.loads(detail)
        on_found(None, KeptLink(terms, states, [(name, number) for name, number, _ in held]))

    # What consumers want.

    def subscribe(self, queue: RemoteQueue, consumer: Consumer, selector: Selector | None) -> None:
        """Ask the service for messages of a queue for one consumer."""
        subscription = _Subscription(next(self._numbers), queue, consumer, selector)
        self._by_consumer[consumer] = self._by_number[subscription.number] = subscription
        self._say_subscription(subscription)

    def cancel(self, consumer: Consumer) -> None:
        """Tell the service that a consumer wants nothing any more."""
        subscription = self._by_consumer.pop(consumer, None)
        if subscription is not None and self._by_number.pop(subscription.number, None) is not None:
            self._cancelled[subscription.number] = subscription.queue, consumer.holder
            self._store.say(wire.CANCEL, subscription.number)

    def refuse(self, message_id: int, consumer: Consumer) -> None:
        """Tell the service that a consumer must not get a message again."""
        subscription = self._by_consumer.get(consumer)
        if subscription is not None:
            self._store.say(wire.REFUSE, subscription.number, message_id)

    def ask(self, consumer: Consumer) -> None:
        """Tell the service how many messages a consumer takes, if that has changed."""
        subscription = self._by_consumer[consumer]
        wanted = subscription.wanted
        if wanted != subscription.limit or (
            consumer.is_draining and subscription.idle_limit == wanted
        ):
            subscription.idle_limit = -1  # what was said before this drain is no answer to it
            subscription.limit = subscription.wanted
            self._store.say(wire.CREDIT, subscription.number, subscription.limit)

    def has_caught_up(self, consumer: Consumer) -> bool:
        """Tell whether the service has nothing for a consumer, after all it was granted."""
        subscription = self._by_consumer.get(consumer)
        return subscription is None or subscription.idle_limit == subscription.wanted

    def look(self, queue: RemoteQueue, cursor: RemoteCursor) -> None:
        """Ask the service what waits after a browser's place."""
        if cursor.connection != self._connection:
            cursor.begin_anew(self._connection)
        number = next(self._numbers)
        self._looks[number] = queue, cursor
        self._store.say(wire.LOOK, number, queue.name, cursor.indexes, MOST_LOOKED)

    def _say_subscription(self, subscription: _Subscription) -> None:
        queue, selector = subscription.queue, subscription.selector
        subscription.received = 0
        subscription.limit = subscription.wanted
        subscription.idle_limit = -1
        self._store.say(
            wire.SUBSCRIBE,
            subscription.number,
            queue.name,
            subscription.consumer.holder,
            None if selector is None else selector.text,
            subscription.limit,
            [*queue.granted],
        )

    def _connected(self, *, is_new_run: bool) -> None:
        assert self._broker is not None
        assert self._administration is not None
        if is_new_run:
            self._administration.claim_again()  # now, as others may ask for the same
            self._making += 1
            behind, self._store.behind = self._store.behind, as_it_is
            make_again(self._broker, self._made_again)  # before WATCH: no row is told until then
            self._store.behind = behind
        elif not self._making:
            self._say_all()

    def _made_again(self) -> None:
        """Say all subscriptions, once the broker that decides has their queues again."""
        self._making -= 1
        if not self._making:
            self._say_all()

    def _say_all(self) -> None:
        assert self._broker is not None
        queues = self._broker.queues.values()
        held = [
            (queue.name, [*queue.granted])
            for queue in queues
            if isinstance(queue, RemoteQueue) and queue.granted
        ]
        self._all = []
        self._store.say(wire.WATCH, self._run, self._position, held)
        assert self._administration is not None
        self._seen_late = 0
        self._administration.claim_again()
        for subscription in self._by_number.values():
            self._say_subscription(subscription)
        self._say_cancelled()
        self._connection += 1
        looks, self._looks = [*self._looks.values()], {}
        for queue, cursor in looks:
            self.look(queue, cursor)

    def _say_cancelled(self) -> None:
        """Have queues that delete themselves end with consumers that the service perhaps never saw.

        It is told of a consumer, and that it is gone, by frames that may be lost with a connection.
        """
        for number, (queue, holder) in [*self._cancelled.items()]:
            if queue.arguments.auto_delete:
                held = [*queue.granted]
                self._store.say(wire.SUBSCRIBE, number, queue.name, holder, None, 0, held)
                self._store.say(wire.CANCEL, number)
            else:
                del self._cancelled[number]

    def _changes(self, body: wire.Body) -> None:
        assert self._broker is not None
        run, position, is_all, is_last, rows = body
        known = [row for row in rows if self._applied(row)]
        self._seen()
        if is_all:
            self._all += known
            if not is_last:
                return
            forget_others(self._broker, self._all)
            self._all = []
        self._run, self._position = run, position

    def _applied(self, row: Row) -> bool:
        """Do what a row of wiring says; one that cannot be is told in the log, and costs itself."""
        assert self._broker is not None
        try:
            if row[0] == Kind.ATTACHED:
                self._link_moved(row[3] or "")
                return True
            return applied(self._broker, row)
        except (LookupError, TypeError, ValueError) as reason:
            _log.error("a link that moved cannot be one: %.500r: %r", row, reason)
            return False

    def _seen(self) -> None:
        """Say SEEN after all claims: the first one ends those that were not said again."""
        assert self._administration is not None
        if self._administration.claims_due:
            self._seen_late += 1
        else:
            self._store.say(wire.SEEN)

    def _claimed(self) -> None:
        for _ in range(self._seen_late):
            self._store.say(wire.SEEN)
        self._seen_late = 0

    def _grants(self, body: wire.Body) -> None:
        for run in runs_of(body):
            subscription = self._by_number.get(run.subscription)
            if subscription is not None:
                self._granted(subscription, run)
            else:
                self._give_back(run.subscription, run.message_ids)

    def _granted(self, subscription: _Subscription, run: GrantedRun) -> None:
        """Hand a consumer all that a frame grants it: what goes together is sent together."""
        consumer, message_ids, count = subscription.consumer, run.message_ids, len(run.message_ids)
        *about, delivery_counts, details = run.facts
        held = [consumer.holder] * count, delivery_counts, details
        entries = zip(message_ids, map(Entry, *about, *held), strict=True)
        subscription.queue.granted.update(entries)
        self._store.came_along(run)
        subscription.received += count
        left = message_ids
        while left:  # it is told no more often how many it may have, so it takes them all
            left = left[consumer.assign(left) :]

    def _give_back(self, number: int, message_ids: Sequence[int]) -> None:
        """Release messages that were granted to a consumer that is gone."""
        assert self._broker is not None
        place = self._cancelled.get(number)
        if place is not None:
            queue, holder = place
            self._broker.settlement.give_back(message_ids, queue.name, holder, failed=False)

    def _looked(self, body: wire.Body) -> None:
        number, rows, indexes = body
        place = self._looks.pop(number, None)
        if place is None:
            return  # it was asked on a connection that is lost, and again on this one
        _queue, cursor = place
        cursor.came([(message_id, granted_entry(row, None)) for message_id, row in rows], indexes)
        assert self._broker is not None
        if rows or cursor.is_resting:
            self._known(cursor)
            return
        on_known = cursor.on_known
        assert on_known is not None
        self._known(cursor)
        cursor.is_resting = True
        self._broker.later(_LOOK_AGAIN_S, partial(self._rested, cursor, on_known))

    def _known(self, cursor: RemoteCursor) -> None:
        on_known, cursor.on_known = cursor.on_known, None
        if on_known is not None:
            on_known()

    def _rested(self, cursor: RemoteCursor, on_known: Callable[[], None]) -> None:
        cursor.is_resting = False
        if cursor.on_known is None:
            on_known()

    def _ended(self, body: wire.Body) -> None:
        number, name, message = body
        self._cancelled.pop(number, None)
        subscription = self._by_number.pop(number, None)
        if subscription is None:
            return
        error: StoreError = wire.error_of(name, message) if name else InvalidRequest("it ended")
        _log.info("%r: %s", subscription.queue.name, error)
        if isinstance(error, NotNow):
            subscription.consumer.turned_away(str(error))
        else:
            subscription.consumer.queue_deleted()

    def _asked(self, body: wire.Body) -> None:
        number, text = body
        self.answer_administrator(text, partial(self._store.say, wire.TOLD, number))

    def _caught_up(self, body: wire.Body) -> None:
        number, limit = body
        subscription = self._by_number.get(number)
        if subscription is not None:
            subscription.idle_limit = limit
            if limit == subscription.wanted:
                subscription.consumer.caught_up()

    _ACTS: Mapping[int, Callable[[Membership, wire.Body], None]] = {
        wire.CHANGES: _changes,
        wire.GRANTED: _grants,
        wire.ENDED: _ended,
        wire.CAUGHT_UP: _caught_up,
        wire.LOOKED: _looked,
        wire.ASKED: _asked,
    }


def _nothing(_text: str) -> None:
    """Do nothing about a link that moved, as no link is kept here."""


def _no_answer(_question: str, _answer: Callable[[str], None]) -> None:
    """Leave a question unanswered while nothing is served: this member counts as silent."""

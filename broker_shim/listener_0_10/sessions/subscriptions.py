"""The consumers of one session: credit, deliveries, and what becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import (
    ExecutionErrorCode,
    MessageAcquireMode,
    MessageCreditUnit,
    MessageFlowMode,
)
from broker_shim.amqp_0_10.structs import MessageAcquired
from broker_shim.broker.flow.settlement import one_by_one
from broker_shim.broker.queues.local_messages import NoLocal
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.wiring.address import QueueNode
from broker_shim.errors import StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.number_map import Numbered
from broker_shim.framing.sequences import Ranges, is_ordered, ranges_of
from broker_shim.listener_0_10.refusals import (
    illegal_argument,
    locked,
    not_allowed,
    not_found,
)
from broker_shim.listener_0_10.sessions.authorization import check_owner, existing
from broker_shim.listener_0_10.sessions.subscription import SentMessage, SessionConsumer
from broker_shim.listener_0_10.transaction import AcceptedDelivery, SessionTransaction
from broker_shim.security.rules.rights import Act
from broker_shim.selectors import InvalidSelector, Selector, parse
from broker_shim.sockets.authorization import is_reserved_for_another
from broker_shim.sockets.served_connection import LinkFacts
from sparkstore.core.queue_names import shown

if TYPE_CHECKING:
    from broker_shim.listener_0_10.sessions.session import Amqp010Session

_SELECTOR = "x-filter-jms-selector"
_NO_LOCAL = "x-qpid-no-local"
"""So JMS clients ask it of a topic's subscriber, whose queue their session has alone."""


class Subscriptions:
    """All consumers of one session by destination, and what it was sent by command id."""

    def __init__(self, session: Amqp010Session) -> None:
        self._session, settings = session, session.broker.settings
        self._max_links, self._max_unsettled = settings.max_links, settings.max_unsettled
        self._by_name: dict[str, SessionConsumer] = {}
        self._sent = Numbered[SentMessage]()
        self._accepting = Numbered[SentMessage]()
        self._deleted: dict[str, None] = {}
        self._in_window = Numbered[tuple[SessionConsumer, int]]()
        self._numbers = count(1)

    @property
    def count(self) -> int:
        """Return how many consumers the session has."""
        return len(self._by_name)

    def facts(self) -> list[LinkFacts]:
        """Describe each consumer of the session."""
        unsettled = Counter(sent.subscription for _, sent in self._sent.items())
        return [consumer.facts(unsettled[consumer]) for consumer in self._by_name.values()]

    def subscribe(self, command: c.MessageSubscribe, command_id: int) -> None:
        """Begin a consumer, without credit."""
        session = self._session
        name, broker = command.destination or "", session.broker
        if name in self._by_name:
            text = f"destination {shown(name)} has a subscriber in this session already"
            raise not_allowed(text)
        if len(self._by_name) >= self._max_links:
            text = f"more than {self._max_links} subscribers in one session"
            raise RemoteCommandError(ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED, text)
        queue = existing(session, command.queue, Act.RECEIVE)
        check_owner(session, queue)
        dispatch: QueueDispatch = broker.queues[queue]
        is_alone = command.exclusive and dispatch.consumer_count > 0
        takes = command.acquire_mode != MessageAcquireMode.NOT_ACQUIRED
        if is_alone or broker.claims.is_taken(dispatch, takes=takes):
            text = f"queue {shown(queue)} has a subscriber, and one of the two is exclusive"
            raise locked(text)
        if is_reserved_for_another(session.connection, QueueNode(queue)):
            text = f"queue {shown(queue)} is consumed by the connection that had it made alone"
            raise locked(text)
        is_deaf = bool((command.arguments or {}).get(_NO_LOCAL))
        if is_deaf and broker.claims.is_of_connection(queue, session.connection.number):
            dispatch.no_local = NoLocal(of_claim=True)
        holder = f"{session.holder}/{next(self._numbers)}"
        selector = _selector(command)
        subscription = SessionConsumer(self, session, holder, dispatch, command, selector)
        self._by_name[name] = subscription
        self._deleted.pop(name, None)
        subscription.start()
        session.complete(command_id)

    def cancel(self, command: c.MessageCancel, command_id: int) -> None:
        """End a consumer; what it was sent is still the client's to decide about.

        One that ended with its queue is cancelled by clients that did not hear of that.
        """
        if command.destination in self._deleted:
            del self._deleted[command.destination]
            self._session.complete(command_id)
            return
        subscription = self._of(command.destination)
        del self._by_name[command.destination]
        subscription.stop(partial(self._session.complete, command_id))
        subscription.gone()

    def set_flow_mode(self, command: c.MessageSetFlowMode, command_id: int) -> None:
        """Set the credit mode of a consumer, whose credit begins anew."""
        is_window = command.flow_mode == MessageFlowMode.WINDOW
        if command.destination not in self._deleted:
            self._of(command.destination).set_mode(is_window=is_window)
        self._session.complete(command_id)

    def flow(self, command: c.MessageFlow, command_id: int) -> None:
        """Give a consumer more credit, in messages or in bytes."""
        value = command.value or 0
        is_bytes = command.unit == MessageCreditUnit.BYTE
        if command.destination not in self._deleted:
            self._of(command.destination).grant(value, is_bytes=is_bytes)
        self._session.complete(command_id)

    def flush(self, command: c.MessageFlush, command_id: int) -> None:
        """Send what there is credit for and take the credit back; complete when that is over."""
        if command.destination in self._deleted:
            self._session.complete(command_id)
        else:
            self._of(command.destination).flush(partial(self._session.complete, command_id))

    def stop(self, command: c.MessageStop, command_id: int) -> None:
        """Take the credit back; complete when nothing is on its way any more."""
        if command.destination in self._deleted:
            self._session.complete(command_id)
        else:
            self._of(command.destination).stop(partial(self._session.complete, command_id))

    def accept(self, command: c.MessageAccept, command_id: int) -> None:
        """Accept messages: complete when they are off their queues, durably."""
        session, sent = self._session, self._take(command.transfers)
        if session.transaction is not None:
            for number, message in sent:
                self._accept_within(session.transaction, number, message)
            session.complete(command_id)
            return
        together: dict[SessionConsumer, dict[int, None]] = {}
        for _number, message in sent:
            together.setdefault(message.subscription, {})[message.message_id] = None
        left, finished = sum(map(len, together.values())), session.done(command_id)

        def done(_ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            nonlocal left
            left -= len(outcomes)
            refused = next((error for error in outcomes if error is not None), None)
            if not left or refused is not None:
                finished(refused)

        if not left:
            finished(None)
        for subscription, message_ids in together.items():
            subscription.holdings.accept([*message_ids], done)

    def _accept_within(
        self, transaction: SessionTransaction, number: int, sent: SentMessage
    ) -> None:
        def undone() -> None:
            self._accepting.pop(number, None)
            if self._session.is_over or transaction.gives_back:
                sent.subscription.holdings.give_back((sent.message_id,), failed=True)
            elif sent.released is not None:
                sent.subscription.holdings.give_back((sent.message_id,), failed=sent.released)
            else:
                sent.in_transaction = False
                self._sent[number] = sent
                sent.subscription.holdings.locks.begin((sent.message_id,))

        def committed() -> None:
            self._accepting.pop(number, None)

        subscription = sent.subscription
        accepted = AcceptedDelivery(
            sent.message_id, subscription.queue.name, subscription.holder, committed, undone
        )
        sent.in_transaction = True
        self._accepting[number] = sent
        transaction.accept(accepted)

    def reject(self, command: c.MessageReject, command_id: int) -> None:
        """Reject messages: they go to the dead letters, or leave the store."""
        sent = self._take(command.transfers)
        done = self._last_of(len(sent), command_id)
        reason = {"description": command.text} if command.text else {}
        for _number, message in sent:
            subscription = message.subscription
            subscription.holdings.reject(subscription, message.message_id, reason, done)

    def release(self, command: c.MessageRelease, command_id: int) -> None:
        """Let somebody else have messages; `set-redelivered` counts as a failed delivery.

        What was accepted in a transaction is given back if that is rolled back: the Python client
        releases first, and rolls back then.
        """
        sent = self._take(command.transfers)
        for number in self._accepting.chosen(command.transfers):
            self._accepting[number].released = command.set_redelivered
        done = one_by_one(self._last_of(len(sent), command_id))
        for _number, message in sent:
            give_back, failed = message.subscription.holdings.give_back, command.set_redelivered
            give_back((message.message_id,), done, failed=failed)

    def acquire(self, command: c.MessageAcquire, command_id: int) -> None:
        """Acquire the messages that were shown and that nobody else has."""
        _check(command.transfers)
        shown_ones = [
            (number, self._sent[number])
            for number in self._sent.chosen(command.transfers)
            if not self._sent[number].is_acquired
        ]
        held: list[int] = []
        left = len(shown_ones)

        def answer() -> None:
            acquired = MessageAcquired(ranges_of(sorted(held)))
            self._session.result(command_id, acquired)

        def done(number: int, sent: SentMessage, error: StoreError | None) -> None:
            nonlocal left
            left -= 1
            if error is None:
                sent.is_acquired = True
                sent.subscription.holdings.locks.begin((sent.message_id,))
                held.append(number)
                if self._session.is_over:
                    sent.subscription.holdings.give_back((sent.message_id,), failed=True)
            if not left:
                answer()

        if shown_ones:
            self._session.wait_for(command_id)  # what is decided next is decided of what it has
        else:
            answer()
        for number, sent in shown_ones:
            queue, holder = sent.subscription.queue.name, sent.subscription.holder
            acquire = self._session.broker.acquisition.acquire
            acquire(queue, sent.message_id, holder, partial(done, number, sent), sent.entry)

    def _take(self, ranges: Ranges) -> list[tuple[int, SentMessage]]:
        """Take acquired deliveries by their numbers, as the client has decided about them."""
        _check(ranges)
        chosen = [(number, self._sent.pop(number)) for number in self._sent.chosen(ranges)]
        return [(number, message) for number, message in chosen if message.is_acquired]

    def _last_of(self, count: int, command_id: int) -> Any:
        """Make a completion for so many calls: it completes a command, or refuses it if one was."""
        left = count
        finished = self._session.done(command_id)
        if not count:
            finished(None)

        def done(error: StoreError | None) -> None:
            nonlocal left
            left -= 1
            if not left or error is not None:
                finished(error)

        return done

    def completed(self, ranges: Ranges) -> None:
        """Move windows on, as the client has taken in what was sent by these numbers."""
        for number in self._in_window.chosen(ranges):
            subscription, byte_count = self._in_window.pop(number)
            subscription.moved_on(byte_count)

    def sent(
        self, number: int, sent: SentMessage | None, in_window: tuple[SessionConsumer, int] | None
    ) -> None:
        """A message went out."""
        if sent is not None:
            self._sent[number] = sent
        if in_window is not None:
            self._in_window[number] = in_window

    def go_on(self) -> None:
        """Go on to send, as there is room for more again."""
        for subscription in [*self._by_name.values()]:
            subscription.has_room()

    def close_window(self, subscription: SessionConsumer) -> None:
        """Forget what a consumer's window counts of earlier deliveries."""
        for number in [n for n, window in self._in_window.items() if window[0] is subscription]:
            del self._in_window[number]

    @property
    def unsettled_room(self) -> int:
        """The number of messages that the client may still leave undecided."""
        return self._max_unsettled - len(self._sent) - len(self._in_window)

    def end(self) -> None:
        """Give back what the session held when it ended, as redelivered: it may have been seen."""
        for subscription in [*self._by_name.values()]:
            subscription.gone()
        self._by_name.clear()
        self._accepting.clear()
        sent, self._sent = self._sent, Numbered()
        self._in_window.clear()
        for message in sent.values():
            message.subscription.holdings.locks.close()
            if message.is_acquired and not message.in_transaction:
                message.subscription.holdings.give_back((message.message_id,), failed=True)

    def take_back(self, holder: str, message_id: int) -> None:
        """Give back a message of this consumer that the client has not decided about in time."""
        for number, sent in [*self._sent.items()]:
            is_it = sent.subscription.holder == holder and sent.message_id == message_id
            if is_it and sent.is_acquired:
                del self._sent[number]
                sent.subscription.holdings.give_back((message_id,), failed=True)

    def queue_deleted(self, subscription: SessionConsumer) -> None:
        """End a consumer whose queue is deleted, which the client may not know."""
        self._by_name.pop(subscription.name, None)
        while len(self._deleted) >= self._max_links:
            del self._deleted[next(iter(self._deleted))]
        self._deleted[subscription.name] = None
        subscription.gone()

    def turned_away(self, subscription: SessionConsumer, reason: str) -> None:
        """End a consumer and its session, as another has the queue alone.

        The command was accepted before that was known.
        """
        self.queue_deleted(subscription)
        self._session.fail(locked(reason))

    def _of(self, destination: str | None) -> SessionConsumer:
        subscription = self._by_name.get(destination or "")
        if subscription is None:
            text = f"destination {shown(destination or '')} has no subscriber in this session"
            raise not_found(text)
        return subscription


def _check(ranges: Ranges) -> None:
    if not is_ordered(ranges):
        raise illegal_argument("ranges of transfers that overlap or run backwards")


def _selector(command: c.MessageSubscribe) -> Selector | None:
    text = (command.arguments or {}).get(_SELECTOR)
    if not text:
        return None
    if not isinstance(text, str):
        raise illegal_argument(f"{_SELECTOR} has to be text")
    try:
        return parse(str(text))
    except InvalidSelector as reason:
        raise illegal_argument(f"{_SELECTOR}: {reason}") from reason

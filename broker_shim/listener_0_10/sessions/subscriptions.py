"""The consumers of one session: credit, deliveries, and what becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import (
    ExecutionErrorCode,
    MessageAcquireMode,
    MessageCreditUnit,
    MessageFlowMode,
)
from broker_shim.amqp_0_10.structs import MessageAcquired
from broker_shim.broker.flow.settlement import OnRemoved
from broker_shim.broker.queues.local_messages import NoLocal
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.wiring.address import QueueNode
from broker_shim.errors import StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.number_map import NumberedRuns
from broker_shim.framing.sequences import Ranges, after, is_ordered, ranges_of
from broker_shim.listener_0_10.refusals import (
    illegal_argument,
    locked,
    not_allowed,
    not_found,
)
from broker_shim.listener_0_10.sessions.authorization import check_owner, existing
from broker_shim.listener_0_10.sessions.subscription import SentTransfers, SessionConsumer
from broker_shim.listener_0_10.transaction import AcceptedRun, SessionTransaction
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
        self._sent, self._accepting = NumberedRuns[SentTransfers](), NumberedRuns[SentTransfers]()
        self._in_window = NumberedRuns[SentTransfers]()
        self._deleted: dict[str, None] = {}
        self._numbers = count(1)

    @property
    def count(self) -> int:
        """Return how many consumers the session has."""
        return len(self._by_name)

    def facts(self) -> list[LinkFacts]:
        """Describe each consumer of the session."""
        unsettled = Counter[SessionConsumer]()
        for run in self._sent:
            unsettled[run.subscription] += len(run)
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
        self._have_end(SessionConsumer.flush, command.destination, command_id)

    def stop(self, command: c.MessageStop, command_id: int) -> None:
        """Take the credit back; complete when nothing is on its way any more."""
        self._have_end(SessionConsumer.stop, command.destination, command_id)

    def _have_end(
        self,
        end: Callable[[SessionConsumer, Callable[[], None]], None],
        destination: str | None,
        command_id: int,
    ) -> None:
        completed = partial(self._session.complete, command_id)
        if destination in self._deleted:
            completed()
        else:
            end(self._of(destination), completed)

    def accept(self, command: c.MessageAccept, command_id: int) -> None:
        """Accept messages: complete when they are off their queues, durably."""
        session = self._session
        if session.transaction is not None:
            self._accept_within(session.transaction, command.transfers)
            session.complete(command_id)
            return
        together: dict[SessionConsumer, dict[int, None]] = {}
        for run in self._take(command.transfers):
            together.setdefault(run.subscription, {}).update(dict.fromkeys(run.message_ids))
        done = self._last_of(sum(map(len, together.values())), command_id)
        for subscription, message_ids in together.items():
            subscription.holdings.accept([*message_ids], done)

    def _accept_within(self, transaction: SessionTransaction, ranges: Ranges) -> None:
        """Have a transaction accept what ranges name, or nothing of it if that is too much."""
        _check(ranges)
        transaction.take(sum(len(run) for run in self._sent.named(ranges) if run.is_acquired))
        for run in self._take(ranges):
            whose = run.subscription.queue.name, run.subscription.holder
            ended = partial(self._accepted, transaction, run.ranges)
            self._accepting.add(run)
            transaction.accept(AcceptedRun(run.message_ids, *whose, ended))

    def _accepted(
        self, transaction: SessionTransaction, ranges: Ranges, *, is_undone: bool
    ) -> None:
        """Forget what a transaction accepted, or have it again as it was, in whatever parts."""
        for run in self._accepting.take(ranges):
            if is_undone and (self._session.is_over or transaction.gives_back):
                run.give_back(failed=True)
            elif is_undone and run.released is not None:
                run.give_back(failed=run.released)
            elif is_undone:
                self._sent.add(run)
                run.subscription.holdings.locks.begin(run.message_ids)

    def reject(self, command: c.MessageReject, command_id: int) -> None:
        """Reject messages: they go to the dead letters, or leave the store."""
        runs = self._take(command.transfers)
        done = self._last_of(sum(map(len, runs)), command_id)
        reason = {"description": command.text} if command.text else {}
        for run in runs:
            consumer = run.subscription
            consumer.holdings.reject(consumer, reason, run.message_ids, done)

    def release(self, command: c.MessageRelease, command_id: int) -> None:
        """Let somebody else have messages; `set-redelivered` counts as a failed delivery.

        What was accepted in a transaction is given back if that is rolled back: the Python client
        releases first, and rolls back then.
        """
        runs = self._take(command.transfers)
        for run in self._accepting.named(command.transfers):
            run.released = command.set_redelivered
        done = self._last_of(sum(map(len, runs)), command_id)
        for run in runs:
            run.give_back(failed=command.set_redelivered, on_done=done)

    def acquire(self, command: c.MessageAcquire, command_id: int) -> None:
        """Acquire the messages that were shown and that nobody else has."""
        _check(command.transfers)
        shown_ones = [run for run in self._sent.named(command.transfers) if not run.is_acquired]
        left = len(shown_ones)

        def answer() -> None:
            held = [run.ranges[0][0] for run in shown_ones if run.is_acquired]
            self._session.result(command_id, MessageAcquired(ranges_of(held)))

        def done(run: SentTransfers, error: StoreError | None) -> None:
            nonlocal left
            left -= 1
            if error is None:
                run.is_acquired = True
                run.subscription.holdings.locks.begin(run.message_ids)
                if self._session.is_over:
                    run.give_back(failed=True)
            if not left:
                answer()

        if shown_ones:
            self._session.wait_for(command_id)  # what is decided next is decided of what it has
        else:
            answer()
        for run in shown_ones:  # each is a run of one, as it is shown
            queue, holder = run.subscription.queue.name, run.subscription.holder
            acquire, (message_id,) = self._session.broker.acquisition.acquire, run.message_ids
            acquire(queue, message_id, holder, partial(done, run), run.entry)

    def _take(self, ranges: Ranges) -> list[SentTransfers]:
        """Take acquired deliveries by their numbers, as the client has decided about them."""
        _check(ranges)
        return [run for run in self._sent.take(ranges) if run.is_acquired]

    def _last_of(self, count: int, command_id: int) -> OnRemoved:
        """Make a completion of so many messages: it completes a command, or refuses it for one."""
        left = count
        finished = self._session.done(command_id)
        if not count:
            finished(None)

        def done(_ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            nonlocal left
            left -= len(outcomes)
            refused = next((error for error in outcomes if error is not None), None)
            if not left or refused is not None:
                finished(refused)

        return done

    def completed(self, ranges: Ranges) -> None:
        """Move windows on, as the client has taken in what was sent by these numbers."""
        for run in self._in_window.take(ranges):
            run.moved_on()

    def sent(self, run: SentTransfers, *, is_settled: bool, is_window: bool) -> None:
        """Messages went out, for the client to decide about, or to take in."""
        if is_window:
            self._in_window.add(replace(run))
        if not is_settled:
            self._sent.add(run)

    def go_on(self) -> None:
        """Go on to send, as there is room for more again."""
        for subscription in [*self._by_name.values()]:
            subscription.has_room()

    def close_window(self, subscription: SessionConsumer) -> None:
        """Forget what a consumer's window counts of earlier deliveries."""
        self._in_window.drop(lambda run: run.subscription is subscription)

    @property
    def unsettled_room(self) -> int:
        """The number of messages that the client may still leave undecided."""
        return self._max_unsettled - len(self._sent) - len(self._in_window)

    def end(self) -> None:
        """Give back what the session held when it ended, as redelivered: it may have been seen."""
        for subscription in [*self._by_name.values()]:
            subscription.gone()
        self._by_name.clear()
        sent, self._sent, self._in_window = self._sent, NumberedRuns(), NumberedRuns()
        for run in sent:
            run.subscription.holdings.locks.close()
            if run.is_acquired:
                run.give_back(failed=True)

    def take_back(self, holder: str, message_id: int) -> None:
        """Give back a message of this consumer that the client has not decided about in time."""
        for run in self._sent:
            is_it = run.subscription.holder == holder and message_id in run.message_ids
            if is_it and run.is_acquired:
                number = after(run.number, run.message_ids.index(message_id))
                for part in self._sent.take(((number, number),)):
                    part.give_back(failed=True)

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

"""One session's transaction: what it sends and accepts since the last commit, all of it or nothing.

Its work waits here until tx.commit, and goes to the store then as one transaction: one group of the
log, one Delta commit. What is accepted in it stays held by the session until then; what is rolled
back is the client's to accept or release again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.broker.last_value_queues import Replaced, Value
from broker_shim.broker.storage.store_puts import Operation
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.store.interface import (
    MessageHeader,
    MessageStore,
    StoredMessage,
    TransactionContext,
)

Promise = Callable[[list[Operation], list[tuple[str, int]], OnComplete], None]
"""promise(operations, what they take by queue and message id, on_done)"""


@dataclass(slots=True, eq=False)
class AcceptedDelivery:
    """A message that the client accepted in the transaction.

    Attributes:
        message_id: The id of the message.
        queue: The queue that it leaves.
        holder: Whoever holds it there.
        on_committed: Called once it has left its queue.
        on_undone: Called if it has not: the client decides again.
    """

    message_id: int
    queue: str
    holder: str
    on_committed: Callable[[], None]
    on_undone: Callable[[], None]


@dataclass(slots=True)
class _Sent:
    header: MessageHeader
    body: bytes
    queues: tuple[str, ...]
    values: list[Value]
    message: StoredMessage | None = None


class SessionTransaction:
    """See above. On the loop's thread only; a session has one after the other, in this object.

    Attributes:
        gives_back: What was accepted in it is available again if it is rolled back, to anybody;
            else its client decides about it again.
        on_begun: Called with its first operation, each time.
        on_ended: Called when it is committed or rolled back, each time.
    """

    def __init__(self, broker: Broker, *, gives_back: bool = False) -> None:
        self._broker, self.gives_back = broker, gives_back
        self.on_begun: Callable[[], None] = _nothing
        self.on_ended: Callable[[], None] = _nothing
        self._sent: list[_Sent] = []
        self._accepted: list[AcceptedDelivery] = []
        self._bytes = 0

    def publish(self, header: MessageHeader, body: bytes, queues: Iterable[str]) -> None:
        """A message that is sent at the commit.

        Raises:
            RemoteCommandError: There is too much in it.
        """
        names = self._broker.selecting(queues, header)
        self._take(len(body) + header.header_bytes)
        if names:
            values = self._broker.last_value_queues.values(header, names)
            self._sent.append(_Sent(header, body, names, values))

    def accept(self, accepted: AcceptedDelivery) -> None:
        """A delivery that is accepted at the commit. Raises as `publish`."""
        self._take(0)
        self._accepted.append(accepted)

    def _take(self, byte_count: int) -> None:
        settings = self._broker.settings
        if self.is_empty and not self._bytes:
            self.on_begun()
        self._bytes += byte_count
        count = len(self._sent) + len(self._accepted) + 1
        if (
            count > settings.max_transaction_operations
            or self._bytes > settings.max_transaction_bytes
        ):
            text = f"a transaction of {count} operations and {self._bytes} bytes: commit earlier"
            raise RemoteCommandError(ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED, text)

    def commit(self, on_done: OnComplete) -> None:
        """Do all of it; `on_done` when that is durable and visible, or nothing was done."""
        sent, accepted = self._begin_anew()
        if not sent and not accepted:
            on_done(None)
            return
        on_done = self._counting(on_done)
        values = [*dict.fromkeys(value for each in sent for value in each.values)]

        def prepared(error: StoreError | None) -> None:
            if error is None:
                begin = self._broker.last_value_queues.begin
                begin(values, partial(self._hand_over, sent, accepted, values, on_done))
            else:
                self._undone(accepted)
                on_done(error)

        self._prepare(sent, prepared)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return not self._sent and not self._accepted

    def prepare(self, promise: Promise, on_done: OnComplete) -> None:
        """Promise all of it, as a branch that is decided by its xid alone; else it is undone."""
        sent, accepted = self._begin_anew()

        def done(error: StoreError | None) -> None:
            if error is None:
                for delivery in accepted:
                    delivery.on_committed()
            else:
                self._undone(accepted)
            on_done(error)

        def ready(error: StoreError | None) -> None:
            if error is None:
                operations = [_enqueue(each, name) for each in sent for name in each.queues]
                operations += [_dequeue(each) for each in accepted]
                taken = [(delivery.queue, delivery.message_id) for delivery in accepted]
                promise(operations, taken, done)
            else:
                done(error)

        self._prepare(sent, ready)

    def _prepare(self, sent: list[_Sent], on_prepared: OnComplete) -> None:
        """Have the content of each with the store, where it is too large to go along."""
        left = len(sent)
        refusals: list[StoreError] = []

        def ready(each: _Sent, error: StoreError | None, message: StoredMessage | None) -> None:
            nonlocal left
            left -= 1
            each.message = message
            if error is not None:
                refusals.append(error)
            if not left:
                on_prepared(refusals[0] if refusals else None)

        if not sent:
            on_prepared(None)
        for each in sent:
            may_stage = self._broker.all_keep(each.queues)
            done = partial(ready, each)
            self._broker.calls.puts.prepare(each.header, each.body, done, may_stage=may_stage)

    def _hand_over(
        self,
        sent: list[_Sent],
        accepted: list[AcceptedDelivery],
        values: list[Value],
        on_done: OnComplete,
        replaced: Replaced,
    ) -> None:
        newest = {value: _id(each) for each in sent for value in each.values}

        def done(error: StoreError | None) -> None:
            came = [(number, value) for value, number in newest.items()]
            self._broker.last_value_queues.end(values, replaced, came, error)
            if error is None:
                self._committed(sent, accepted)
            else:
                self._undone(accepted)
            on_done(error)

        gone = [name for each in sent for name in each.queues if name not in self._broker.queues]
        if gone:
            done(InvalidRequest(f"queue {gone[0]!r} was destroyed: nothing was committed"))
            return
        operations = [_enqueue(each, name) for each in sent for name in each.queues]
        operations += [_dequeue(each) for each in accepted]
        for older, name in replaced:
            last_values = self._broker.queues[name].last_values
            value = None if last_values is None else last_values.value(older)
            if value is not None:
                operations.append(_replace(older, name, newest[name, value]))
        self._broker.calls.transact(operations, done)

    def _committed(self, sent: list[_Sent], accepted: list[AcceptedDelivery]) -> None:
        for each in sent:
            self._broker.metrics.enqueued += len(each.queues)
            header = each.header
            for name in each.queues:
                durable = header.durable
                self._broker.arrived(name, _id(each), header.priority, durable=durable)
        for delivery in accepted:
            dispatch = self._broker.queues.get(delivery.queue)
            if dispatch is not None:
                dispatch.removed((delivery.message_id,))
            self._broker.metrics.accepted += 1
            delivery.on_committed()

    def _counting(self, on_done: OnComplete) -> OnComplete:
        """Count a transaction when it is decided, unless it is a branch of a larger one."""
        if self.gives_back:
            return on_done

        def decided(error: StoreError | None) -> None:
            self._broker.metrics.transactions_committed += error is None
            self._broker.metrics.transactions_rolled_back += error is not None
            on_done(error)

        return decided

    def rollback(self) -> None:
        """Forget what it sent; what it accepted the client decides about again."""
        sent, accepted = self._begin_anew()
        self._undone(accepted)
        is_local = not self.gives_back and (sent or accepted)
        self._broker.metrics.transactions_rolled_back += bool(is_local)

    undo = rollback

    def _begin_anew(self) -> tuple[list[_Sent], list[AcceptedDelivery]]:
        sent, self._sent = self._sent, []
        accepted, self._accepted = self._accepted, []
        self._bytes = 0
        self.on_ended()
        return sent, accepted

    def _undone(self, accepted: list[AcceptedDelivery]) -> None:
        for delivery in accepted:
            delivery.on_undone()


def _nothing() -> None:
    """Nobody counts its time."""


def _id(sent: _Sent) -> int:
    assert sent.message is not None
    return sent.message.message_id


def _enqueue(sent: _Sent, queue: str) -> Operation:
    def enqueue(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
        assert sent.message is not None
        store.enqueue(sent.message, queue, note, transaction)

    return enqueue


def _dequeue(accepted: AcceptedDelivery) -> Operation:
    def dequeue(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
        store.dequeue(accepted.message_id, accepted.queue, accepted.holder, note, transaction)

    return dequeue


def _replace(older: int, queue: str, newer: int) -> Operation:
    def replace(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
        outcome = {"outcome": "replaced", "by": newer}
        store.dequeue(older, queue, None, note, transaction, outcome)

    return replace

"""A message that a client sends within a unit of work."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_shim.broker.flow.last_value_queues import LastValueQueues, Value
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.storage.loop import wall_us
from broker_shim.broker.storage.store_puts import Staged
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.messages.delivery_time import wanted_time
from broker_shim.store.interface import Annotations, MessageHeader, StoredMessage
from broker_shim.transactions.transaction_refusals import rolled_back
from sparkstore.core.state_machine.call_values import EnqueueCall, StoreCall


class Posting:
    """A message that is sent with the others of its unit; end it once, by `ended`.

    It has its place among the others from the end of its transfer, as its content may come to the
    store after that of messages that were sent later.

    Attributes:
        queues: Names of those that it goes to; none if no subscription selects it.
        values: For each last-value queue among them.
        message: None until all its content is with the store, where that is needed.
        annotations: What its entries add to it.
        is_under_way: True until `ended`.
        error: Why it cannot be sent; then the unit cannot be committed.
    """

    def __init__(
        self, served: ServedQueues, last_values: LastValueQueues, on_ended: Callable[[], None]
    ) -> None:
        self._served, self._calls, self._on_ended = served, served.calls, on_ended
        self._last_values = last_values
        self.queues: tuple[str, ...] = ()
        self.values: list[Value] = []
        self.message: StoredMessage | None = None
        self.annotations: Annotations | None = None
        self.is_under_way = True
        self.error: StoreError | None = None

    def publish(
        self,
        header: MessageHeader,
        content: bytes | Staged,
        queues: Iterable[str],
        on_done: OnComplete,
    ) -> None:
        """Take the message in as `Broker.publish` would, but for the commit; then `on_done`."""
        names = self._served.selecting(queues, header)
        if not names:
            on_done(None)
            return
        self.queues, self.values = names, self._last_values.values(header, names)
        try:
            self.annotations = wanted_time(header, wall_us)
        except InvalidRequest as refusal:
            self._calls.answer((on_done, refusal))
            return

        def ready(error: StoreError | None, message: StoredMessage | None) -> None:
            self.message = message
            on_done(error)

        may_stage = self._served.all_keep(names)
        self._calls.puts.prepare(header, content, ready, may_stage=may_stage)

    def ended(self, error: StoreError | None) -> None:
        """Note that the message was taken in, or refused with an error."""
        self.is_under_way, self.error = False, error
        self._on_ended()

    def operations(self) -> list[StoreCall]:
        """Make the calls of the store that put it on its queues, as far as these are still there.

        Raises:
            TransactionRefused: None of them is.
        """
        if self.message is None:
            return []
        queues = tuple(name for name in self.queues if name in self._served.queues)
        if not queues:
            text = f"queue {self.queues[0]!r} was destroyed: nothing was committed"
            raise rolled_back(text)
        self.queues = queues
        message, annotations = self.message, self.annotations
        return [EnqueueCall(message, name, annotations) for name in queues]

    def arrived(self) -> None:
        """Put the message, which is durable now, on its queues."""
        if self.message is None:
            return
        self._served.metrics.enqueued += len(self.queues)
        message_id, header = self.message.message_id, self.message.header
        for name in self.queues:
            self._served.arrived(name, message_id, header.priority, durable=header.durable)

    def came(self) -> list[tuple[int, Value]]:
        """The message with its values, as `LastValueQueues.end` takes it."""
        if self.message is None:
            return []
        return [(self.message.message_id, value) for value in self.values]

"""A message that a client sends within a unit of work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby

from broker_shim.broker.flow.last_value_queues import LastValueQueues, Value
from broker_shim.broker.flow.publications import Publication
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.storage.loop import wall_us
from broker_shim.broker.storage.store_puts import Staged
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.messages.delivery_time import wanted_time
from broker_shim.store.interface import Annotations, MessageHeader, StoredMessage, StoredRun
from broker_shim.transactions.transaction_refusals import rolled_back
from sparkstore.core.records import each_header
from sparkstore.core.state_machine.call_values import EnqueueCall, StoreCall


class Posting:
    """A message that is sent with the others of its unit, or a run of them; end it once.

    It has its place among the others from the end of its transfer, as its content may come to the
    store after that of messages that were sent later.

    Attributes:
        queues: Names of those that it goes to; none if no subscription selects it.
        values: For each last-value queue among them.
        messages: None until all its content is with the store, where that is needed, and of a run
            until the commit.
        annotations: What its entries add to it.
        is_under_way: True until `ended`.
        error: Why it cannot be sent; then the unit cannot be committed.
    """

    def __init__(
        self, served: ServedQueues, last_values: LastValueQueues, on_ended: Callable[[], None]
    ) -> None:
        self._served, self._calls, self._on_ended = served, served.calls, on_ended
        self._last_values = last_values
        self._routed: Collection[str] | None = None
        self._headers, self._contents = list[MessageHeader](), list[bytes]()
        self.queues: tuple[str, ...] = ()
        self.values: list[Value] = []
        self.messages: Sequence[StoredMessage | StoredRun] = ()
        self.annotations: Annotations | None = None
        self.is_under_way = True
        self.error: StoreError | None = None

    def takes(self, run: Publication) -> bool:
        """Tell whether it is a run, which these messages may join."""
        return self._routed == run.queues

    def join(self, run: Publication) -> None:
        """Take in messages that need nothing but an enqueue, behind those before them."""
        self._routed, self.queues = run.queues, tuple(run.queues)
        self._headers += each_header(run.headers, len(run.contents))
        self._contents += run.contents
        self.is_under_way = False

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
            self.messages = () if message is None else (message,)
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
        if not (self.messages or self._contents):
            return []
        queues = tuple(name for name in self.queues if name in self._served.queues)
        if not queues:
            text = f"queue {self.queues[0]!r} was destroyed: nothing was committed"
            raise rolled_back(text)
        self.queues = queues
        if self._contents:
            self.messages = self._calls.puts.make(self._headers, self._contents)
        annotations = self.annotations
        return [EnqueueCall(some, name, annotations) for name in queues for some in self.messages]

    def arrived(self) -> None:
        """Put the messages, which are durable now, on their queues."""
        for some in self.messages:
            ids = some.message_ids
            self._served.metrics.enqueued += len(ids) * len(self.queues)
            headers = zip(each_header(some.headers, len(ids)), ids, strict=True)
            for (priority, durable), alike in groupby(headers, _priority_and_durability):
                together = [message_id for _header, message_id in alike]
                for name in self.queues:
                    self._served.arrived(name, together, priority, durable=durable)

    def came(self) -> list[tuple[int, Value]]:
        """The message with its values, as `LastValueQueues.end` takes it."""
        ids = [message_id for some in self.messages for message_id in some.message_ids]
        return [(message_id, value) for message_id in ids for value in self.values]


def _priority_and_durability(row: tuple[MessageHeader, int]) -> tuple[int, bool]:
    return row[0].priority, row[0].durable

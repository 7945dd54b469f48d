"""Last-value queues: a message takes the place of the waiting one with the same value of a key.

The newer message is enqueued and the older one dequeued in one transaction of the store. Why no
two are left, and none is lost:

- of one (queue, value) one publish is under way at a time, and the others wait for it in their
  order. So the older message that a publish finds has arrived, and is on the queue or held;
- it is taken out of dispatch before the transaction: no consumer gets it meanwhile. If the store
  refuses, it is available again where it was; after a crash the log says which of both is there;
- one that a consumer holds is not touched. When it is given back, a newer one is there: then it is
  taken off by itself. That happens before the queue is dispatched, so nobody is handed it; after
  a crash in between, the start does the same;
- a client's transaction takes its turn for all its values at once, when it is committed: so no two
  wait for each other. Of messages with one value in one transaction all come to the queue, and
  those that are not the last one are taken off as above.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.queues.last_values import value_of
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.errors import StoreError
from broker_shim.store.interface import MessageHeader

_log = logging.getLogger(__name__)

OUTCOME = {"outcome": "replaced"}
"""What `message_history` tells of a message that a newer one took the place of."""
_BATCH = 1000

Replaced = list[tuple[int, str]]
"""(message id, queue) of what leaves the queue in the same transaction."""

Value = tuple[str, str]
"""(queue, value of its key): of these one publish is under way at a time."""


class LastValueQueues:
    """Keeps last-value queues at one message a value. On the loop's thread only."""

    def __init__(self, served: ServedQueues, settlement: Settlement) -> None:
        self._served, self._settlement = served, settlement
        self._waiting: dict[Value, list[Callable[[], None]]] = {}

    def count(self, queue: str) -> int:
        """Count the values of a queue of which a publish is under way."""
        return sum(name == queue for name, _value in self._waiting)

    def values(self, header: MessageHeader, names: Iterable[str]) -> list[Value]:
        """The value of a new message for each last-value queue among these."""
        values = []
        for name in names:
            queue = self._served.queues.get(name)
            if queue is not None and queue.last_values is not None:
                value = queue.last_values.value_of(self._served.headers(header))
                if value is not None:
                    values.append((name, value))
        return values

    def last_value(
        self, name: str, key: str, header: MessageHeader
    ) -> tuple[str | None, int | None]:
        """The value of a new message on a queue, and the newest message there that has it.

        Both are None if it has none. Members put messages on the store's queues without `begin`.
        The store asks this where such a queue has a limit, to take the older one off in the same
        group. Why any thread may ask: it only looks into dictionaries, one item each, and what it
        finds is the id of a message that had this value. The store looks whether that still waits.

        Args:
            name: Of the queue, which may be so new that it is not served yet.
            key: The queue's `last_value_key`.
            header: Of the message.
        """
        value = value_of(key, self._served.headers(header))
        queue = self._served.queues.get(name)
        values = None if queue is None else queue.last_values
        return value, None if values is None or value is None else values.newest(value)

    def begin(self, values: Sequence[Value], call: Callable[[Replaced], None]) -> None:
        """Call with what is to be replaced, when nothing with these values is under way.

        Each of the values is there once; what is replaced is in their order.
        """
        busy = next((value for value in values if value in self._waiting), None)
        if busy is not None:
            self._waiting[busy].append(partial(self.begin, values, call))
            return
        replaced: Replaced = []
        for name, value in values:
            self._waiting[name, value] = []
            queue = self._served.queues.get(name)
            if queue is not None and queue.last_values is not None:
                older = queue.last_values.newest(value)
                # Out of dispatch before the transaction: no consumer gets the older one meanwhile.
                held = [] if older is None else queue.withdraw([older]).held
                replaced += [(message_id, name) for message_id in held]
        call(replaced)

    def end(
        self,
        values: Sequence[Value],
        replaced: Replaced,
        came: Iterable[tuple[int, Value]],
        error: StoreError | None,
    ) -> None:
        """Finish a publish: the older messages are gone, or wait again, and the next one begins.

        Args:
            values: As `begin` got them.
            replaced: As `begin` told it.
            came: The new messages with their values, oldest first.
            error: Of the store; then nothing came and nothing is gone.
        """
        for older, name in replaced:
            queue = self._served.queues.get(name)
            if queue is not None and error is None:
                self._served.metrics.replaced += 1
                queue.removed((older,))
            elif queue is not None:
                queue.released(older, delivery_failed=False)
                self._served.wanted(name)
        if error is None:
            gone = {message_id for message_id, _ in replaced}
            for message_id, (name, value) in came:
                self._came(name, message_id, value, gone)
        # At the end: who waited finds the newer message as the one to replace.
        for key in values:
            for call in self._waiting.pop(key):
                call()

    def _came(self, name: str, message_id: int, value: str, gone: set[int]) -> None:
        queue = self._served.queues.get(name)
        if queue is None or queue.last_values is None:
            return
        older = queue.last_values.note(message_id, value)
        if older is not None and older not in gone:
            queue.last_values.released(older)  # taken off as soon as nobody holds it

    def arrived(self, queue: QueueDispatch, message_ids: Sequence[int]) -> None:
        """Take in messages that no publish brought: a start, or a bulk operation did."""
        values = queue.last_values
        if values is None:
            return
        unknown = [message_id for message_id in message_ids if message_id not in values]
        for first in range(0, len(unknown), _BATCH):
            part = unknown[first : first + _BATCH]
            try:
                headers = self._served.calls.headers(part)
            except StoreError as error:
                _log.warning("%d messages of %r replace nothing: %s", len(part), queue.name, error)
                continue
            read = self._served.headers
            for message_id, header in zip(part, headers, strict=True):
                value = None if header is None else values.value_of(read(header))
                older = None if value is None else values.note(message_id, value)
                if older is not None:
                    values.released(older)

    def sweep(self, queue: QueueDispatch) -> None:
        """Take off what waits and is not the newest of its value."""
        if queue.last_values is None or not queue.last_values.stale:
            return
        stale = sorted(queue.last_values.stale)
        queue.last_values.stale.clear()
        self._drop(queue.name, queue.withdraw(stale).held)

    def _drop(self, name: str, message_ids: Sequence[int]) -> None:
        def done(_ended: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            self._served.metrics.replaced += list(outcomes).count(None)

        if message_ids:
            self._settlement.remove(message_ids, name, None, done, OUTCOME)

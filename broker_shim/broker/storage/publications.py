"""New messages that go to the store together: each for itself, in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from broker_shim.broker.served_queues import ServedQueues
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.messages.delivery_time import may_wait
from broker_shim.store.interface import MessageHeader, NewEntry

_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each


class Publication(NamedTuple):
    """A new message and the queues that it goes to."""

    header: MessageHeader
    content: bytes
    queues: Collection[str]


Publish = Callable[[MessageHeader, bytes, Collection[str], OnComplete], None]


class Publications:
    """Publishes many messages at once. On the loop's thread only."""

    def __init__(self, served: ServedQueues, publish: Publish) -> None:
        """Publish nothing yet; `publish` puts one message on queues, all or none."""
        self._served, self._publish = served, publish

    def publish(
        self,
        messages: Sequence[Publication],
        on_done: Callable[[int, Sequence[StoreError | None]], None],
    ) -> None:
        """Put new messages on queues, in their order: each for itself, as by `publish`.

        What needs nothing but an enqueue goes to the store together.

        Args:
            messages: With their whole content.
            on_done: Called some times: with where in `messages` those begin that are told of, and
                what came of each of them.
        """
        plain: list[NewEntry] = []
        routed: Collection[str] | None = None
        known: MessageHeader | None = None
        for number, (header, content, queues) in enumerate(messages):
            if queues is not routed:  # those of one link are the same, most often
                routed, queue = queues, self._only(queues)
            if header is not known:  # messages that are alike share it
                known, waits = header, may_wait(header)
            if queue is not None and len(content) <= STAGED_BYTES and not waits:
                plain.append(_new(NewEntry, (header, content, queue)))
                continue
            self._enqueue(plain, partial(on_done, number - len(plain)))
            plain = []
            self._publish(header, content, queues, partial(_told_one, on_done, number))
            routed = None  # that may have changed a queue
        self._enqueue(plain, partial(on_done, len(messages) - len(plain)))

    def _only(self, queues: Collection[str]) -> str | None:
        """The one queue of these, if every message that is sent there just waits on it."""
        if len(queues) != 1:
            return None
        (name,) = queues
        queue = self._served.queues.get(name)
        is_plain = queue is not None and queue.only is None and queue.last_values is None
        return name if is_plain else None

    def _enqueue(
        self,
        messages: Sequence[NewEntry],
        on_done: Callable[[Sequence[StoreError | None]], None],
    ) -> None:
        if not messages:
            return

        def done(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            self._all_wait(messages, ids, outcomes)
            on_done(outcomes)

        self._served.calls.enqueue_new(messages, done)

    def _all_wait(
        self,
        messages: Sequence[NewEntry],
        ids: Sequence[int],
        outcomes: Sequence[StoreError | None],
    ) -> None:
        """Dispatch new messages that are on their queues, but for those that were refused."""
        at: tuple[str, int, bool] | None = None
        came: list[int] = []
        for (header, _body, queue), message_id, error in zip(messages, ids, outcomes, strict=True):
            if error is not None:
                continue
            its = queue, header.priority, header.durable
            if its != at and at is not None:
                self._came(came, *at)
                came = []
            at = its
            came.append(message_id)
        if at is not None:
            self._came(came, *at)

    def _came(self, message_ids: list[int], queue: str, priority: int, durable: bool) -> None:  # noqa: FBT001
        self._served.metrics.enqueued += len(message_ids)
        self._served.wait(queue, message_ids, priority, durable=durable)


def _told_one(
    on_done: Callable[[int, Sequence[StoreError | None]], None],
    number: int,
    error: StoreError | None,
) -> None:
    on_done(number, (error,))

"""New messages on their way from the loop into the store: whole, or in pieces as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker_shim.completion import OnComplete, nobody
from broker_shim.errors import StoreError
from broker_shim.store.interface import (
    BrokerStore,
    ContentWriter,
    MessageHeader,
    StoredMessage,
    StoredRun,
    TransactionContext,
)
from sparkstore.core.state_machine.call_values import EnqueueCall, StoreCall
from sparkstore.operations.bulk import MessageDraft

if TYPE_CHECKING:
    from broker_shim.broker.storage.store_calls import StoreCalls

STAGED_BYTES = 1 << 20
"""A larger body is given to the store in pieces."""

Along = Callable[[TransactionContext], None]
"""along(transaction): does something in a transaction beside the calls of the store."""

OnReady = Callable[[StoreError | None, StoredMessage | None], None]
"""Gets the error, or the message that may be enqueued now."""


class Staged(NamedTuple):
    """A message whose content is being given in pieces.

    Attributes:
        message: Without its content.
        add: Gives the next piece; raises StoreError if the store takes none now.
        writer: Of the store.
    """

    message: StoredMessage
    add: Callable[[bytes, OnComplete], None]
    writer: ContentWriter


class Puts:
    """Gives new messages to the store, and their content. On the loop's thread only."""

    def __init__(self, store: BrokerStore, calls: StoreCalls) -> None:
        self._store, self._calls = store, calls

    def prepare(
        self, header: MessageHeader, content: bytes | Staged, on_ready: OnReady, *, may_stage: bool
    ) -> None:
        """Make a new message that can be enqueued; at once, unless its content is staged.

        Args:
            header: The new message's header.
            content: Whole, or what `stage` began and has been given all of it.
            on_ready: Called when content that is staged is durable.
            may_stage: All the queues that it will be put on keep messages.
        """
        if isinstance(content, Staged) or (len(content) > STAGED_BYTES and may_stage):
            self._prepare_staged(header, content, on_ready)
            return
        try:
            message = self._store.message(header, content)
        except StoreError as error:
            self._calls.answer((lambda refusal: on_ready(refusal, None), error))
            return
        on_ready(None, message)

    def make(
        self, headers: Sequence[MessageHeader], contents: Sequence[bytes]
    ) -> Sequence[StoredMessage | StoredRun]:
        """Make new messages that can be enqueued, one at least; raises StoreError."""
        is_shared = all(header is headers[0] for header in headers)
        return self._store.messages(headers[:1] if is_shared else headers, contents)

    def stage(self, header: MessageHeader) -> Staged:
        """Begin a message whose content is given in pieces.

        Raises:
            StoreError: The store takes no content now.
        """
        message = self._store.message(header, b"")
        writer = self._store.content(message)

        def add(piece: bytes, on_done: OnComplete) -> None:
            writer.add(piece, self._calls.completion(on_done))
            self._calls.open_count += 1

        return Staged(message, add, writer)

    def _prepare_staged(
        self, header: MessageHeader, content: bytes | Staged, on_ready: OnReady
    ) -> None:
        def ended(error: StoreError | None) -> None:
            on_ready(error, whole if error is None else None)

        try:
            if isinstance(content, Staged):
                staged = content
            else:
                staged = self.stage(header)
                staged.add(content, nobody)
        except StoreError as error:
            self._calls.answer((lambda refusal: on_ready(refusal, None), error))
            return
        whole = staged.message
        try:
            whole = staged.writer.end(self._calls.completion(ended))
            self._calls.open_count += 1
        except StoreError as error:
            self._calls.answer((ended, error))
        whole = whole._replace(header=header._replace(body_bytes=whole.header.body_bytes))

    def put_all(
        self,
        messages: Iterable[MessageDraft],
        queue: str,
        on_done: Callable[[StoreError | None, list[StoredMessage]], None],
    ) -> None:
        """Put new messages on a queue, all or none; `on_done` gets them with their ids."""
        made: list[StoredMessage] = []

        def calls() -> Iterator[StoreCall]:
            for header, body in messages:
                made.append(self._store.message(header, body))
                yield EnqueueCall(made[-1], queue)

        self._calls.transact(calls(), lambda error: on_done(error, made))

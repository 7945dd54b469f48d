"""New messages on their way from the loop into the store: whole, or in pieces as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker_shim.completion import OnComplete, nobody
from broker_shim.errors import StoreError
from broker_shim.store.interface import (
    Annotations,
    BrokerStore,
    ContentWriter,
    MessageHeader,
    StoredMessage,
    TransactionContext,
)
from sparkstore.core.state_machine.call_values import DequeueCall, EnqueueCall, StoreCall
from sparkstore.operations.bulk import MessageDraft

if TYPE_CHECKING:
    from broker_shim.broker.storage.store_calls import StoreCalls

STAGED_BYTES = 1 << 20
"""A larger body is given to the store in pieces."""

Along = Callable[[TransactionContext], None]
"""along(transaction): does something in a transaction beside the calls of the store."""

OnPut = Callable[[StoreError | None, int], None]
"""Gets the error, if any, and the message id."""

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

    def put(
        self,
        header: MessageHeader,
        content: bytes | Staged,
        names: Sequence[str],
        on_done: OnPut,
        *,
        all_keep: Callable[[Iterable[str]], bool],
        replacing: Sequence[tuple[int, str]] = (),
        along: Along | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        """Put a new message on queues, all or none.

        Args:
            header: The new message's header.
            content: Whole, or what `stage` began and has been given all of it.
            names: Of the queues.
            on_done: Called when it is durable.
            all_keep: Tells whether all of these queues keep messages. Pieces are in the log only,
                where a queue that keeps nothing cannot have them: then a large body goes whole.
            replacing: (message id, queue) of what leaves its queue in the same transaction.
            along: What else is done in it.
            annotations: What its entries add to those of the message.
        """

        def ready(error: StoreError | None, message: StoredMessage | None) -> None:
            # Content that was refused must not be enqueued: it would be a message without it.
            if message is not None:
                self._enqueue(message, names, on_done, replacing, along, annotations)
            else:
                on_done(error, 0)

        is_small = not isinstance(content, Staged) and len(content) <= STAGED_BYTES
        self.prepare(header, content, ready, may_stage=not is_small and all_keep(names))

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

    def _enqueue(
        self,
        message: StoredMessage,
        queues: Sequence[str],
        on_done: OnPut,
        replacing: Sequence[tuple[int, str]],
        along: Along | None,
        annotations: Annotations | None,
    ) -> None:
        message_id = message.message_id

        def done(error: StoreError | None) -> None:
            on_done(error, message_id)

        def end(transaction: TransactionContext, on_complete: OnComplete) -> None:
            if along is not None:
                along(transaction)
            self._store.commit(transaction, on_complete)

        if len(queues) == 1 and not replacing and along is None:
            self._calls.make(EnqueueCall(message, queues[0], annotations), done)
            return
        # What is replaced goes first: it makes room on a full queue.
        outcome = {"outcome": "replaced", "by": message_id}
        replaced = (DequeueCall(older, queue, None, outcome) for older, queue in replacing)
        enqueued = (EnqueueCall(message, queue, annotations) for queue in queues)
        self._calls.transact([*replaced, *enqueued], done, end)

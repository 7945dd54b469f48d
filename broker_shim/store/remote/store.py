"""A `MessageStore` in another process: the store service's member, over its protocol.

Every call becomes one request; what the service cannot be asked is refused here, in its turn. When
the connection is lost the store connects again, with what is unanswered; after `retry_s` without
a service that completes with Unavailable: its outcome is unknown.

What differs from a store in this process: the entries that `recover` tells are those of that
moment, and the number of a transaction is not the one in its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, StoreError
from broker_shim.service import protocol as wire
from broker_shim.store.interface import (
    Annotations,
    ContentWriter,
    Exchange,
    ExchangeBindingKey,
    MessageHeader,
    Queue,
    Recovered,
    StoredMessage,
    TransactionContext,
)
from broker_shim.store.reads import ReadCalls
from broker_shim.store.remote import records as made
from broker_shim.store.remote.calls import RemoteCalls
from broker_shim.store.remote.connection import RemoteConnection
from broker_shim.store.remote.greeting import MemberIdentity, parse_address
from broker_shim.store.remote.links import RemoteLinkCalls
from broker_shim.store.remote.message_reads import RemoteReads
from broker_shim.store.remote.messages import RemoteMessages
from broker_shim.store.remote.pending_reads import Answer
from broker_shim.store.remote.recovery import recovered_of
from broker_shim.store.remote.transaction import RemoteTransaction
from sparkstore.core.annotations import as_detail
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.arguments import check_completion, check_message, check_queue

RETRY_S = 60.0
"""How long a request waits for a service that is gone."""


class RemoteMessageStore(ReadCalls, RemoteLinkCalls):
    """See `MessageStore`; `max_message_bytes` is inclusive, and the service has its own limit."""

    def __init__(
        self,
        address: str | Path,
        greeting: MemberIdentity | None = None,
        *,
        retry_s: float = RETRY_S,
        max_message_bytes: int = 128 << 20,
    ) -> None:
        """Connect to a service.

        Args:
            address: As the service's READY line tells it, or the path of its socket.
            greeting: Who we are; by default member `remote`, of a new incarnation.
            retry_s: How long a request waits for a service that is gone.
            max_message_bytes: How long the content of one message may be, in bytes, inclusive.

        Raises:
            Unavailable: No service for `retry_s` seconds.
            StoreError: It sent us away: another version, wrong token, member connected already.
        """
        greeting = greeting or MemberIdentity("remote", str(uuid4()))
        self._connection = RemoteConnection(parse_address(address), greeting, retry_s)
        self._messages = RemoteMessages(self._connection, max_message_bytes)
        self._reads = RemoteReads(self._connection)
        self._calls = RemoteCalls(self._connection, self)

    @property
    def durability(self) -> TerminusDurability:
        """The highest tier it keeps."""
        return TerminusDurability.UNSETTLED_STATE

    def create(self, wiring: Queue | Exchange, on_complete: OnComplete) -> None:
        """See `MessageStore.create`."""
        self._calls.make(on_complete, lambda: made.created(Kind.CREATED, wiring))

    def alter(self, queue: Queue, on_complete: OnComplete) -> None:
        """See `MessageStore.alter`."""
        self._calls.make(on_complete, lambda: made.altered(queue))

    def destroy(self, wiring: Queue | Exchange, on_complete: OnComplete) -> None:
        """See `MessageStore.destroy`."""
        self._calls.make(on_complete, lambda: made.destroyed(wiring))

    def bind(
        self, key: ExchangeBindingKey, arguments: Mapping[str, Any], on_complete: OnComplete
    ) -> None:
        """See `MessageStore.bind`."""
        self._calls.make(on_complete, lambda: made.bound(key, arguments))

    def unbind(self, key: ExchangeBindingKey, on_complete: OnComplete) -> None:
        """See `MessageStore.unbind`."""
        self._calls.make(on_complete, lambda: made.unbound(key))

    def configure(
        self, category: str, key: str, detail: Mapping[str, Any] | None, on_complete: OnComplete
    ) -> None:
        """See `MessageStore.configure`."""
        self._calls.make(on_complete, lambda: made.configured(category, key, detail))

    def message(self, header: MessageHeader, body: bytes = b"") -> StoredMessage:
        """See `MessageStore.message`.

        Raises:
            StoreError: The service gives out no ids now.
        """
        return self._messages.make(header, body)

    def content(self, message: StoredMessage) -> ContentWriter:
        """See `MessageStore.content`."""
        return self._messages.content(message)

    def stage(
        self, message: StoredMessage, pieces: Iterable[bytes], on_complete: OnComplete
    ) -> StoredMessage:
        """See `MessageStore.stage`."""
        return self._messages.stage(message, pieces, on_complete)

    def enqueue(
        self,
        message: StoredMessage,
        queue: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
        *,
        annotations: Annotations | None = None,
    ) -> None:
        """See `MessageStore.enqueue`."""
        check_completion(on_complete)
        try:
            check_message(message)
            check_queue(queue)
            detail = None if annotations is None else as_detail(annotations)
            record = self._messages.enqueued(message, queue)._replace(detail=detail)
        except Closed:
            raise
        except StoreError as refusal:
            self._calls.refuse(on_complete, refusal, transaction)
            return
        if transaction is None:
            on_complete = self._messages.noting(message.message_id, on_complete)
        elif isinstance(transaction, RemoteTransaction):
            transaction.messages.append(message.message_id)
        self._calls.do(record, on_complete, transaction)

    def dequeue(
        self,
        message_id: int,
        queue: str,
        holder: str | None,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
        outcome: Mapping[str, Any] | None = None,
    ) -> None:
        """See `MessageStore.dequeue`."""
        make = partial(made.dequeued, message_id, queue, holder, outcome)
        self._calls.make(on_complete, make, transaction)

    def acquire(
        self,
        message_id: int,
        queue: str,
        holder: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """See `MessageStore.acquire`."""
        make = partial(made.acquired, message_id, queue, holder)
        self._calls.make(on_complete, make, transaction)

    def release(
        self,
        message_id: int,
        queue: str,
        holder: str,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
        *,
        delivery_failed: bool = False,
        annotations: Annotations | None = None,
    ) -> None:
        """See `MessageStore.release`."""

        def make() -> Record:
            detail = None if annotations is None else as_detail(annotations)
            failed = made.released(message_id, queue, holder, delivery_failed=delivery_failed)
            return failed._replace(detail=detail)

        self._calls.make(on_complete, make, transaction)

    def begin(self) -> TransactionContext:
        """See `MessageStore.begin`."""
        return self._calls.begin()

    def commit(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """See `MessageStore.commit`."""
        check_completion(on_complete)

        def committed(error: StoreError | None) -> None:
            if error is None and isinstance(transaction, RemoteTransaction):
                for message_id in transaction.messages:
                    self._messages.note_enqueued(message_id)
            on_complete(error)

        self._calls.end(transaction, committed, commit=True)

    def abort(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """See `MessageStore.abort`."""
        self._calls.end(transaction, on_complete, commit=False)

    def flush(self, on_complete: OnComplete) -> None:
        """See `MessageStore.flush`."""
        check_completion(on_complete)

        def answered(answer: Answer) -> None:
            self._connection.completions.put(on_complete, answer[2])

        self._connection.start_read(answered, wire.FLUSH)

    def recover(self) -> Recovered:
        """See `MessageStore.recover`; the entries are those of now, and stay so."""
        return recovered_of(self._connection.read(wire.ENTRIES))

    def close(self) -> None:
        """See `MessageStore.close`; what it holds it keeps for its next connection."""
        self._calls.abort_all()
        self._reads.close()
        self._connection.close()

"""A `BrokerStore` in another process: the store service's member, over its protocol.

Every call becomes one request, and a batch of calls one frame of many; what the service cannot be
asked is refused here, in its turn. When the connection is lost the store connects again, with what
is unanswered; after `retry_s` without a service that completes with Unavailable: its outcome is
unknown.

Two things differ from a store in this process: the entries that `recover` tells are those of that
moment, and a transaction's number is not the one in its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

from broker_shim.completion import OnComplete, nobody
from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, InvalidRequest, StoreError
from broker_shim.store import protocol as wire
from broker_shim.store.branch_store import NOT_IN_TRANSACTION
from broker_shim.store.granted_run import GrantedRun
from broker_shim.store.interface import (
    BrokerStore,
    ContentWriter,
    MessageHeader,
    Recovered,
    StoredMessage,
    TransactionContext,
)
from broker_shim.store.reads import ReadCalls
from broker_shim.store.remote import member_records as made
from broker_shim.store.remote.batches import RemoteBatches, frames_of, is_id, refusal_of_id
from broker_shim.store.remote.greeting import MemberIdentity, check_arguments, parse_addresses
from broker_shim.store.remote.pending_requests import Answer, OnAnswer
from broker_shim.store.remote.remote_branches import RemoteBranches
from broker_shim.store.remote.remote_messages import RemoteMessages, RemoteReads
from broker_shim.store.remote.remote_transaction import RemoteTransaction, usable
from broker_shim.store.remote.service_connection import RemoteConnection
from broker_shim.store.remote.service_listener import ServiceListener
from broker_shim.store.remote.wiring_barrier import as_it_is
from sparkstore.core.records import Record
from sparkstore.core.state_machine.arguments import (
    check_batch,
    check_completion,
    check_message,
    check_stored_run,
)
from sparkstore.core.state_machine.call_values import (
    WIRING_CALLS,
    BranchCall,
    EnqueueCall,
    EntryCall,
    StoreCall,
    StoredRun,
    is_stored,
)

RETRY_S = 60.0
"""How long a request waits for a service that is gone."""


class RemoteMessageStore(RemoteBatches, RemoteBranches, ReadCalls, BrokerStore):
    """A `BrokerStore` whose every call is a request to a store service.

    `max_message_bytes` is inclusive, and the service has its own limit.

    Attributes:
        turns: Has what a loop asks in a turn sent at the turn's end.
        give_up: Fails all that waits for the service, on whichever thread.
        connect_again: Gives the connection up for a new one, on which all is said again.
        behind: Wraps the completion of a call about wiring, for a broker that is told of wiring.
    """

    def __init__(
        self,
        address: str | Path,
        greeting: MemberIdentity | None = None,
        *,
        retry_s: float = RETRY_S,
        close_s: float | None = None,
        max_message_bytes: int = 128 << 20,
        recovers_entries: bool = True,
        seen: wire.SeenRoot | None = None,
    ) -> None:
        """Connect to a service.

        Args:
            address: As the service's READY line tells it, or the path of its socket; of a pair
                both, with a comma between them.
            greeting: Who we are; by default member `remote`, of a new incarnation.
            retry_s: How long a request waits for a service that is gone.
            close_s: How long `close` waits for answers; None: as long as a request does.
            max_message_bytes: How long the content of one message may be, in bytes, inclusive.
            recovers_entries: `recover` tells what is on queues; a broker that is told by the
                service which messages it gets needs no more than the rest.
            seen: What an earlier process of this caller has seen; another root sends it away.

        Raises:
            Unavailable: No service for `retry_s` seconds.
            InvalidRequest: An argument is none.
            StoreError: It sent us away: another version, wrong token, member connected already.
        """
        greeting = greeting or MemberIdentity("remote", str(uuid4()))
        check_arguments(greeting, retry_s, max_message_bytes)
        self._connection = RemoteConnection(
            parse_addresses(address), greeting, retry_s, close_s, seen
        )
        self.turns, self.give_up = self._connection.turns, self._connection.give_up
        self.connect_again = self._connection.connect_again
        self.behind: Callable[[OnComplete], OnComplete] = as_it_is
        self._messages = RemoteMessages(self._connection, max_message_bytes)
        self._reads: RemoteReads = RemoteReads(self._connection)
        self._recovers_entries = recovers_entries
        self._open, self._last_transaction = set[RemoteTransaction](), 0

    @property
    def durability(self) -> TerminusDurability:
        """The highest tier that the service keeps."""
        return TerminusDurability.UNSETTLED_STATE

    @property
    def close_s(self) -> float:
        """How long `close` waits for answers of the service."""
        return self._connection.close_s

    @property
    def refusal(self) -> StoreError | None:
        """The reason why nothing is decided now: the service is away, or has sent us away."""
        return self._connection.trouble

    @property
    def root_id(self) -> str:
        """The identity of the root that the service serves."""
        return self._connection.root_id

    def call(
        self,
        call: StoreCall,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Ask the service for a call, by one request. See `CallTarget.call`."""
        check_completion(on_complete)
        if isinstance(call, BranchCall):
            if transaction is None:
                self.ask_for_branch(call, on_complete)
            else:
                self._refuse(on_complete, InvalidRequest(NOT_IN_TRANSACTION), transaction)
            return
        if isinstance(call, WIRING_CALLS):
            on_complete = self.behind(on_complete)
        if isinstance(call, EntryCall):
            check_batch(call.message_ids, on_complete)
            is_run = len(call.message_ids) > 1
        else:
            is_run = is_stored(call)
        if is_run and transaction is None:
            self.ask_run(call, on_complete)  # type: ignore[arg-type]  # as was just looked at
            return
        try:
            asked = [*self._records(call)]
        except Closed:
            raise
        except StoreError as refusal:
            self._refuse(on_complete, refusal, transaction)
            return
        self._do(asked, self._noting(call, on_complete, transaction), transaction)

    def message(self, header: MessageHeader, body: bytes = b"") -> StoredMessage:
        """Make a message with one of the ids that the service gave out. See `ContentCalls.message`.

        Raises:
            StoreError: The service gives out no ids now.
        """
        return self._messages.make(header, body)

    def messages(
        self, headers: Sequence[MessageHeader], bodies: Sequence[bytes]
    ) -> Sequence[StoredRun]:
        """Make a run of messages with ids that the service gave out. See `ContentCalls.messages`.

        Raises:
            StoreError: The service gives out no ids now.
        """
        return [self._messages.make_run(headers, bodies)]

    def content(self, message: StoredMessage) -> ContentWriter:
        """Send the content of a new message to the service, piece by piece.

        See `ContentCalls.content`.
        """
        return self._messages.content(message)

    def stage(
        self, message: StoredMessage, pieces: Iterable[bytes], on_complete: OnComplete
    ) -> StoredMessage:
        """Send the content of a new message to the service from an iterator.

        See `ContentCalls.stage`.
        """
        return self._messages.stage(message, pieces, on_complete)

    def begin(self) -> TransactionContext:
        """Open a transaction at the service, without waiting for its answer.

        See `MessageStore.begin`.
        """
        with self._connection.guard:
            self._last_transaction += 1
            opened = RemoteTransaction(self._last_transaction, self)
            self._connection.ask(wire.OPEN, (opened.transaction,), opened.note)
            self._open.add(opened)
        return opened

    def commit(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """Ask the service to commit a transaction. See `MessageStore.commit`."""
        self._end(transaction, on_complete, commit=True)

    def abort(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """Ask the service to end a transaction without effect. See `MessageStore.abort`."""
        self._end(transaction, on_complete, commit=False)

    def flush(self, on_complete: OnComplete) -> None:
        """Ask the service to bring all earlier calls to where queries see them.

        See `MessageStore.flush`.
        """
        check_completion(on_complete)

        def answered(answer: Answer) -> None:
            self._connection.complete(on_complete, answer[2])

        self._connection.start_read(answered, wire.FLUSH)

    def recover(self) -> Recovered:
        """Ask the service what is in the store, and wait for it.

        The entries are those of that moment and do not follow the store. See
        `MessageStore.recover`.
        """
        without = () if self._recovers_entries else (False,)
        return made.recovered_of(self._connection.read(wire.ENTRIES, *without))

    def listen(self, listener: ServiceListener) -> None:
        """Have a listener told what the service says of its own accord."""
        self._connection.listen(listener)

    def say(self, kind: int, *body: Any) -> None:
        """Say what has no answer, a frame of `service.dispatcher`."""
        self._connection.say(kind, *body)

    def ask_for_link(self, text: str, on_answer: OnAnswer) -> None:
        """Ask what is kept of a link; `on_answer` gets LINK's answer, on the reading thread."""
        self._connection.start_read(on_answer, wire.LINK, text)

    def ask_for_order(
        self, act: str, name: str, limits: tuple[bool, bool, bool], key: str, on_answer: OnAnswer
    ) -> None:
        """Have the service do something once, by its key; `on_answer` gets ORDER's answer."""
        run = self._connection.service_run
        self._connection.start_read(on_answer, wire.ORDER, act, name, *limits, run, key)

    def came_along(self, run: GrantedRun) -> None:
        """Keep content that came with a grant, for the next `at_hand`."""
        self._reads.came_along(run)

    def close(self) -> None:
        """Abort the open transactions, and close the connection.

        What this member holds it keeps for its next connection. Every wait in here ends when the
        service has answered, or `close_s` later. See `MessageStore.close`.

        Raises:
            Unavailable: The service did not answer in that time.
        """
        with self._connection.guard:
            for opened in [*self._open]:
                self._end(opened, nobody, commit=False)
        with closing(self._reads):
            self._connection.close()

    def _noting(
        self, call: StoreCall, on_complete: OnComplete, transaction: TransactionContext | None
    ) -> OnComplete:
        """Have it noted when the service has the content of what a call enqueues."""
        if isinstance(call, EnqueueCall):
            if transaction is None and isinstance(call.message, StoredMessage):
                return self._messages.noting(call.message.message_id, on_complete)
            if isinstance(transaction, RemoteTransaction):
                transaction.messages += call.message.message_ids
        return on_complete

    def _do(
        self,
        asked: Sequence[Record],
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Send a record, or many in an open transaction; refused if that is not one of ours."""
        with self._connection.guard:
            self._connection.check_open()
            if transaction is None:
                self._connection.ask(wire.DO, (asked,), on_complete)
                return
            try:
                own = usable(transaction, self)
            except InvalidRequest as refusal:
                self._refuse(on_complete, refusal)
                return
            refusals: list[StoreError] = []

            def note(error: StoreError | None) -> None:
                if error is not None:
                    refusals.append(error)

            def complete(error: StoreError | None) -> None:
                on_complete(next(iter(refusals), error))

            parts = [*frames_of(asked)]
            for part in parts:
                noted = own.noting(complete if part is parts[-1] else note)
                body = own.transaction, part
                self._connection.ask(wire.ADD, body, noted, on_unwritable=own.spoil)

    def _records(self, call: StoreCall) -> Iterator[Record]:
        """Make the records that a call means: one of a run for each message."""
        if isinstance(call, EntryCall):
            record = made.record_of(call)
            for message_id in call.message_ids:
                if not is_id(message_id):
                    raise refusal_of_id(message_id)
                yield record._replace(message_id=message_id)
        elif isinstance(call, EnqueueCall):
            if isinstance(call.message, StoredRun):
                check_stored_run(call.message, self._messages.max_message_bytes)
            else:
                check_message(call.message)
            record = made.record_of(call)
            for message in call.message.singles():
                enqueued = self._messages.enqueued(message, call.queue)
                yield enqueued._replace(detail=record.detail)
        else:
            yield made.record_of(call)

    def _end(
        self,
        transaction: TransactionContext,
        on_complete: OnComplete,
        *,
        commit: bool,
        xid: bytes | None = None,
        refusal: StoreError | None = None,
    ) -> None:
        """Commit or abort a transaction; one with a refused operation is aborted either way.

        With an `xid` it is prepared, not committed; a `refusal` is why it is aborted instead.
        """
        check_completion(on_complete)
        with self._connection.guard:
            self._connection.check_open()
            try:
                own = usable(transaction, self)
            except InvalidRequest as unusable:
                self._refuse(on_complete, unusable)
                return
            own.is_open = False
            self._open.discard(own)

            def ended(error: StoreError | None) -> None:
                if commit or own.spoiled:
                    self._messages.note_told(own.messages)
                on_complete(error)

            if commit and own.spoiled:
                message = f"transaction {own.transaction} is aborted: an operation was refused"
                refusal = refusal or InvalidRequest(message)
            if refusal is not None:
                self._connection.ask(wire.END, (own.transaction, False), nobody)
                self._refuse(ended, refusal)
            elif xid is None:
                self._connection.ask(wire.END, (own.transaction, commit), ended)
            else:
                self._connection.ask(wire.PREPARE, (own.transaction, xid), ended)

    def _refuse(
        self,
        on_complete: OnComplete,
        refusal: StoreError,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Complete with an error in its turn; the transaction that it was in is spoiled by it."""
        if isinstance(transaction, RemoteTransaction):
            transaction.spoiled = True
        self._connection.ask(wire.DO, ((),), on_complete, refusal)

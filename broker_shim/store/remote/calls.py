"""The requests of a remote store about records: alone, or in a transaction of this member."""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service import protocol as wire
from broker_shim.store.interface import TransactionContext
from broker_shim.store.remote.connection import RemoteConnection
from broker_shim.store.remote.transaction import RemoteTransaction, check_usable
from sparkstore.core.records import Record
from sparkstore.core.state_machine.arguments import check_completion


class RemoteCalls:
    """Any thread may call it; each method takes the connection's guard.

    Args:
        connection: To the service.
        owner: The store whose transactions these are.
    """

    def __init__(self, connection: RemoteConnection, owner: object) -> None:
        self._connection, self._owner = connection, owner
        self._open: set[RemoteTransaction] = set()
        self._last_transaction = 0

    def begin(self) -> RemoteTransaction:
        """Start a transaction."""
        with self._connection.guard:
            self._last_transaction += 1
            opened = RemoteTransaction(self._last_transaction, self._owner)
            self._connection.ask(wire.OPEN, (opened.transaction,), opened.note)
            self._open.add(opened)
        return opened

    def abort_all(self) -> None:
        """Abort every transaction that is open."""
        with self._connection.guard:
            for opened in [*self._open]:
                self.end(opened, _nothing, commit=False)

    def do(
        self,
        record: Record,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Send a record, alone or in an open transaction; refused if that is not one of ours."""
        with self._connection.guard:
            self._connection.check_open()
            if transaction is None:
                self._connection.ask(wire.DO, ((record,),), on_complete)
                return
            try:
                own = check_usable(transaction, self._owner)
            except InvalidRequest as refusal:
                self.refuse(on_complete, refusal)
                return
            body = (own.transaction, (record,))
            noted = own.noting(on_complete)
            self._connection.ask(wire.ADD, body, noted, on_unwritable=own.spoil)

    def make(
        self,
        on_complete: OnComplete,
        make: Callable[[], Record],
        transaction: TransactionContext | None = None,
    ) -> None:
        """Send the record that a call means; what `make` raises refuses the call, in its turn."""
        check_completion(on_complete)
        try:
            record = make()
        except InvalidRequest as refusal:
            self.refuse(on_complete, refusal, transaction)
        else:
            self.do(record, on_complete, transaction)

    def end(
        self, transaction: TransactionContext, on_complete: OnComplete, *, commit: bool
    ) -> None:
        """Commit or abort a transaction; one with a refused operation is aborted either way."""
        check_completion(on_complete)
        with self._connection.guard:
            self._connection.check_open()
            try:
                own = check_usable(transaction, self._owner)
            except InvalidRequest as refusal:
                self.refuse(on_complete, refusal)
                return
            own.is_open = False
            self._open.discard(own)
            if commit and own.spoiled:
                self._connection.ask(wire.END, (own.transaction, False), _nothing)
                message = f"transaction {own.transaction} is aborted: an operation was refused"
                self.refuse(on_complete, InvalidRequest(message))
                return
            self._connection.ask(wire.END, (own.transaction, commit), on_complete)

    def refuse(
        self,
        on_complete: OnComplete,
        refusal: StoreError,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Complete with an error in its turn; the transaction that it was in is spoiled by it."""
        if isinstance(transaction, RemoteTransaction):
            transaction.spoiled = True
        self._connection.ask(wire.DO, ((),), on_complete, refusal)


def _nothing(_error: StoreError | None) -> None:
    """Nobody waits."""

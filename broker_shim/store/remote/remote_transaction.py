"""A transaction of a remote store, as far as this side knows of it."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import TransactionContext


@dataclass(slots=True, eq=False)
class RemoteTransaction:
    """A transaction that the service has open for this member. See `TransactionContext`.

    Attributes:
        transaction: Its number, of this member.
        owner: The store that it is of.
        messages: Those that it enqueues.
        is_open: False after commit or abort.
        spoiled: An operation was refused on this side: the service does not know of it.
    """

    transaction: int
    owner: object
    messages: list[int] = field(default_factory=list)
    is_open: bool = True
    spoiled: bool = False

    def spoil(self) -> None:
        """Mark that the transaction cannot be committed any more."""
        self.spoiled = True

    def note(self, error: StoreError | None) -> None:
        """Note the outcome of an operation: an error spoils the transaction."""
        self.spoiled = self.spoiled or error is not None

    def noting(self, on_complete: OnComplete) -> OnComplete:
        """Wrap a completion, so that the transaction notes its error."""

        def noted(error: StoreError | None) -> None:
            self.note(error)
            on_complete(error)

        return noted


def usable(transaction: TransactionContext, owner: object) -> RemoteTransaction:
    """The transaction, if it is an open one of this store.

    Raises:
        InvalidRequest: It is not.
    """
    if not isinstance(transaction, RemoteTransaction) or transaction.owner is not owner:
        number = getattr(transaction, "transaction", transaction)
        message = f"transaction {reprlib.repr(number)} is not one of this store"
        raise InvalidRequest(message)
    if not transaction.is_open:
        message = f"transaction {transaction.transaction} has ended: begin another"
        raise InvalidRequest(message)
    return transaction

"""The store's errors, and those of a message, as AMQP error conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import Error
from broker_shim.amqp_1_0.definitions import AmqpError, TransactionError
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.errors import InvalidRequest, LimitReached, NotAcquired, NotNow, StoreError
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.transactions.transaction_refusals import RefusalReason, TransactionRefused
from sparkstore.core.queue_names import shown


class Refusal(NamedTuple):
    """The error that a client gets, in the protocol's words.

    Attributes:
        condition: Of the protocol.
        description: One line for people.
        info: What the client's library is told beside.
    """

    condition: str
    description: str
    info: Mapping[str, Any] | None = None


_CONDITIONS: tuple[tuple[type[StoreError], str], ...] = (
    (LimitReached, AmqpError.RESOURCE_LIMIT_EXCEEDED),
    (InvalidRequest, AmqpError.PRECONDITION_FAILED),
    (NotAcquired, AmqpError.RESOURCE_LOCKED),
    (NotNow, AmqpError.RESOURCE_LIMIT_EXCEEDED),
)

_OF_TRANSACTIONS: Mapping[RefusalReason, str] = {
    RefusalReason.UNKNOWN: TransactionError.UNKNOWN_ID,
    RefusalReason.ROLLED_BACK: TransactionError.TRANSACTION_ROLLBACK,
    RefusalReason.TIMED_OUT: TransactionError.TRANSACTION_TIMEOUT,
    RefusalReason.NOT_SERVED: AmqpError.NOT_IMPLEMENTED,
    RefusalReason.TOO_MANY: AmqpError.RESOURCE_LIMIT_EXCEEDED,
}


def refusal_of(error: StoreError | DecodeError) -> Refusal:
    """Map an error of the store, or of a message, to the error that a client gets."""
    if isinstance(error, DecodeError):
        return Refusal(error.condition, error.description)
    if isinstance(error, TransactionRefused):
        return Refusal(_OF_TRANSACTIONS[error.reason], str(error))
    for kind, condition in _CONDITIONS:
        if isinstance(error, kind):
            return Refusal(condition, str(error))
    return Refusal(AmqpError.INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def queue_deleted(queue: str) -> Refusal:
    """Make the error for a queue's clients when an administrator deletes it."""
    return Refusal(
        AmqpError.RESOURCE_DELETED, f"queue {shown(queue)} was deleted by an administrator"
    )


def error_of(refusal: Refusal) -> Error:
    """Make a refusal's error, cut so that it fits the least frame that a peer may take."""
    description = refusal.description.encode()[:_MOST_DESCRIPTION_BYTES]
    info = {Symbol(name): value for name, value in (refusal.info or {}).items()} or None
    return Error(refusal.condition, description.decode(errors="ignore"), info)


_MOST_DESCRIPTION_BYTES = 320
"""A frame has at least 512; around a description are some 80, and an `info` has some 60."""

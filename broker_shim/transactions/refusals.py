"""Why a transaction does not do what it was asked."""

from __future__ import annotations

from broker_shim.amqp_1_0.definitions import AmqpError, TransactionError
from broker_shim.errors import InvalidRequest


class TransactionRefused(InvalidRequest):
    """Roll the transaction back and begin another; or declare one first.

    Attributes:
        condition: The specification's error condition, as `amqp:transaction:rollback`.
    """

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition


def unknown(txn_id: object) -> TransactionRefused:
    """Nothing is known of a transaction: it was never declared here, or has ended."""
    text = txn_id.hex() if isinstance(txn_id, bytes) else repr(txn_id)
    description = f"transaction {text[:64]} is not declared on this connection, or has ended"
    return TransactionRefused(TransactionError.UNKNOWN_ID, description)


def rolled_back(reason: str) -> TransactionRefused:
    """A transaction can only be rolled back, or was."""
    return TransactionRefused(TransactionError.TRANSACTION_ROLLBACK, reason)


def timed_out(timeout_s: float) -> TransactionRefused:
    """A transaction was open for too long after its first operation."""
    description = f"not discharged within {timeout_s:g} s of its first operation: rolled back"
    return TransactionRefused(TransactionError.TRANSACTION_TIMEOUT, description)


def not_served(what: str) -> TransactionRefused:
    """A client asked for more than local transactions."""
    return TransactionRefused(AmqpError.NOT_IMPLEMENTED, f"{what}: only local transactions are")


def too_many(limit: int) -> TransactionRefused:
    """A client has as many open transactions as it may have."""
    description = f"{limit} transactions are open on this connection: discharge one first"
    return TransactionRefused(AmqpError.RESOURCE_LIMIT_EXCEEDED, description)

"""Why a transaction does not do what it was asked."""

from __future__ import annotations

from enum import StrEnum

from broker_shim.errors import InvalidRequest


class RefusalReason(StrEnum):
    """The reason of a refusal, which a listener tells in the words of its protocol."""

    UNKNOWN = "unknown"
    ROLLED_BACK = "rolled back"
    TIMED_OUT = "timed out"
    NOT_SERVED = "not served"
    TOO_MANY = "too many"


class TransactionRefused(InvalidRequest):
    """Roll the transaction back and begin another; or declare one first.

    Attributes:
        reason: Why, for a program; the text is for people.
    """

    def __init__(self, reason: RefusalReason, description: str) -> None:
        super().__init__(description)
        self.reason = reason


def unknown(txn_id: object) -> TransactionRefused:
    """Refuse a transaction that was never declared here, or has ended."""
    text = txn_id.hex() if isinstance(txn_id, bytes) else repr(txn_id)
    description = f"transaction {text[:64]} is not declared on this connection, or has ended"
    return TransactionRefused(RefusalReason.UNKNOWN, description)


def rolled_back(reason: str) -> TransactionRefused:
    """Refuse a transaction that can only be rolled back, or was."""
    return TransactionRefused(RefusalReason.ROLLED_BACK, reason)


def timed_out(timeout_s: float) -> TransactionRefused:
    """Refuse a transaction that was open for too long after its first operation."""
    description = f"not discharged within {timeout_s:g} s of its first operation: rolled back"
    return TransactionRefused(RefusalReason.TIMED_OUT, description)


def not_served(what: str) -> TransactionRefused:
    """A client asked for more than local transactions."""
    return TransactionRefused(RefusalReason.NOT_SERVED, f"{what}: only local transactions are")


def too_many(limit: int) -> TransactionRefused:
    """Refuse one more transaction than a client may have open."""
    description = f"{limit} transactions are open on this connection: discharge one first"
    return TransactionRefused(RefusalReason.TOO_MANY, description)

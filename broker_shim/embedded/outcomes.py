"""Outcomes of deliveries: what we say, and what a consumer said as the JSON that history keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)

if TYPE_CHECKING:
    from broker_shim.embedded.local_transaction import LocalTransaction
    from broker_shim.protocol_1_0.receiver import ReceiverLink

ACCEPTED, REJECTED, RELEASED, MODIFIED = Accepted(), Rejected(), Released(), Modified()
"""One object each: dispositions of the same object are the quickest to put together."""


def may_reject(link: ReceiverLink) -> bool:
    """Whether a sender's source allows for rejected (3.5.3).

    Most clients say nothing of outcomes, and take all.
    """
    remote = link.remote.source
    outcomes = None if remote is None else remote.outcomes
    return not outcomes or Rejected.DESCRIPTOR in outcomes


def rejection(outcome: Rejected) -> dict[str, str]:
    """The outcome of a rejected delivery, with the peer's reason if it gave one."""
    told = {"outcome": "rejected"}
    error = outcome.error
    if error is not None:
        for name in ("condition", "description"):
            text = getattr(error, name)
            if text:
                told[name] = str(text)
    return told


def within(transaction: LocalTransaction | None, outcome: Any) -> Any:
    """An outcome as it is told: within a transaction it holds when that is committed."""
    if transaction is None:
        return outcome
    return TransactionalState(transaction.standing.txn_id, outcome)

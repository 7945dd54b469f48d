"""Outcomes of deliveries: what we say, and what a consumer said as the JSON that history keeps."""

from __future__ import annotations

from broker_shim.amqp_1_0.composites import Accepted, Modified, Rejected, Released
from broker_shim.protocol_1_0.deliveries import Delivery

ACCEPTED, REJECTED, RELEASED, MODIFIED = Accepted(), Rejected(), Released(), Modified()
"""One object each: dispositions of the same object are the quickest to put together."""


def rejection(delivery: Delivery) -> dict[str, str]:
    """The outcome of a rejected delivery, with the peer's reason if it gave one."""
    outcome = {"outcome": "rejected"}
    error = delivery.remote_state.error
    if error is not None:
        for name in ("condition", "description"):
            text = getattr(error, name)
            if text:
                outcome[name] = str(text)
    return outcome

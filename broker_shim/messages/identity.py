"""The name that a sender gave its message, with its type: 5 and "5" are two. Pure."""

from __future__ import annotations

from broker_shim.messages.neutral import MessageIdentity, neutral_of
from sparkstore.core.records import MessageHeader


def identity_of(header: MessageHeader) -> MessageIdentity:
    """The message id of a header of any protocol; None if its sender gave none."""
    if header.amqp_message_id is None:
        return None
    return neutral_of(header).message_id

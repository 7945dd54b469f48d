"""A message's header in no protocol's form: what one protocol's listener hands to another's.

A stored header keeps the bytes of the protocol that it came by. Whoever has to show it in another
protocol asks `neutral_of`, which knows a reader for each protocol whose listener there is, and
writes that in its own form. Types of properties are told in the words of AMQP 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from sparkstore.core.records import MessageHeader


def identity_of(header: MessageHeader) -> MessageIdentity:
    """The message id of a header of any protocol; None if its sender gave none."""
    if header.amqp_message_id is None:
        return None
    return neutral_of(header).message_id


MessageIdentity = UUID | str | bytes | int | None


class NeutralValue(NamedTuple):
    """A property's value with its type.

    Attributes:
        kind: Its type in AMQP 1.0's words, as `ushort`.
        value: The value, of Python's own classes; a timestamp is milliseconds.
    """

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class NeutralHeader:
    """The header fields that all protocols have, beside those in the columns of `MessageHeader`.

    Attributes:
        message_id: The identifier that the sender gave it, with its type.
        correlation_id: The same of the message that it answers.
        user_id: The sender's user id, as bytes.
        properties: Application properties by name, with their types.
        annotations: Those annotations that say when the message is to be delivered, likewise.
    """

    message_id: MessageIdentity = None
    correlation_id: MessageIdentity = None
    user_id: bytes | None = None
    properties: Mapping[str, NeutralValue] = field(default_factory=dict)
    annotations: Mapping[str, NeutralValue] = field(default_factory=dict)


NeutralReader = Callable[[MessageHeader], NeutralHeader]

READERS: dict[str, NeutralReader] = {}
"""Protocol → reader of its headers; each listener adds its own."""


def neutral_of(header: MessageHeader) -> NeutralHeader:
    """A header of any protocol; of one that nobody knows, what its columns say, as text."""
    reader = READERS.get(header.protocol or "")
    if reader is not None and header.header is not None:
        return reader(header)
    return NeutralHeader(
        header.amqp_message_id,
        header.correlation_id,
        None if header.user_id is None else header.user_id.encode(),
        {name: NeutralValue("string", value) for name, value in header.properties},
    )

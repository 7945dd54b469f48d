"""Edit a message: by the module that knows its protocol, as `typed_values` asks it for values."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from sparkstore.content.typed_values import decoder
from sparkstore.core.records import MessageHeader


class MessageEdit(NamedTuple):
    """Changes of a message.

    Attributes:
        body: The new body; None: it stays.
        properties: Application properties that are set, with their values as text.
        removed: Names of those that are taken away.
    """

    body: bytes | None = None
    properties: Mapping[str, str] = {}
    removed: Set[str] = frozenset()


def edited(header: MessageHeader, body: bytes, edit: MessageEdit) -> tuple[MessageHeader, bytes]:
    """Make header and body of the message that an edit asks for.

    Raises:
        InvalidRequest: The message cannot be edited so.
    """
    made: tuple[MessageHeader, bytes] = decoder().edited(header, body, edit)
    return made

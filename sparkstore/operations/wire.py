"""Encode new messages as objects of JSON, as `POST queues/NAME/messages` takes them. Pure.

`header` has the fields of `MessageHeader` that differ from its defaults, `header` in base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from sparkstore.core.records import MessageHeader
from sparkstore.operations.bulk import MessageDraft

ALL = (1 << 63) - 1
"""No message has a larger id; more are never held."""


def draft_content(draft: MessageDraft) -> dict[str, Any]:
    """Encode a new message as an object."""
    return {"header": _header_content(draft.header), "body": _text(draft.body)}


def draft_of(draft: dict[str, Any]) -> MessageDraft:
    """Read a new message.

    Raises:
        KeyError: It is none.
        TypeError: It is none.
        ValueError: It is none.
    """
    return MessageDraft(_header_of(dict(draft["header"])), b64decode(draft["body"], validate=True))


def _header_content(header: MessageHeader) -> dict[str, Any]:
    plain = MessageHeader()
    fields = {
        name: value
        for name, value in header._asdict().items()
        if value != getattr(plain, name) and name not in {"header_bytes", "body_bytes"}
    }
    return fields | ({} if header.header is None else {"header": _text(header.header)})


def _header_of(fields: dict[str, Any]) -> MessageHeader:
    if fields.get("header") is not None:
        fields["header"] = b64decode(fields["header"], validate=True)
    fields["properties"] = tuple((str(k), str(v)) for k, v in fields.get("properties", ()))
    header = MessageHeader(**fields)
    numbers = (header.priority, header.expires_at or 0, header.created_at or 0)
    if not all(isinstance(number, int) for number in numbers) or header.protocol is None:
        message = f"priority, expires_at and created_at are integers, protocol a name: {fields!r}"
        raise ValueError(message)
    return header


def _text(content: bytes) -> str:
    return b64encode(content).decode("ascii")

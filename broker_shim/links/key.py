"""Who a link is (document 003, step 4: the remote container is part of it). Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """Which end of a link we are."""

    SENDER = "sender"
    RECEIVER = "receiver"


class LinkKey(NamedTuple):
    """A link's identity at this broker (AMQP 2.6.1: names are unique for each direction).

    Attributes:
        remote_container_id: The peer's; several connections may have the same.
        name: As the peer calls the link.
        role: Of `Role`: our end.
    """

    remote_container_id: str
    name: str
    role: str


def holder_of(key: LinkKey) -> str:
    """The text by which a store knows what a link acquired: `container/name`, for people to read.

    Two keys never have the same text: within container and name `%` and `/` are escaped, so the
    first `/` parts them; and only a receiver's has a second one. (Only senders acquire.) In SQL:
    `replace(replace(container, '%', '%25'), '/', '%2F')`, the name likewise.
    """
    text = f"{_escaped(key.remote_container_id)}/{_escaped(key.name)}"
    return text if key.role == Role.SENDER else f"{text}/{key.role}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")

"""Who a link is: the remote container is part of it. Pure."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

OWNER_PART = "/"
"""Ends the user's name in a container id, as the broker knows it (`listener_1_0.owners`)."""


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

    @property
    def owner(self) -> str:
        """Whose it is: what all containers of one user share; "" of clients without a name."""
        user, part, _ = self.remote_container_id.partition(OWNER_PART)
        return user + part if part else ""


def holder_of(key: LinkKey) -> str:
    """The text by which a store knows what a link acquired: `["container","name","sender"]`.

    No two keys have the same text.
    """
    return json.dumps([*key], ensure_ascii=False, separators=(",", ":"))

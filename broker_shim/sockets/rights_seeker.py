"""Define a client whose rights are looked up: a connection of any protocol, or a user by HTTP."""

from __future__ import annotations

from typing import Protocol

from broker_shim.broker.virtual_host import Broker
from broker_shim.security.rules.permissions import Principal
from broker_shim.sockets.access import Access


class KnownUser(Protocol):
    """The login of a client, as far as its rights go."""

    @property
    def principal(self) -> Principal:
        """Return the user, with its roles."""


class RightsSeeker(Protocol):
    """A client, as far as its rights go. On the loop's thread only."""

    @property
    def broker(self) -> Broker:
        """Return the virtual host that the client asks something of."""

    @property
    def access(self) -> Access:
        """Return how the client got in."""

    @property
    def login(self) -> KnownUser:
        """Return the login of the client."""

    @property
    def number(self) -> int:
        """Return the number of its connection; 0 if it has none."""

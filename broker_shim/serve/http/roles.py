"""Decide which users may use which endpoints of the HTTP port. Pure.

A role opens endpoints, and `[security] permissions` open queues: whoever is to purge `orders` over
HTTP needs the role `operator`, and the permission to delete there if there are permissions. A user
without one of these roles may do nothing here, whatever it may do by AMQP.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class HttpRole(StrEnum):
    """The roles of users, each with all that those before it may do."""

    MONITOR = "monitor"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, needed: HttpRole) -> bool:
        """True if who has this role may do what another one is needed for."""
        ranks = [*HttpRole]
        return ranks.index(self) >= ranks.index(needed)


def role_of(roles: Collection[str]) -> HttpRole | None:
    """Return the highest of a user's roles that is one of the HTTP port's; None: none is."""
    return next((role for role in reversed([*HttpRole]) if role in roles), None)

"""The roles that open the HTTP port, by the names that users have in the users file. Pure."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum

from broker_shim.errors import InvalidRequest

_NEAR = 0.8
"""Misspelt is what is as near to a role; "operations", a name for permissions, is not."""


class HttpRole(StrEnum):
    """The roles of users, each with all that those before it may do."""

    MONITOR = "monitor"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, needed: HttpRole) -> bool:
        """True if who has this role may do what another one is needed for."""
        ranks = [*HttpRole]
        return ranks.index(self) >= ranks.index(needed)


def check_no_misspelt_role(role: str) -> None:
    """Refuse a role that is nearly one of these: it would open nothing, and nobody would know.

    Raises:
        InvalidRequest: It is; the message names the nearest.
    """
    near = get_close_matches(role.lower(), [*HttpRole], 1, _NEAR)
    if near and role not in near:
        message = f"role {role!r}: did you mean {near[0].value!r}? Name another role less alike"
        raise InvalidRequest(message)

"""Decide which users may use which endpoints of the HTTP port. Pure.

A role opens endpoints, and `[security] permissions` open queues: whoever is to purge `orders` over
HTTP needs the role `operator`, and the permission to delete there if there are permissions. A user
without one of these roles may do nothing here, whatever it may do by AMQP.
"""

from __future__ import annotations

from collections.abc import Collection

from broker_shim.security.rules.http_roles import HttpRole

__all__ = ["HttpRole", "role_of"]


def role_of(roles: Collection[str]) -> HttpRole | None:
    """Return the highest of a user's roles that is one of the HTTP port's; None: none is."""
    return next((role for role in reversed([*HttpRole]) if role in roles), None)

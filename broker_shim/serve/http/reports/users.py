"""Users with their roles, and the rules of who may do what. Read only: files decide both."""

from __future__ import annotations

from msgspec import Struct

from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import ADMIN, API, Endpoint


class UserRow(Struct, kw_only=True):
    """A user of the users file."""

    name: str
    roles: list[str]


class RuleRow(Struct, kw_only=True):
    """A line of `[security] permissions`."""

    who: list[str]
    address: str
    allow: list[str]


class UserList(Struct, kw_only=True):
    """All users and rules; where nobody logs in, or no rule is set, all is allowed to all."""

    requires_login: bool
    users: list[UserRow]
    rules: list[RuleRow]


async def list_users(call: Call) -> UserList:
    """List users with their roles, and the rules of permissions."""
    guard = call.caller.access.guard
    users, rules = await call.read(lambda: (dict(guard.users), guard.rules))
    return UserList(
        requires_login=guard.requires_login,
        users=[UserRow(name=name, roles=sorted(users[name].roles)) for name in sorted(users)],
        rules=[
            RuleRow(who=sorted(rule.who), address=rule.address, allow=sorted(rule.allow))
            for rule in rules
        ],
    )


ENDPOINTS = (Endpoint("GET", API + "/users", ADMIN, list_users, UserList),)

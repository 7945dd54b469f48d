"""Users: names, roles and what was derived from their passwords; as JSON. Pure.

    {"version": 1,
     "decoy_key": base64,
     "users": {"ann": {"roles": ["orders"],
                       "secrets": {"SCRAM-SHA-256": {"salt": base64, "stored_key": base64,
                                                     "server_key": base64, "iterations": 10000},
                                   "SCRAM-SHA-512": {…}},
                       "token": hex}}}

A user without secrets has no password: it comes with a certificate (EXTERNAL), and is listed for
its roles. `token` is the SHA-256 of a random token, by which a user logs in at the HTTP port: it
has 256 bits, and needs no salt. The decoy key makes up what users who do not exist are
asked (SCRAM): were it another after each start, whoever asks twice would know who exists.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker_shim.errors import InvalidRequest
from broker_shim.protocol_1_0.sasl.scram import ScramSecret

VERSION = 1
ANONYMOUS = "anonymous"
"""Who comes by ANONYMOUS is called so; no user is."""
ROLE_PREFIX = "role:"
EVERYBODY = "*"
SECRET_KINDS = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
"""Mechanism → bytes of its keys."""
LEAST_ITERATIONS = 4_096
MOST_ITERATIONS = 20_000
"""Checking a password by PLAIN takes the loop's thread so many rounds: 8 ms (see `passwords`)."""
MOST_NAME_CHARACTERS = 255
TOKEN_HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class User:
    """A user of the users file.

    Attributes:
        name: The user's name, as the client says it.
        roles: What permissions may name instead.
        secrets: By mechanism; both kinds, or none.
        token: SHA-256 of the token, in hexadecimal; empty: it has none.
    """

    name: str
    roles: frozenset[str] = frozenset()
    secrets: Mapping[str, ScramSecret] = field(default_factory=dict)
    token: str = ""


Users = Mapping[str, User]


def check_name(name: str, what: str = "user") -> None:
    """Check that a user or a role may be called so; raises InvalidRequest."""
    if not name or len(name) > MOST_NAME_CHARACTERS or not name.isprintable():
        message = f"a {what}'s name has 1 to {MOST_NAME_CHARACTERS} printable characters"
        raise InvalidRequest(message)
    if name in {ANONYMOUS, EVERYBODY} or name.startswith(ROLE_PREFIX) or name != name.strip():
        message = (
            f"no {what} can be called {name!r}: not {ANONYMOUS!r}, not {EVERYBODY!r},"
            f" nothing that starts with {ROLE_PREFIX!r}, no blanks around it"
        )
        raise InvalidRequest(message)


class UsersFileContent(NamedTuple):
    """The content of a users file.

    Attributes:
        users: Each user, by name.
        decoy_key: See above; None in a file of an older version.
    """

    users: dict[str, User]
    decoy_key: bytes | None = None


def encoded(content: UsersFileContent) -> bytes:
    """The file's text: sorted, a user a line, so that two of them can be compared."""
    lines = [
        f"  {json.dumps(user.name)}: {json.dumps(_user_as_json(user))}"
        for _, user in sorted(content.users.items())
    ]
    users, key = ",\n".join(lines), b64encode(content.decoy_key or b"").decode()
    decoy = f'"decoy_key": "{key}", ' if key else ""
    return f'{{"version": {VERSION}, {decoy}"users": {{\n{users}\n}}}}\n'.encode()


def decoded(content: bytes) -> UsersFileContent:
    """Decode the text of a users file.

    Raises:
        InvalidRequest: It is not what `encoded` writes, or is of a newer version; the message has
            no file's name.
    """
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError) as reason:
        message = f"not JSON ({reason}): restore it, or make it anew with `sparkstore passwd`"
        raise InvalidRequest(message) from reason
    version = whole.get("version") if isinstance(whole, dict) else None
    if type(version) is int and version != VERSION:
        message = f"version {version}, and this sparkstore knows {VERSION}: use a newer one"
        raise InvalidRequest(message)
    if type(version) is not int or not isinstance(whole.get("users"), dict):
        raise InvalidRequest('no users file: it needs "version" and "users"')
    users = {name: _user(name, item) for name, item in whole["users"].items()}
    try:
        return UsersFileContent(users, b64decode(whole.get("decoy_key", ""), validate=True) or None)
    except (TypeError, ValueError) as reason:
        raise InvalidRequest('"decoy_key" is damaged: take it out') from reason


def _user_as_json(user: User) -> dict[str, Any]:
    secrets = {
        kind: {
            "salt": b64encode(secret.salt).decode(),
            "stored_key": b64encode(secret.stored_key).decode(),
            "server_key": b64encode(secret.server_key).decode(),
            "iterations": secret.iterations,
        }
        for kind, secret in user.secrets.items()
    }
    token = {"token": user.token} if user.token else {}
    return {"roles": sorted(user.roles), "secrets": secrets, **token}


def _user(name: str, item: Any) -> User:
    check_name(name)
    try:
        roles, secrets, token = item["roles"], item["secrets"], item.get("token", "")
        if token and len(bytes.fromhex(token)) != TOKEN_HASH_BYTES:
            raise ValueError("a token of the wrong length")  # noqa: TRY301  # likewise
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise TypeError("roles")  # noqa: TRY301  # told like all else that is not as it must be
        read = {kind: _secret(kind, secrets[kind]) for kind in secrets}
    except (KeyError, TypeError, ValueError, AttributeError) as reason:
        message = f"user {name!r} is damaged ({reason!r}): set its password again"
        raise InvalidRequest(message) from reason
    if read and set(read) != set(SECRET_KINDS):
        message = f"user {name!r} needs secrets for {' and '.join(SECRET_KINDS)}, or none"
        raise InvalidRequest(message)
    for role in roles:
        check_name(role, "role")
    return User(name, frozenset(roles), read, token)


def _secret(kind: str, item: Mapping[str, Any]) -> ScramSecret:
    size, iterations = SECRET_KINDS[kind], item["iterations"]
    salt, stored, server = (
        b64decode(item[name], validate=True) for name in ("salt", "stored_key", "server_key")
    )
    if len(salt) < 12 or len(stored) != size or len(server) != size:
        raise ValueError("a salt or key of the wrong length")
    if type(iterations) is not int or not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        message = f"iterations: from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
        raise ValueError(message)
    return ScramSecret(salt, stored, server, iterations)

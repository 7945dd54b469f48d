"""Name the owner of a link: the container ids of a user are its own. Pure.

A link is known by its container id, which a client chooses. Were that all, a user could take over
the links of another who can be guessed, end its durable subscriptions, and read what waits there.
So the broker knows the containers of a user under `user/container`; those of anonymous clients
under what they say, where `/` is written `%2F`. No two of different users are one text, as no
user's name and no anonymous container has a `/` in here.
"""

from __future__ import annotations

from broker_shim.links.termini.owner import OWNER_PART
from broker_shim.security.rules.users import ANONYMOUS


def owned(container: str, user: str) -> str:
    """Return a user's container id, as the broker knows it."""
    if user == ANONYMOUS:
        return _escaped(container)
    return f"{_escaped(user)}{OWNER_PART}{container}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace(OWNER_PART, "%2F")

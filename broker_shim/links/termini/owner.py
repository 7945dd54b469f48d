"""Prefix a link's container id, as the broker knows it, with its user's name. Pure."""

OWNER_PART = "/"
"""Ends the user's name in a container id (`sockets.owners`)."""


def owner_of(remote_container_id: str) -> str:
    """Return the prefix that all containers of one user share; "" for clients without a name."""
    user, part, _ = remote_container_id.partition(OWNER_PART)
    return user + part if part else ""

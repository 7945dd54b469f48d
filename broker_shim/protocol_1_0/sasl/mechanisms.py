"""SASL mechanisms that end with the peer's first word: ANONYMOUS, PLAIN, EXTERNAL. Pure."""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.protocol_1_0.sasl.exchange import Answer, Challenge, Passed, Refused

MAX_PLAIN_BYTES = 1_024
"""Of all that PLAIN says: what a slow hash of a password is made for, at most."""


class Anonymous:
    """ANONYMOUS (RFC 4505): what the peer says of itself is not looked at."""

    def step(self, _response: bytes | None) -> Answer:
        """Let anybody in as `anonymous`."""
        return Passed("anonymous")


class Plain:
    """PLAIN (RFC 4616): [identity] NUL name NUL password. Only for TLS, or for tests.

    Args:
        is_password_of: Tells whether a password is a user's; takes name and password. It should
            take as long for a user who does not exist.
    """

    def __init__(self, is_password_of: Callable[[str, str], bool]) -> None:
        self._is_password_of = is_password_of

    def step(self, response: bytes | None) -> Answer:
        """Ask once if the peer has said nothing yet."""
        if response is None:
            return Challenge(b"")
        try:
            identity, name, password = response.decode().split("\0")
        except ValueError:  # not UTF-8, or not three parts
            return Refused("PLAIN that is not three parts of text")
        if not name or not password or len(response) > MAX_PLAIN_BYTES:
            return Refused("PLAIN with an empty name or password, or too long")
        if identity not in {"", name}:
            return Refused(f"{name!r} wants to act as somebody else")
        if not self._is_password_of(name, password):
            return Refused(f"unknown user, or not the password of {name!r}")
        return Passed(name)


class External:
    """EXTERNAL (RFC 4422): who the peer is was settled elsewhere, as by its TLS certificate.

    Args:
        identity: The peer's identity; None if nobody vouches for it.
    """

    def __init__(self, identity: str | None) -> None:
        self._identity = identity

    def step(self, response: bytes | None) -> Answer:
        """Let the peer act as the user of its certificate alone."""
        if response is None:
            return Challenge(b"")
        if self._identity is None:
            return Refused("EXTERNAL without a certificate")
        if response not in {b"", self._identity.encode()}:
            return Refused(f"{self._identity!r} wants to act as somebody else")
        return Passed(self._identity)

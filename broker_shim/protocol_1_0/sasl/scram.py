"""SASL SCRAM (RFC 5802, 7677) by the library `scramp`, as one of our mechanisms.

The server never holds a password: `look_up` gives what was derived from it. A user who does not
exist is asked like any other, with a salt that is always the same for that name and mechanism, and
fails at the end like a wrong password. Otherwise a peer could list the users.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from scramp import ScramException, ScramMechanism

from broker_shim.protocol_1_0.sasl.exchange import Answer, Challenge, Passed, Refused

MAX_MESSAGE_BYTES = 1_024
MAX_CHALLENGE_BYTES = 480
"""It repeats the peer's nonce, and a frame of SASL has at most 512 bytes (5.3.1)."""


class ScramSecret(NamedTuple):
    """The stored form of a password for one mechanism.

    Attributes:
        salt: At least 12 bytes.
        stored_key: The hash's size.
        server_key: The hash's size.
        iterations: At least 4,096.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Scram:
    """A SCRAM exchange: two words of the peer's.

    Args:
        name: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        look_up: A user's secret; None for a user who does not exist.
        decoy_key: Secret bytes, the same for every exchange, also after a restart.
        default_iterations: What users who do not exist seem to have; as most real ones have.
        nonce: Ours, of printable ASCII without commas; None lets the library draw one.
    """

    def __init__(
        self,
        name: str,
        look_up: Callable[[str], ScramSecret | None],
        decoy_key: bytes,
        *,
        default_iterations: int = 4_096,
        nonce: str | None = None,
    ) -> None:
        self._name = name
        self._look_up = look_up
        self._decoy_key = decoy_key
        self._default_iterations = default_iterations
        self._user = ""
        self._is_asked = False
        self._server = ScramMechanism(name).make_server(self._secret_of, s_nonce=nonce)

    def step(self, response: bytes | None) -> Answer:
        """Answer the peer's first word by a challenge, and decide by its second."""
        if response is None:
            return Challenge(b"")
        if len(response) > MAX_MESSAGE_BYTES:
            return Refused("SCRAM with a message that is too long")
        try:
            return self._stepped(response.decode())
        except (ScramException, UnicodeDecodeError) as reason:
            return Refused(f"SCRAM of {self._user!r}: {reason}")

    def _stepped(self, message: str) -> Answer:
        if not self._is_asked:
            self._is_asked = True
            self._server.set_client_first(message)
            challenge = self._server.get_server_first().encode()
            if len(challenge) > MAX_CHALLENGE_BYTES:
                return Refused(f"SCRAM of {self._user!r}: a nonce that is too long")
            return Challenge(challenge, self._user)
        self._server.set_client_final(message)
        return Passed(self._user, self._server.get_server_final().encode())

    def _secret_of(self, user: str) -> ScramSecret:
        self._user = user
        secret = self._look_up(user)
        if secret is not None:
            return secret
        # No client proof fits a stored key that is not the hash of anything known. A real user has
        # a salt for each mechanism, so this one has, too.
        salt, stored, server = (
            hmac.digest(self._decoy_key, f"{self._name}:{use}:{user}".encode(), hashlib.sha512)
            for use in ("salt", "stored", "server")
        )
        return ScramSecret(salt[:16], stored, server, self._default_iterations)

"""A password ↔ what is kept of it (RFC 5802 section 3).

PLAIN is checked with the same secrets as SCRAM, on the loop's thread: 10,000 rounds of SHA-256 take
4 ms here, at most `MOST_ITERATIONS` 8 ms. That is short enough not to need a thread of its own,
which would have to be bounded, too. It is paid seldom: a password that was right once is known
by a keyed hash from then on. Of those that are wrong each counts as a half-open connection until
its answer was due, 8 s for an address that keeps failing (`attempts`), also if nobody waits for it
(`limits`). So another machine's address gets a quarter of `max_half_open` in 8 s: 16 a second, 6 %
of the loop; and all there are, this machine too, four times that. SCRAM costs the broker a third of
a millisecond: clients do the rounds.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from scramp.core import ScramMechanism
from scramp.utils import ScramException, saslprep

from broker_shim.errors import InvalidRequest
from broker_shim.protocol_1_0.sasl.scram import ScramSecret
from broker_shim.security.rules.users import SECRET_KINDS, Users

ITERATIONS = 10_000
TOKEN_PREFIX = "sst_"  # noqa: S105  # of all tokens, which are random after it
"""By it one sees in a file or a log that something is such a token."""
LEAST_PASSWORD_CHARACTERS = 8
MOST_PASSWORD_BYTES = 512
_KIND = "SCRAM-SHA-256"
_MOST_KNOWN = 10_000


def secrets_of(password: str, iterations: int = ITERATIONS) -> dict[str, ScramSecret]:
    """Derive the secrets to store from a password, with a new salt for each mechanism.

    Raises:
        InvalidRequest: It is empty, too long, or has characters that no password has (RFC 4013).
    """
    try:
        if not saslprep(password) or len(password.encode()) > MOST_PASSWORD_BYTES:
            message = f"a password has 1 to {MOST_PASSWORD_BYTES} bytes"
            raise InvalidRequest(message)
        return {
            kind: ScramSecret(
                *ScramMechanism(kind).make_auth_info(password, iterations, secrets.token_bytes(16))
            )
            for kind in SECRET_KINDS
        }
    except ScramException as reason:
        raise InvalidRequest("the password has characters that none may have") from reason


def secrets_of_new(password: str) -> dict[str, ScramSecret]:
    """Derive secrets from a password that is chosen now, so that it must be hard to guess.

    One that was chosen before is not asked how long it is: its users go on.

    Raises:
        InvalidRequest: As `secrets_of`; it is too short.
    """
    secrets_of_it = secrets_of(password)
    if len(saslprep(password)) < LEAST_PASSWORD_CHARACTERS:
        message = f"a password has at least {LEAST_PASSWORD_CHARACTERS} characters"
        raise InvalidRequest(message)
    return secrets_of_it


def new_token() -> str:
    """Make a random token of 256 bits, by which a user logs in at the HTTP port."""
    return f"{TOKEN_PREFIX}{secrets.token_urlsafe(32)}"


def token_hash(token: str) -> str:
    """Return what the users file keeps of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def user_of_token(users: Users, token: str) -> str | None:
    """Return the name of the user whose token this is; None: nobody's.

    Hashes are compared, and each in the same time: what differs of one says nothing of a token.
    """
    given_hash, owner = token_hash(token), None
    for name, user in users.items():
        if user.token and hmac.compare_digest(user.token, given_hash):
            owner = name
    return owner


class Passwords:
    """Checks passwords of users, in the same time for users who do not exist.

    A password that was right is remembered as HMAC of it under a key that only this process has,
    together with the stored key that it fits. So a changed password is not taken for the old one.
    What that shows to somebody who can read this process' memory is no more than PLAIN itself does.
    """

    def __init__(self, users: Callable[[], Users]) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)
        self._decoy = ScramSecret(secrets.token_bytes(16), bytes(32), bytes(32), ITERATIONS)
        self._known: dict[str, tuple[bytes, bytes]] = {}

    def is_password_of(self, name: str, password: str) -> bool:
        """True if the user exists and this is the password."""
        secret, prepared = self._secret(name), _prepared(password)
        if self.remembers(name, password):
            return True
        if not _fits(secret, prepared):
            return False
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[name] = (self._seen(prepared), secret.stored_key)
        return True

    def remembers(self, name: str, password: str) -> bool:
        """True if the user exists, and this is the password and was right before."""
        digest, stored_key = self._known.get(name, (b"", b""))
        is_same = hmac.compare_digest(digest, self._seen(_prepared(password)))
        return is_same and stored_key == self._secret(name).stored_key

    def _secret(self, name: str) -> ScramSecret:
        user = self._users().get(name)
        return self._decoy if user is None else user.secrets.get(_KIND, self._decoy)

    def _seen(self, prepared: bytes) -> bytes:
        return hmac.digest(self._key, prepared, hashlib.sha256)


def _prepared(password: str) -> bytes:
    try:
        prepared: bytes = saslprep(password).encode()
    except ScramException:
        prepared = password.encode()  # nobody's: it goes the whole way all the same
    return prepared


def _fits(secret: ScramSecret, prepared: bytes) -> bool:
    """Tell whether the hash of the client's key is stored; no key has the decoy's stored key."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared, secret.salt, secret.iterations)
    client_key = hmac.digest(salted, b"Client Key", hashlib.sha256)
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), secret.stored_key)

"""Find the user who makes a request: a login by Basic, a token or a certificate ↔ a role.

Who asks at the control socket is the owner of the root, or root: the port served nobody else. It
may do everything, and what it does is written down with its process (`RootOwner`).

Decision: who is not logged in may do what everybody on this machine may by AMQP, if and only if
nobody logs in there: the listener asks for no name, there are no permissions, and the port is on
loopback. Else each request needs a login: Basic, the token of a user (Bearer), or the certificate
that the client showed, where AMQP offers EXTERNAL. There is no cookie, so no other site can use
one. A browser sends a password or a certificate by itself, so writes that another site asks it for
are refused by their origin (`router`), and the names of another site's host, too (DNS
rebinding).

A wrong password costs 4 ms of the loop. So a name that an address gave one for waits there as long
as a failed login by AMQP waits (`rules.attempts`), and is answered 429 meanwhile without a look at
the password; unless it was right before, since whoever knows it is not to be kept out by a
neighbour. Other names of that address do not wait, but for those that would be too many.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from broker_shim.broker.virtual_host import Broker
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.attempts import WaitingNames, is_loopback
from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.security.rules.permissions import Principal
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.sockets.access import LOOPBACK, Access
from sparkstore.control.audit import Audit

MECHANISM = "HTTP-BASIC"
_EXTERNAL, _BEARER = "EXTERNAL", "HTTP-BEARER"
_ASK = {"WWW-Authenticate": 'Basic realm="sparkstore", charset="UTF-8"'}
K = TypeVar("K")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")
_MOST_REMEMBERED = 10_000
_NO_NAME = ""
"""Of a token, which names nobody until it is right."""
_REPORTED_AGAIN_S = 900.0
"""A user who goes on asking has a line in the audit log so often."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A user who asks, as `sockets.authorization.RightsSeeker`: rights are looked up as for AMQP.

    Attributes:
        broker: The virtual host that it asks about.
        access: The guard, and where the user is.
        principal: Its name and roles.
        role: The highest of its roles that the HTTP port knows.
        number: That of no connection.
    """

    broker: Broker
    access: Access
    principal: Principal
    role: HttpRole
    number: int = field(default=0, init=False)

    @property
    def peer(self) -> str:
        """Name the other end, for the audit log."""
        remote = self.access.remote
        return f"http {remote}" if remote.port else str(remote)

    @property
    def user(self) -> str | None:
        """Name the user, for the audit log; None: nobody logs in."""
        return self.principal.name if self.access.guard.requires_login else None

    @property
    def login(self) -> Caller:
        """Return the login, which is the caller itself."""
        return self


class Authenticator(Protocol):
    """Finds the user of each request at one port."""

    is_local: bool
    """True if no browser reaches the port, so no site has anybody ask there."""

    def is_open_to(self, headers: Mapping[str, str]) -> bool:
        """True if nobody logs in by such a request: `caller` may be asked on any thread."""

    def caller(self, broker: Broker, remote: Remote, headers: Mapping[str, str]) -> Caller:
        """Return the user that a request names; on the loop's thread, unless it is open.

        Raises:
            HttpRefusal: There is no login, or a wrong one; or it has no role here.
        """


class RootOwner:
    """Takes whoever asks for the owner of the root: at a unix socket that is for nobody else."""

    is_local = True

    def __init__(self, audit: Audit) -> None:
        self._guard = Guard(SecuritySettings(), audit=audit)

    def is_open_to(self, headers: Mapping[str, str]) -> bool:  # noqa: ARG002  # as all
        """True, as the kernel said who asks. See `Authenticator.is_open_to`."""
        return True

    def caller(
        self,
        broker: Broker,
        remote: Remote,
        headers: Mapping[str, str],  # noqa: ARG002  # as all
    ) -> Caller:
        """Return the owner. See `Authenticator.caller`."""
        access = Access(self._guard, remote, LOOPBACK.newcomer)
        return Caller(broker, access, Principal(), HttpRole.ADMIN)


class Logins:
    """Finds users by their logins at a TCP port.

    On the loop's thread, or where nobody logs in on any.
    """

    is_local = False

    def __init__(self, guard: Guard, *, is_loopback: bool) -> None:
        self._guard, self._is_loopback = guard, is_loopback
        self._waiting = WaitingNames()
        self._reported: OrderedDict[tuple[str, str], float] = OrderedDict()

    @property
    def _is_open(self) -> bool:
        guard = self._guard
        return self._is_loopback and not (guard.requires_login or guard.has_permissions)

    def is_open_to(self, headers: Mapping[str, str]) -> bool:
        """True if nobody logs in. See `Authenticator.is_open_to`."""
        return self._is_open and "authorization" not in headers

    def caller(self, broker: Broker, remote: Remote, headers: Mapping[str, str]) -> Caller:
        """Return the user that a request names.

        Raises:
            HttpRefusal: There is no login, or a wrong one; or it has no role here.
        """
        header = headers.get("authorization")
        if self.is_open_to(headers):
            _check_host(headers.get("host", ""))
            return Caller(broker, self._access(remote), Principal(), HttpRole.ADMIN)
        if header is not None and header[:7].lower() == "bearer ":
            principal = self._bearer(remote, header[7:].strip())
        elif header is not None:
            principal = self._principal(remote, *_name_and_password(header))
        elif remote.certificate_name is not None and _EXTERNAL in self._guard.mechanisms(remote):
            principal = self._known(remote, _EXTERNAL, remote.certificate_name)
        else:
            text = "log in: by HTTP Basic, a Bearer token, or a client's certificate"
            raise HttpRefusal(401, text, _ASK)
        role = role_of(principal.roles)
        if role is None:
            act = "use the HTTP port"
            self._guard.role_refused(remote, principal, act, HttpRole.MONITOR)
            text = (
                f"this user has none of the roles {', '.join(HttpRole)}: give it one by sparkstore"
            )
            raise HttpRefusal(403, f"{text} passwd FILE NAME --roles ROLE")
        return Caller(broker, self._access(remote), principal, role)

    def _access(self, remote: Remote) -> Access:
        """Make the access of a request; it is no connection that opens, so all share a newcomer.

        One for each would be a cycle, which only Python's collector finds.
        """
        return Access(self._guard, remote, LOOPBACK.newcomer)

    def _bearer(self, remote: Remote, token: str) -> Principal:
        """Log in by a token; one that is right is never kept waiting, as no guess can be."""
        name = self._guard.user_of_token(token)
        if name is None:
            self._check_wait(remote, _NO_NAME)
            raise self._failed(
                remote, _NO_NAME, _BEARER, "no user has this token: see sparkstore passwd"
            )
        return self._known(remote, _BEARER, name)

    def _principal(self, remote: Remote, name: str, password: str) -> Principal:
        if not self._guard.remembers_password(name, password):
            self._check_wait(remote, name)
        if not self._guard.is_password_of(name, password):
            raise self._failed(remote, name, MECHANISM, "wrong user or password")
        return self._known(remote, MECHANISM, name)

    def _check_wait(self, remote: Remote, name: str) -> None:
        left_s = self._waiting.left_s(remote.host, name, time.monotonic())
        if left_s > 0:
            after = {"Retry-After": str(math.ceil(left_s))}
            raise HttpRefusal(
                429, f"a login from here failed: wait {left_s:.1f} s, then try", after
            )

    def _failed(self, remote: Remote, name: str, mechanism: str, why: str) -> HttpRefusal:
        now_s = time.monotonic()
        delay_s = self._guard.login_failed(remote, mechanism, why, now_s)
        self._waiting.failed(remote.host, name, now_s + delay_s)
        return HttpRefusal(401, why, _ASK)

    def _known(self, remote: Remote, mechanism: str, name: str) -> Principal:
        """Return a user whose login is right; the audit log has a line now and then."""
        known, now_s = (remote.host, name), time.monotonic()
        if now_s >= self._reported.get(known, -math.inf):
            _remember(self._reported, known, now_s + _REPORTED_AGAIN_S)
            return self._guard.let_in(remote, mechanism, name)
        return self._guard.principal_of(name)


def role_of(roles: Collection[str]) -> HttpRole | None:
    """Return the highest of a user's roles that is one of the HTTP port's; None: none is.

    A role opens endpoints, and `[security] permissions` open queues: whoever is to purge `orders`
    needs the role `operator`, and the permission to delete there if there are permissions. A user
    without one of these roles may do nothing here, whatever it may do by AMQP.
    """
    return next((role for role in reversed([*HttpRole]) if role in roles), None)


def _remember(times: OrderedDict[K, float], key: K, until_s: float) -> None:
    times[key] = until_s
    times.move_to_end(key)
    if len(times) > _MOST_REMEMBERED:
        times.popitem(last=False)


def _name_and_password(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    try:
        if scheme.lower() == "basic":
            text = base64.b64decode(encoded.strip(), validate=True).decode()
            name, colon, password = text.partition(":")
            if colon:
                return name, password
    except (binascii.Error, ValueError):
        pass
    raise HttpRefusal(401, "log in by HTTP Basic: base64 of user:password, in UTF-8", _ASK)


def _check_host(host: str) -> None:
    """Check that a browser was asked for this machine, and not for a name that leads here."""
    match = _HOST.fullmatch(host)
    if match is not None and (match[1].lower() == "localhost" or is_loopback(match[1].strip("[]"))):
        return
    raise HttpRefusal(421, "ask for 127.0.0.1 or localhost: nobody logs in here")

"""The guard at the door: what the listener asks about a peer, from the first byte to each attach.

On the loop's thread only. It counts connections; which they are is the listener's to know.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from broker_shim.errors import InvalidRequest
from broker_shim.protocol_1_0.sasl.exchange import Mechanism
from broker_shim.protocol_1_0.sasl.mechanisms import Anonymous, External, Plain
from broker_shim.protocol_1_0.sasl.scram import Scram, ScramSecret
from broker_shim.security.passwords import ITERATIONS, Passwords, user_of_token
from broker_shim.security.rules.attempts import FailedLogins
from broker_shim.security.rules.limits import Counts, HalfOpen
from broker_shim.security.rules.permissions import (
    AccessTarget,
    Permission,
    Permissions,
    Principal,
    Rule,
)
from broker_shim.security.rules.users import SECRET_KINDS, Users
from broker_shim.security.security_counts import SecurityCounts
from broker_shim.security.security_settings import PASSWORD_MECHANISMS, SecuritySettings
from broker_shim.security.summed_refusals import SummedRefusals
from broker_shim.security.tls import server_context
from broker_shim.security.users_file import UsersFile
from sparkstore.control.audit import Audit, AuditEvent, write_audit


class Remote(NamedTuple):
    """The other end of a socket, before it has said anything.

    Attributes:
        host: Its address as a number; at a unix socket its process, for a person.
        port: Its TCP port; 0 where there is none.
        tls: The version of TLS it speaks; None: none.
        certificate_name: The name in its certificate; None: it showed none.
    """

    host: str = ""
    port: int = 0
    tls: str | None = None
    certificate_name: str | None = None

    def __str__(self) -> str:
        if self.host and not self.port:  # a process of this machine
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Guard:
    """Answers for one listener.

    Attributes:
        counts: What happened so far.
        half_open: Connections that have not opened yet.
        context: TLS for the next connection; None: none is spoken.
        requires_login: False where a peer may leave out SASL altogether, and is anonymous.
    """

    def __init__(
        self,
        settings: SecuritySettings,
        mechanisms: tuple[str, ...] = ("ANONYMOUS",),
        audit: Audit = write_audit,
    ) -> None:
        """Read the users file and the certificates.

        Args:
            settings: What is configured.
            mechanisms: The mechanisms that `offered_mechanisms` chose.
            audit: Where audit lines go.

        Raises:
            InvalidRequest: A file cannot be used: one line that names it.
        """
        self.counts = SecurityCounts()
        self.requires_login = "ANONYMOUS" not in mechanisms
        self.audit = audit
        self._names = mechanisms
        self._tls = settings.tls
        self.context: ssl.SSLContext | None = None
        if self._tls is not None:
            self.context = server_context(self._tls)
        self._file = UsersFile(settings.users_path) if settings.users_path else None
        self._passwords = Passwords(lambda: self.users)
        self._permissions = Permissions(settings.permissions)
        self._impersonators = frozenset(settings.impersonators)
        self._failures = FailedLogins(settings.failed_login_delay_s)
        self.half_open = HalfOpen()
        self._refused = SummedRefusals(partial(audit, AuditEvent.CONNECTION_REFUSED))
        self._failed_tls = SummedRefusals(partial(audit, AuditEvent.LOGIN_FAILED))
        self._of_user = Counts()

    @property
    def tells_apart(self) -> bool:
        """True if one client can be told from another: not all are anonymous."""
        return self._names != ("ANONYMOUS",)

    @property
    def has_permissions(self) -> bool:
        """False if everything is allowed to everybody."""
        return bool(self._permissions)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all permissions, as they are in force."""
        return self._permissions.rules

    @property
    def users(self) -> Users:
        """Users as the file has them now."""
        return {} if self._file is None else self._file.users

    def mechanisms(self, remote: Remote) -> Mapping[str, Callable[[], Mechanism]]:
        """Return the mechanisms to offer.

        EXTERNAL needs a certificate, unless it is the only one.
        """
        has_name = remote.certificate_name is not None
        return {
            name: self._mechanism(name, remote)
            for name in self._names
            if name != "EXTERNAL" or has_name or self._names == ("EXTERNAL",)
        }

    def let_in(self, remote: Remote, mechanism: str, name: str) -> Principal:
        """Let in a peer that logged in, or may be anonymous without SASL (`mechanism` is empty)."""
        self.counts.logins += 1
        self.audit(
            AuditEvent.LOGIN, peer=remote, user=name, mechanism=mechanism or None, tls=remote.tls
        )
        return self.principal_of(name)

    def principal_of(self, name: str) -> Principal:
        """Return a user with the roles that the users file has now."""
        user = self.users.get(name)
        return Principal(name, frozenset() if user is None else user.roles)

    def is_password_of(self, name: str, password: str) -> bool:
        """True if the user exists and this is the password, for logins without SASL."""
        return self._passwords.is_password_of(name, password)

    def remembers_password(self, name: str, password: str) -> bool:
        """True if this is the user's password and was right before: that costs microseconds."""
        return self._passwords.remembers(name, password)

    def user_of_token(self, token: str) -> str | None:
        """Return the name of the user whose token this is; None: nobody's."""
        return user_of_token(self.users, token)

    def knows(self, principal: Principal, mechanism: str) -> bool:
        """False if a user who came by a password is not in the users file any more."""
        return mechanism not in PASSWORD_MECHANISMS or principal.name in self.users

    def login_failed(self, remote: Remote, mechanism: str, reason: str, now_s: float) -> float:
        """Audit a failed login; return how long the answer has to wait, in seconds."""
        self.counts.failed_logins += 1
        self.audit(
            AuditEvent.LOGIN_FAILED, peer=remote, mechanism=mechanism, tls=remote.tls, reason=reason
        )
        return self._failures.failed(remote.host, now_s)

    def handshake_failed(self, remote: Remote, reason: str) -> None:
        """TLS was not agreed: no certificate that anybody vouches for, or no TLS at all."""
        self.counts.failed_logins += 1
        self._failed_tls.add(
            remote.host, time.monotonic(), peer=remote, mechanism="TLS", reason=reason
        )

    def opens(self, remote: Remote, principal: Principal, most: int) -> bool:
        """Count a connection that a peer opens after its login; False if the user has `most`.

        One that was counted is told of by `closes` once it is over.
        """
        if self._of_user.opened(principal.name, most):
            return True
        self.connection_refused(remote, f"{most} connections of this user", principal)
        return False

    def closes(self, principal: Principal) -> None:
        """Count a connection that is over."""
        self._of_user.closed(principal.name)

    def connection_refused(
        self, remote: Remote, reason: str, principal: Principal | None = None
    ) -> None:
        """Write down that a connection was one too many."""
        self.counts.refused_connections += 1
        name = None if principal is None else principal.name
        self._refused.add(remote.host, time.monotonic(), peer=remote, user=name, reason=reason)

    @property
    def has_untold(self) -> bool:
        """Refusals were counted that no line of the audit log has told yet."""
        return bool(self._refused.pending or self._failed_tls.pending)

    def tell(self) -> None:
        """Write refusals down; to be called about a second later, and at the end."""
        self._refused.tell()
        self._failed_tls.tell()

    def allows(self, principal: Principal, act: Permission, place: AccessTarget) -> bool:
        """True if this is allowed; nothing is written down."""
        return self._permissions.allow(principal, act, place)

    def allows_anywhere(self, principal: Principal, act: Permission) -> bool:
        """True if this is allowed in any place."""
        return self._permissions.allow_anywhere(principal, act)

    def allows_all_of(self, principal: Principal, act: Permission, match: str = "#") -> bool:
        """True if this is allowed on every address that a pattern fits; `#` is any."""
        return self._permissions.allow_all_of(principal, act, match)

    def allows_user_id(self, principal: Principal, user_id: str) -> bool:
        """True if this client's messages may carry this user's id.

        Where all are anonymous nobody is told apart, and what a message says of its sender is the
        word of any program on this machine.
        """
        is_own = user_id == principal.name or not self.tells_apart
        return is_own or principal.is_one_of(self._impersonators)

    def refused_user_id(
        self, remote: Remote, principal: Principal, user_id: str, *, is_told: bool = False
    ) -> None:
        """Count a message that was refused for its user-id; as `refused`."""
        self.counts.refused_permissions += 1
        if not is_told:
            self.audit(
                AuditEvent.PERMISSION_REFUSED,
                peer=remote,
                user=principal.name,
                act="impersonate",
                user_id=user_id,
            )

    def refused(
        self,
        remote: Remote,
        principal: Principal,
        act: Permission,
        place: AccessTarget,
        *,
        is_told: bool = False,
    ) -> None:
        """Count that this was not allowed, and write it down unless that `is_told` already."""
        self.counts.refused_permissions += 1
        if is_told:
            return
        self.audit(
            AuditEvent.PERMISSION_REFUSED,
            peer=remote,
            user=principal.name,
            act=act,
            address=place.address,
            queue=place.queue,
        )

    def role_refused(
        self, remote: Remote, principal: Principal, act: str, role: str | None
    ) -> None:
        """Count that a user has not the role that this takes, and write it down; None: nobody."""
        self.counts.refused_permissions += 1
        name = principal.name
        self.audit(AuditEvent.PERMISSION_REFUSED, peer=remote, user=name, act=act, role=role)

    def reload(self, settings: SecuritySettings) -> None:
        """Take certificates, permissions and impersonators anew, all or nothing.

        Connections that are open stay as they are: TLS was agreed, and attaches were allowed. The
        users file needs no reload (`UsersFile`); whom it does not have any more, `knows` tells.

        Raises:
            InvalidRequest: One line; all is as it was.
        """
        if (settings.tls is None) != (self._tls is None):
            raise InvalidRequest("TLS cannot be turned on or off while the broker runs: restart it")
        if self._permissions and not settings.permissions:
            text = "no permissions are left, which would allow everything: restart it for that"
            raise InvalidRequest(text)
        context = None if settings.tls is None else server_context(settings.tls)
        self._permissions = Permissions(settings.permissions)
        self._impersonators = frozenset(settings.impersonators)
        self._tls, self.context = settings.tls, context
        self.audit(AuditEvent.SECURITY_RELOADED, permissions=len(settings.permissions))

    def _mechanism(self, name: str, remote: Remote) -> Callable[[], Mechanism]:
        if name in SECRET_KINDS:
            assert self._file is not None, "SCRAM is offered where there is a users file"
            return partial(
                Scram,
                name,
                partial(self._secret, name),
                self._file.decoy_key,
                default_iterations=ITERATIONS,
            )
        if name == "PLAIN":
            return partial(Plain, self._passwords.is_password_of)
        if name == "EXTERNAL":
            return partial(External, remote.certificate_name)
        return Anonymous

    def _secret(self, kind: str, name: str) -> ScramSecret | None:
        user = self.users.get(name)
        return None if user is None else user.secrets.get(kind)

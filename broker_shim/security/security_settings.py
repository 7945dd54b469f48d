"""Settings of security: `[security]` of sparkstore.toml, checked as a whole. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.permissions import Rule, check_who, rule_of
from broker_shim.security.tls import TlsFiles
from sparkstore.declared_settings import Bounds, check_declared
from sparkstore.settings_file import named_section, read_section

PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
MECHANISMS = ("EXTERNAL", *PASSWORD_MECHANISMS, "ANONYMOUS")
"""All there are, in the order in which they are offered."""


_File = Annotated[str, Bounds(metavar="FILE")]


@named_section
@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Settings that decide who may connect to the embedded broker, and do what.

    An option of `sparkstore serve` of the same name goes before a setting here. The users file is
    looked at at each login. SIGHUP reads certificates, permissions and impersonators again, and
    ends the connections of users with a password who were deleted. All else here counts from the
    next start.

    Attributes:
        users: The users file, which `sparkstore passwd FILE NAME` makes: who may log in by a
            password. It is looked at at each login. Without it and without tls_client_ca everybody
            on this machine may connect.
        mechanisms: SASL mechanisms to offer, of EXTERNAL, SCRAM-SHA-512, SCRAM-SHA-256, PLAIN and
            ANONYMOUS. Empty: all that the files here make possible; ANONYMOUS where that is none
            and only this machine can connect.
        tls_cert: Our certificate, a PEM file: speak TLS 1.2 and newer (amqps://) with it. Beyond
            loopback both TLS and users (or client certificates) are needed, and permissions where
            ANONYMOUS is offered; or --insecure on the command line.
        tls_key: The key of that certificate, a PEM file without a password, mode 0600.
        tls_client_ca: The authorities, a PEM file, that vouch for clients' certificates (EXTERNAL).
            Every certificate that they vouch for gets in, listed in the users file or not. The
            common name of the subject is the user; without one the first URI, email or DNS name.
        audit_file: A line of JSON for each login, refusal and act of administration goes there,
            beside the log; mode 0600.
        permissions: Rules of who may do what. Without any, everybody who got in may do everything,
            also with other users' queues and subscriptions. Else what none allows is refused
            (amqp:unauthorized-access).

              who      users, roles ("role:shop"), "*"
              address  words, where `*` is one and `#` any number; "address::queue" for single
                       queues; an exchange by its name; "temporary" for queues that a client has the
                       broker name, which only its user reads
              allow    of these:
                read      receive, browse, subscribe
                write     send
                create    have a queue, a durable subscription, an exchange or a binding made
                delete    purge or delete what others use (AMQP 0-10)
                admin     all of these, and get at the queue of a subscription by its name

            The whole table is in docs/security.md. For example:

              permissions = [
                {who = ["role:shop"], address = "orders.#", allow = ["read", "write", "create"]},
                {who = ["*"], address = "temporary", allow = ["read", "write", "create"]},
              ]

        impersonators: Users and roles, as in `who` of a rule, that may send messages with the
            user-id of others: gateways. A message of anybody else has the sender's own user-id or
            none, or is refused. Where nobody logs in (ANONYMOUS alone) it is not checked.
        failed_login_delay_s: How long the answer to an address' first failed login waits; each
            further one twice as long, up to 8 s. Until then it counts as a half-open connection. A
            minute without a failure forgives. 0: no wait.
    """

    PLACE: ClassVar[str] = "[security]"

    users: _File = ""
    mechanisms: Annotated[tuple[str, ...], Bounds(words=MECHANISMS, metavar="A,B")] = ()
    tls_cert: _File = ""
    tls_key: _File = ""
    tls_client_ca: _File = ""
    audit_file: _File = ""
    permissions: tuple[Rule, ...] = ()
    impersonators: tuple[str, ...] = ()
    failed_login_delay_s: Annotated[float, Bounds(0, 8)] = 0.5

    def __post_init__(self) -> None:
        check_declared(self, self.PLACE)
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidRequest("TLS needs both tls_cert and tls_key (--tls-cert and --tls-key)")
        if self.tls_client_ca and not self.tls_cert:
            raise InvalidRequest("tls_client_ca needs TLS: give tls_cert and tls_key, too")
        check_who(self.impersonators)

    @property
    def users_path(self) -> Path | None:
        """The users file, if there is one."""
        return Path(self.users) if self.users else None

    @property
    def tls(self) -> TlsFiles | None:
        """The files of TLS, if there is to be any."""
        if not self.tls_cert:
            return None
        client_ca = Path(self.tls_client_ca) if self.tls_client_ca else None
        return TlsFiles(Path(self.tls_cert), Path(self.tls_key), client_ca)


READ_AGAIN = ("tls_cert", "tls_key", "tls_client_ca", "permissions", "impersonators")
"""What a running broker takes anew (`Guard.reload`); all else counts from its next start."""


def offered_mechanisms(
    settings: SecuritySettings,
    address: str,
    *,
    is_loopback: bool,
    is_insecure: bool,
    option: str = "--listen",
) -> tuple[str, ...]:
    """The mechanisms that a listener offers, in order.

    A listener that others than this machine reach has TLS, and somebody to tell apart, or was
    asked for explicitly. So PLAIN, which says the password aloud, is nowhere by accident.

    Args:
        settings: What is configured.
        address: Where it is to listen, as it was said.
        is_loopback: Whether that is loopback.
        is_insecure: `--insecure` was said.
        option: What it was said with.

    Raises:
        InvalidRequest: It would be open to everybody, or to nobody; says what to do.
    """
    can_tell = bool(settings.users or settings.tls_client_ca)
    if not (is_loopback or is_insecure or (settings.tls_cert and can_tell)):
        message = (
            f"{option} {address} is not a loopback address: whoever reaches it could read and write"
            " every queue, or listen in; give --tls-cert, --tls-key and --users (or"
            " --tls-client-ca), or say --insecure if that is what you want"
        )
        raise InvalidRequest(message)
    possible = {"EXTERNAL"} if settings.tls_client_ca else set()
    possible.update(PASSWORD_MECHANISMS if settings.users else ())
    default = [name for name in MECHANISMS if name in possible]
    wanted = settings.mechanisms or default or (["ANONYMOUS"] if is_loopback else [])
    for name in wanted:
        if name != "ANONYMOUS" and name not in possible:
            message = f"mechanism {name} needs {_NEEDS[name]}"
            raise InvalidRequest(message)
    if "ANONYMOUS" in wanted and not (is_loopback or is_insecure or settings.permissions):
        message = (
            f"{option} {address} is not a loopback address, and with ANONYMOUS and no permissions"
            " whoever reaches it could read and write every queue; give [security] permissions,"
            " leave ANONYMOUS out, or say --insecure if that is what you want"
        )
        raise InvalidRequest(message)
    if not wanted:
        raise InvalidRequest(
            'nobody could log in: give --users FILE, or say mechanisms = ["ANONYMOUS"] in'
            " [security] to let everybody in"
        )
    return tuple(name for name in MECHANISMS if name in wanted)


_NEEDS = {
    "EXTERNAL": "clients' certificates: give --tls-client-ca FILE",
    "PLAIN": "a users file: give --users FILE",
    "SCRAM-SHA-256": "a users file: give --users FILE",
    "SCRAM-SHA-512": "a users file: give --users FILE",
}


def read_security(path: Path) -> SecuritySettings:
    """Settings from the `[security]` table of a TOML file; what it leaves out has its default.

    Raises:
        InvalidRequest: No such file, not TOML, an unknown setting, or a value of the wrong type.
    """
    return read_section(path, SecuritySettings, SecuritySettings, {"permissions": rule_of})

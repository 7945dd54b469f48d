"""Settings of security: `[security]` of sparkstore.toml, checked as a whole. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.permissions import Rule, check_who, rule_of
from broker_shim.security.tls import TlsFiles
from sparkstore.settings_file import read_section, told_of

PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
MECHANISMS = ("EXTERNAL", *PASSWORD_MECHANISMS, "ANONYMOUS")
"""All there are, in the order in which they are offered."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Settings that decide who gets in, and what they may do.

    Attributes:
        users: The users file; empty: none has a password.
        mechanisms: SASL mechanisms offered; empty: all that the other settings make possible, and
            ANONYMOUS if that leaves none and only this machine can connect.
        tls_cert: Our certificate, PEM; empty: no TLS.
        tls_key: Path of the private key of that certificate, PEM.
        tls_client_ca: The CA that vouches for clients' certificates; empty: none is asked for.
        audit_file: Where audit lines go beside the log; empty: nowhere.
        permissions: The rules of who may do what; empty: who got in may do everything.
        impersonators: Users and roles, as in `who` of a rule, that may send messages with the
            user-id of others: gateways.
        failed_login_delay_s: How long the answer to an address' first failed login waits.
    """

    users: str = ""
    mechanisms: tuple[str, ...] = ()
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    audit_file: str = ""
    permissions: tuple[Rule, ...] = ()
    impersonators: tuple[str, ...] = ()
    failed_login_delay_s: float = 0.5

    def __post_init__(self) -> None:
        if unknown := set(self.mechanisms) - set(MECHANISMS):
            message = f"mechanism {min(unknown)!r}: say some of {', '.join(MECHANISMS)}"
            raise InvalidRequest(message)
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidRequest("TLS needs both tls_cert and tls_key (--tls-cert and --tls-key)")
        if self.tls_client_ca and not self.tls_cert:
            raise InvalidRequest("tls_client_ca needs TLS: give tls_cert and tls_key, too")
        check_who(self.impersonators)
        if not 0 <= self.failed_login_delay_s <= 8:
            raise InvalidRequest("[security] failed_login_delay_s: from 0 to 8")

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
    with told_of(path):
        values = read_section(path, "security", SecuritySettings())
        if "permissions" in values:
            values["permissions"] = tuple(map(rule_of, values["permissions"]))
        for name, example in (("mechanisms", "PLAIN"), ("impersonators", "role:gateway")):
            if name in values:
                values[name] = _texts(name, values[name], example)
        return SecuritySettings(**values)


def _texts(name: str, found: list[Any], example: str) -> tuple[str, ...]:
    if not all(isinstance(item, str) for item in found):
        raise InvalidRequest(f'[security] {name}: say a list of texts, such as ["{example}"]')
    return tuple(found)

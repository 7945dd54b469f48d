"""Where clients come in, and who guards it: what the command line makes of it."""

from __future__ import annotations

import argparse
import logging
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broker_shim.broker.settings import read_settings
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.handlers.add_ons import read_handlers
from broker_shim.handlers.handler_chain import InsertionPoints
from broker_shim.security.guard import Guard
from broker_shim.security.security_options import security_of
from broker_shim.security.security_settings import READ_AGAIN, SecuritySettings, offered_mechanisms
from broker_shim.security.tls import complaints
from broker_shim.serve.bind_address import (
    BACKLOG,
    LISTEN,
    LISTEN_TLS,
    ListenAddress,
    bound_socket,
    parse_listen,
)
from sparkstore.control.audit import AuditEvent, add_audit_file, remove_audit_file
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.settings_file import SettingsAtStart

_log = logging.getLogger(__name__)


AMQP_0_10, SAME = "--amqp-0-10", "same"


@dataclass(slots=True)
class Entrance:
    """The checked way in of clients; nothing listens before `open`.

    Attributes:
        address: Where to listen.
        listening: What has the port, once it was taken; it belongs to whoever serves it.
        guard: Who is asked.
        audit: Where audit lines go beside the log; None: nowhere.
        url: What clients connect to; empty until it is open.
        in_force: What guards it, to be told at the start, in a word each.
        option: The option of the command line that gave the address.
        points: What stands before the standard handlers of AMQP 0-10.
        settings: What the file of settings said at the start.
        second: Where clients of AMQP 0-10 come in, guarded by the same guard; None: nowhere else.
        is_shared: They come in here, too.
    """

    address: ListenAddress
    guard: Guard
    audit: logging.Handler | None = None
    url: str = ""
    in_force: dict[str, str] = field(default_factory=dict)
    listening: socket.socket | None = None
    option: str = "--listen"
    second: Entrance | None = None
    is_shared: bool = False
    points: InsertionPoints = field(default_factory=InsertionPoints)
    settings: SettingsAtStart = field(default_factory=lambda: SettingsAtStart(None))

    def take_port(self) -> socket.socket:
        """Take the port, before anything is opened or made that would be for nothing without it.

        Raises:
            InvalidRequest: Another process has it, or it is not allowed.
        """
        if self.listening is None:
            try:
                self.listening = bound_socket(self.address)
            except OSError as reason:
                raise self._port_refused(reason.strerror) from reason
        if self.second is not None:
            self.second.take_port()
        return self.listening

    def open(self) -> str:
        """Let clients come in, and return the URL.

        Raises:
            InvalidRequest: As `take_port`; also if another took the port since, and listens there.
        """
        listening = self.take_port()
        try:
            listening.listen(BACKLOG)
        except OSError as reason:
            reason_text = f"{self.address.url_host}:{self.address.port}: {reason.strerror}"
            raise self._port_refused(reason_text) from reason
        port = listening.getsockname()[1]
        scheme = "amqp" if self.guard.context is None else "amqps"
        self.url = f"{scheme}://{self.address.url_host}:{port}"
        self.guard.audit(AuditEvent.STARTED, listen=self.url)
        if self.second is not None or self.is_shared:
            self.in_force["amqp-0-10"] = self.second.open() if self.second else self.url
        return self.url

    def reload(self, options: argparse.Namespace, broker: Broker | None = None) -> None:
        """Take certificates and permissions anew (SIGHUP); a slip in a file changes nothing.

        So are policies, if there is a broker to give them to: those of the file are set, no others
        deleted.

        What changed in the file and is not read is named: who edits it would take it for in force.
        """
        try:
            self.guard.reload(settings := security_of(options))
        except InvalidRequest as reason:
            text = "SIGHUP: %s; certificates and permissions are as they were"
            _log.error(text, reason)  # the reason is one line
            return
        _log.info("SIGHUP: certificates and permissions were read again")
        _warn_of_certificates(settings)
        given = {name for name in READ_AGAIN if getattr(options, name, None) is not None}
        read = {f"[security] {name}" for name in READ_AGAIN if name not in given}
        if broker is not None and options.config is not None:
            _set_policies(broker, options.config)
            read.add("[broker] policies")
        unread = [name for name in self.settings.changed() if name not in read]
        if unread:
            text = "SIGHUP does not read %s: what they say now counts from the next start"
            _log.warning(text, ", ".join(unread))

    def close(self) -> None:
        """Let no more clients in, and write no more audit lines to the file."""
        if self.second is not None:
            self.second.close()
        if self.listening is not None:
            self.listening.close()
        self.guard.tell()
        if self.url:
            self.guard.audit(AuditEvent.STOPPED, listen=self.url)
        if self.audit is not None:
            remove_audit_file(self.audit)

    def _port_refused(self, reason: str | None) -> InvalidRequest:
        text = f"{self.option} {reason}: give another port, or stop what has this one"
        return InvalidRequest(text)


def entrance_of(options: argparse.Namespace) -> Entrance:
    """Build the entrance that the options and `[security]` ask for.

    Raises:
        InvalidRequest: It would be open to everybody or to nobody, or a file cannot be used.
    """
    settings = security_of(options)
    listen = options.listen or (LISTEN_TLS if settings.tls_cert else LISTEN)
    address = parse_listen(listen)
    second, is_shared = _second(options.amqp_0_10, address)
    if second is not None and address.is_loopback:  # the one that others reach decides for both
        option, text, widest = AMQP_0_10, options.amqp_0_10, second
    else:
        option, text, widest = "--listen", listen, address
    mechanisms = offered_mechanisms(
        settings,
        text,
        is_loopback=widest.is_loopback,
        is_insecure=options.insecure,
        option=option,
    )
    guard = Guard(settings, mechanisms)
    if not widest.is_loopback:
        _warn(settings, text, mechanisms)
    _warn_of_certificates(settings)
    audit = add_audit_file(Path(settings.audit_file)) if settings.audit_file else None
    entrance = Entrance(address, guard, audit, in_force=_in_force(settings, guard, mechanisms))
    entrance.is_shared = is_shared
    entrance.settings = SettingsAtStart(options.config)
    if options.config is not None:
        entrance.points = read_handlers(options.config)
    if second is not None:
        entrance.second = Entrance(second, guard, option=AMQP_0_10)
    return entrance


def _second(text: str | None, first: ListenAddress) -> tuple[ListenAddress | None, bool]:
    """Find where else clients of AMQP 0-10 come in, and whether that is where all others do."""
    if not text or text == SAME:
        return None, text == SAME
    second = parse_listen(text, AMQP_0_10)
    is_shared = second == first and first.port != 0
    return (None, True) if is_shared else (second, False)


def _in_force(
    settings: SecuritySettings, guard: Guard, mechanisms: tuple[str, ...]
) -> dict[str, str]:
    """Tell which security settings are in force, for the line that says "ready"."""
    tls = "no" if not settings.tls_cert else "clients" if settings.tls_client_ca else "yes"
    return {
        "mechanisms": ",".join(mechanisms),
        "users": str(len(guard.users)) if settings.users else "no",
        "permissions": str(len(settings.permissions)) if settings.permissions else "no",
        "tls": tls,
    }


def _set_policies(broker: Broker, config: Path) -> None:
    """Have the policies of a settings file; what cannot be is told in the log, one line each."""
    try:
        wanted = read_settings(config).policies
    except InvalidRequest as reason:
        _log.error("SIGHUP: %s; policies are as they were", reason)
        return

    def report(error: StoreError | None, answer: dict[str, Any]) -> None:
        if error is not None:
            _log.error("SIGHUP: %s; that policy is as it was", error)
        elif answer["changed"]:
            _log.info("SIGHUP: policy %(policy)r set, %(altered)d queues altered", answer)

    for policy in wanted:
        order = Order(AdminAction.SET_POLICY, key=policy.name, match=policy.match)
        order = order._replace(priority=policy.priority, arguments=policy.arguments)
        broker.administration.order(order, report)


def _warn_of_certificates(settings: SecuritySettings) -> None:
    if settings.tls is not None:
        for complaint in complaints(settings.tls, datetime.now(UTC)):
            _log.warning("%s: clients that check it are not served", complaint)


def _warn(settings: SecuritySettings, listen: str, mechanisms: tuple[str, ...]) -> None:
    """Say loudly what others can do; they got here by `--insecure`, or by asking for ANONYMOUS."""
    if not settings.tls_cert:
        text = "INSECURE: %s has no TLS: messages, and passwords by PLAIN, can be read on the way"
        _log.warning(text, listen)
    if "ANONYMOUS" in mechanisms:
        text = "INSECURE: whoever reaches %s may connect without a name, and do %s"
        _log.warning(text, listen, "as permissions say" if settings.permissions else "everything")

"""The audit log: one line of JSON for each login, refusal and act of administration.

    {"at": "2026-11-22T02:50:01.123456Z", "event": "login", "peer": "10.0.0.7:40312",
     "user": "ann", "mechanism": "SCRAM-SHA-256", "tls": "TLSv1.3"}

It goes to the logger `sparkstore.audit`, so to the log with all else, and to a file of its own if
one is configured. A command that does an administrator's work itself, since no broker runs, writes
the same lines: to that file if its settings name one, else to `audit.log` in the root, since its
standard error is a terminal that nobody keeps.
ASCII only: what a client chose (names, addresses) can neither begin a new line
nor drive a terminal, and is cut. Never a password, never what was derived from one.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.operations.administration import Order
from sparkstore.operations.branch_orders import BranchOrder

AUDIT_FILE = "audit.log"
"""In the root: what commands did while no broker ran, unless their settings name another file."""
LOGGER = logging.getLogger("sparkstore.audit")
_MOST_CHARACTERS = 512


class AuditEvent(StrEnum):
    """The kinds of events that the audit log has."""

    STARTED = "started"
    STOPPED = "stopped"
    LOGIN = "login"
    LOGIN_FAILED = "login-failed"
    CONNECTION_REFUSED = "connection-refused"
    PERMISSION_REFUSED = "permission-refused"
    ADMINISTRATION = "administration"
    QUERY = "query"
    CONTENT_READ = "content-read"
    SECURITY_RELOADED = "security-reloaded"


Audit = Callable[..., None]
"""audit(event, **details): see `write_audit`."""


def write_audit(event: StrEnum, **details: object) -> None:
    """Write one line; details that are None are left out."""
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    LOGGER.info("%s", audit_line(event, at, **details))


def audit_order(
    audit: Audit,
    peer: str,
    order: Order,
    answer: dict[str, Any],
    error: StoreError | None,
    user: str | None = None,
) -> None:
    """Write down an order, of an administrator or of a client.

    Args:
        audit: Takes the line that is written.
        peer: The process or client that gave it.
        order: What was asked.
        answer: What it came to; empty if it was refused.
        error: Why it was refused, or why nobody knows what it came to.
        user: The user who logged in to give it; None: the process `peer` gave it.
    """
    audit(
        AuditEvent.ADMINISTRATION,
        peer=peer,
        act=order.act,
        queue=answer.get("queue", order.queue) or None,
        exchange=order.exchange or None,
        key=order.key or None,
        match=order.match or None,
        arguments=json.dumps(order.arguments) if order.arguments else None,
        force=order.force or None,
        messages=answer.get("messages_lost", answer.get("messages_rerouted")),
        error=error,
        user=user,
    )


def audit_branch(audit: Audit, peer: str, order: BranchOrder, error: StoreError | None) -> None:
    """Write down what an operator ordered of a branch, and why it was refused, if it was."""
    act, xid, by = order
    audit(AuditEvent.ADMINISTRATION, peer=peer, act=act, xid=xid, by=by, error=error)


def this_process() -> str:
    """Name this process as the origin of a request, where no socket names one."""
    return f"local uid={os.getuid()} pid={os.getpid()}"


def audit_line(event: StrEnum, at: str, **details: object) -> str:
    """Return an audit line as JSON. Pure."""
    values = {name: _cut(value) for name, value in details.items() if value is not None}
    return json.dumps({"at": at, "event": event, **values})


def _cut(value: object) -> object:
    if isinstance(value, int | float):
        return value
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


class _AuditFile(WatchedFileHandler):
    """A file of mode 0600, opened again when it was moved away (as logrotate does)."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="ascii")


def add_audit_file(path: Path) -> logging.Handler:
    """Have audit lines written to a file, too; close it with `remove_audit_file`.

    Raises:
        InvalidRequest: It cannot be written, is a symbolic link, or is open to others.
    """
    try:
        handler = _AuditFile(path, encoding="ascii")
        mode = path.stat().st_mode
    except OSError as reason:
        message = f"audit file {path}: {reason.strerror}"
        raise InvalidRequest(message) from reason
    if mode & 0o077:
        handler.close()
        message = f"audit file {path} can be read by others: chmod 600 it"
        raise InvalidRequest(message)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    return handler


def remove_audit_file(handler: logging.Handler) -> None:
    """Stop writing audit lines to this file."""
    LOGGER.removeHandler(handler)
    handler.close()

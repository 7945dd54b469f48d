"""Security's part of the command line of `sparkstore serve`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.security.settings import MECHANISMS, SecuritySettings, read_security

_FILES = ("users", "tls_cert", "tls_key", "tls_client_ca", "audit_file")


def add_options(add: Callable[..., object]) -> None:
    """Add the options of security to an argparse parser."""
    add(
        "--users",
        metavar="FILE",
        help="who may log in by a password: a file that `sparkstore passwd` makes, looked at at"
        " each login. Without it and without --tls-client-ca everybody on this machine may connect",
    )
    add("--tls-cert", metavar="FILE", help="speak TLS (amqps://) with this certificate, PEM")
    add("--tls-key", metavar="FILE", help="its key, PEM, without a password, mode 0600")
    add(
        "--tls-client-ca",
        metavar="FILE",
        help="let clients in by certificates (EXTERNAL) that these authorities vouch for",
    )
    add(
        "--mechanisms",
        metavar="A,B",
        help=f"SASL mechanisms to offer, of {', '.join(MECHANISMS)} (default: all that the files"
        " above make possible; ANONYMOUS on loopback where that is none)",
    )
    add("--audit-file", metavar="FILE", help="write logins and refusals there, too; mode 0600")
    add(
        "--insecure",
        action="store_true",
        help="listen where others reach it without TLS or without users: passwords and messages"
        " can be read on the way",
    )


def security_of(options: argparse.Namespace) -> SecuritySettings:
    """`[security]` of the configuration file, with what the command line says instead.

    Raises:
        InvalidRequest: They cannot be used.
    """
    settings = SecuritySettings() if options.config is None else read_security(options.config)
    said: dict[str, Any] = {
        name: getattr(options, name) for name in _FILES if getattr(options, name) is not None
    }
    if options.mechanisms is not None:
        said["mechanisms"] = tuple(options.mechanisms.split(","))
    if any(not value for value in said.values()):
        raise InvalidRequest("an option of security without a value: leave it out instead")
    return replace(settings, **said)

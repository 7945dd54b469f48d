"""Let one peer in: what it is offered, and the limits of its connection."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field

from broker_shim.protocol_1_0.sasl.exchange import Mechanisms
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.limits import HalfOpen, Newcomer
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.security.tls import certificate_name


@dataclass(frozen=True, slots=True)
class Access:
    """The access of one peer: its guard and its limits.

    Attributes:
        guard: Decides who may come in.
        remote: The other end, as far as its socket and its certificate tell.
        newcomer: It, until it has opened.
    """

    guard: Guard = field(default_factory=lambda: Guard(SecuritySettings()))
    remote: Remote = field(default_factory=Remote)
    newcomer: Newcomer = field(default_factory=lambda: HalfOpen().enter(""))

    @property
    def mechanisms(self) -> Mechanisms:
        """Return the mechanisms that the peer is offered, in the order of preference."""
        return self.guard.mechanisms(self.remote)


def identified(remote: Remote, transport: asyncio.Transport) -> Remote:
    """Return the remote with what TLS tells, once its handshake is over."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if tls is None:
        return remote
    return remote._replace(tls=tls.version(), certificate_name=certificate_name(tls.getpeercert()))


LOOPBACK = Access()
"""Anybody on this machine, as on a socket that nobody else reaches."""

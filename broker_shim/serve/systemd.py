"""Tell the service manager how this process fares: sd_notify(3), if it asks for that."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_log = logging.getLogger(__name__)

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def notify(*states: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell states, such as `READY`; one that cannot be told is a warning and no more."""
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # a name of the abstract kind
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.setblocking(False)  # noqa: FBT003  # the library's signature
            to.sendto("\n".join(states).encode(), address)
    except OSError as reason:
        _log.warning("the service manager was not told %s: %s", states[0], reason)

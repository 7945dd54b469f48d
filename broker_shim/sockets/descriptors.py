"""Keep file descriptors for the store: what accepts connections leaves some to it.

The log, Delta commits and their readers open files all the time, and one that cannot be opened ends
the store. The kernel gives the lowest number that is free. So an accepted socket with a high number
tells that as many descriptors are in use, whoever uses them, and is closed at once.

Of all that a process may have, the last eighth is the store's alone. The eighth before it is for
the HTTP port, which has a quarter at most: so clients of AMQP keep no probe out, nor the other way.
"""

from __future__ import annotations

import resource
import socket

SCARCE = "few file descriptors are left: raise LimitNOFILE"
"""Why a connection is refused."""
_OF_STORE, _OF_HTTP, _OF_HTTP_AT_MOST = 8, 8, 4


def is_scarce(accepted: socket.socket) -> bool:
    """True if a connection of AMQP has a descriptor that is kept for others."""
    most = _limit()
    return accepted.fileno() >= most - most // _OF_STORE - most // _OF_HTTP


def is_scarce_for_http(accepted: socket.socket, count: int) -> bool:
    """True if a connection over HTTP has a descriptor of the store, or there are `count` others."""
    most = _limit()
    return accepted.fileno() >= most - most // _OF_STORE or count >= most // _OF_HTTP_AT_MOST


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (1 << 31) if soft == resource.RLIM_INFINITY else soft

"""Decide which right an act needs, whatever protocol asks for it. Pure.

This is the one table of them: both listeners look here, docs/security.md shows it to users, and a
test walks every right over every command of both protocols. Who gives orders by the control socket
or by a command is the operating system's user whose root it is, and needs none.

Decision: to destroy is a right of its own. `create` is given to whoever may have queues of its own
made, on addresses where others have theirs. `read` takes messages one by one, each of which is
settled by somebody, while a purge asks nobody. `admin` alone would be too much for a client that
ends its durable subscriptions over AMQP 0-10, which are queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from broker_shim.security.rules.permissions import Permission


class Act(StrEnum):
    """The acts of a client that need a permission."""

    SEND = "send"
    RECEIVE = "receive"
    HAVE_ALONE = "have-alone"
    MAKE_QUEUE = "make-queue"
    SUBSCRIBE_DURABLY = "subscribe-durably"
    MAKE_EXCHANGE = "make-exchange"
    BIND_QUEUE = "bind-queue"
    BIND_TO_EXCHANGE = "bind-to-exchange"
    DIVERT = "divert"
    UNBIND = "unbind"
    PURGE = "purge"
    ALTER_QUEUE = "alter-queue"
    DELETE_QUEUE = "delete-queue"
    DELETE_EXCHANGE = "delete-exchange"
    END_OWN_QUEUE = "end-own-queue"
    USE_ANOTHERS = "use-anothers"
    SET_POLICY = "set-policy"


RIGHTS: Mapping[Act, Permission] = MappingProxyType(
    {
        Act.SEND: Permission.WRITE,
        Act.RECEIVE: Permission.READ,
        Act.HAVE_ALONE: Permission.READ,  # nobody else receives then
        Act.MAKE_QUEUE: Permission.CREATE,
        Act.SUBSCRIBE_DURABLY: Permission.CREATE,
        Act.MAKE_EXCHANGE: Permission.CREATE,
        Act.BIND_QUEUE: Permission.CREATE,
        Act.BIND_TO_EXCHANGE: Permission.READ,
        Act.DIVERT: Permission.WRITE,  # rejected messages go there
        Act.UNBIND: Permission.DELETE,
        Act.PURGE: Permission.DELETE,
        Act.ALTER_QUEUE: Permission.ADMIN,  # it may end messages, and says where they go
        Act.DELETE_QUEUE: Permission.DELETE,
        Act.DELETE_EXCHANGE: Permission.DELETE,
        Act.END_OWN_QUEUE: Permission.CREATE,  # it has been one client's alone since it was made
        Act.USE_ANOTHERS: Permission.ADMIN,
        Act.SET_POLICY: Permission.ADMIN,  # on all that its pattern covers: it alters queues there
    }
)

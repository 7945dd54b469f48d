"""What both sides of an attach need: waiting for what it names, and refusals.

A link is answered when all that it needs exists durably. A refused one is attached and detached
with the reason (AMQP 1.0 section 2.6.3), so that the client's library reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cproton import (
    PN_UNSPECIFIED,
    pn_link_is_sender,
    pn_link_open,
    pn_link_remote_source,
    pn_link_remote_target,
    pn_link_source,
    pn_link_target,
    pn_terminus_get_address,
    pn_terminus_set_address,
    pn_terminus_set_type,
)

from broker_shim.durability import TerminusDurability
from broker_shim.embedded.address import (
    AmbiguousNode,
    MalformedNode,
    Node,
    QueueNode,
    described,
)
from broker_shim.embedded.conditions import (
    INVALID_FIELD,
    NOT_FOUND,
    Refusal,
    refusal_of,
)
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import Queue

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_PN_SOURCE, _PN_TARGET = 1, 2


class _Pending:
    """Stands for a link while what it needs is being created."""

    def __init__(self) -> None:
        self.is_gone = False

    def start(self) -> None:
        """Nothing yet."""

    def gone(self) -> None:
        """It ended before it began."""
        self.is_gone = True

    def on_flow(self) -> None:
        """Read again when it starts."""

    def on_delivery(self, delivery: Any) -> None:
        """It has no credit."""


def when_there(
    connection: Connection,
    link: Any,
    node: Node,
    ready: Callable[[], None],
    *,
    is_temporary: bool,
) -> None:
    """Call `ready` when the node exists, on demand or not, and the link still does."""
    if not isinstance(node, QueueNode):
        ready()
        return
    pending = expect(connection, link)
    on_done = answer(connection, link, pending, ready)
    if is_temporary:
        connection.broker.create_queue(Queue(node.queue, TerminusDurability.NONE), on_done)
    else:
        connection.broker.ensure_queue(node.queue, on_done)


def expect(connection: Connection, link: Any) -> _Pending:
    """Remember a link that cannot be answered yet."""
    pending = _Pending()
    connection.expect(link, pending)
    return pending


def answer(
    connection: Connection, link: Any, pending: _Pending, ready: Callable[[], None]
) -> Callable[[StoreError | None], None]:
    """What to call when that was done, or not: `ready`, unless the link ended, or a refusal."""

    def on_done(error: StoreError | None) -> None:
        if pending.is_gone:
            return
        if error is None:
            ready()
        else:
            refusal = refusal_of(error)
            if isinstance(error, InvalidRequest):
                refusal = Refusal(NOT_FOUND, str(error))
            refuse(connection, link, refusal)

    return on_done


def refuse(connection: Connection, link: Any, refusal: Refusal) -> None:
    """Attach without a terminus, then detach with the reason.

    Proton's own default is an empty terminus, which to Qpid JMS is a link that was attached and
    then closed: its application is not told that the destination is wrong.
    """
    refused = pn_link_source(link) if pn_link_is_sender(link) else pn_link_target(link)
    pn_terminus_set_type(refused, PN_UNSPECIFIED)
    pn_link_open(link)
    connection.detach(link, refusal)


def refuse_node(connection: Connection, link: Any, node: AmbiguousNode | MalformedNode) -> None:
    """Tell that a name names nothing.

    The candidates of an ambiguous one go to the broker's log: a client need not learn who else
    has a queue.
    """
    if isinstance(node, AmbiguousNode):
        connection.broker.destinations.warn(node.ambiguous)
    condition = NOT_FOUND if isinstance(node, AmbiguousNode) else INVALID_FIELD
    refuse(connection, link, Refusal(condition, described(node)))


def copy_source(link: Any) -> None:
    """Answer with the peer's own source."""
    local = pn_link_source(link)
    pn_terminus_set_type(local, _PN_SOURCE)
    pn_terminus_set_address(local, pn_terminus_get_address(pn_link_remote_source(link)))


def copy_target(link: Any) -> None:
    """Answer with the peer's own target."""
    local = pn_link_target(link)
    pn_terminus_set_type(local, _PN_TARGET)
    pn_terminus_set_address(local, pn_terminus_get_address(pn_link_remote_target(link)))


def temporary_name() -> str:
    """A name that nobody has."""
    return f"temporary-{uuid4().hex}"

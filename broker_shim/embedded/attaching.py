"""What both sides of an attach need: waiting for what it names, the answer, and refusals.

A link is answered when all that it needs exists durably. A refused one is attached and detached
with the reason (AMQP 1.0 section 2.6.3), so that the client's library reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from broker_shim.amqp_1_0.composites import Source, Target
from broker_shim.durability import TerminusDurability
from broker_shim.embedded.address import (
    AmbiguousNode,
    MalformedNode,
    Node,
    QueueNode,
    described,
)
from broker_shim.embedded.allowing import TEMPORARY_PREFIX, refusal_of_act
from broker_shim.embedded.conditions import (
    INVALID_FIELD,
    NOT_FOUND,
    Refusal,
    error_of,
    refusal_of,
)
from broker_shim.embedded.endpoints import LinkEndpoint
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.protocol_1_0.deliveries import Delivery
from broker_shim.protocol_1_0.errors import InvalidCommand
from broker_shim.protocol_1_0.receiver import ReceiverLink
from broker_shim.protocol_1_0.sender import SenderLink
from broker_shim.security.permissions import Act
from broker_shim.store.interface import Queue

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

AnyLink = ReceiverLink | SenderLink


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

    def on_disposition(self, delivery: Delivery) -> None:
        """It has no deliveries."""


def when_there(
    connection: Connection,
    link: AnyLink,
    node: Node,
    ready: Callable[[], None],
    *,
    is_temporary: bool,
) -> None:
    """Call `ready` when the node exists, on demand or not, and the link still does.

    The peer must be allowed to create what is not there.
    """
    if isinstance(node, QueueNode) and node.queue not in connection.broker.queues:
        refusal = refusal_of_act(connection, Act.CREATE, node)
        if refusal is not None:
            refuse(connection, link, refusal)
            return
    if not isinstance(node, QueueNode):
        ready()
        return
    pending = expect(connection, link)
    on_done = answer(connection, link, pending, ready)
    if is_temporary:
        connection.broker.create_queue(Queue(node.queue, TerminusDurability.NONE), on_done)
    else:
        connection.broker.ensure_queue(node.queue, on_done)


def expect(connection: Connection, link: AnyLink) -> _Pending:
    """Remember a link that cannot be answered yet."""
    pending = _Pending()
    connection.expect(link, pending)
    return pending


def answer(
    connection: Connection, link: AnyLink, pending: _Pending, ready: Callable[[], None]
) -> Callable[[StoreError | None], None]:
    """What to call when that was done, or not: `ready`, unless the link ended, or a refusal."""

    def on_done(error: StoreError | None) -> None:
        if pending.is_gone or link.is_gone:
            return
        if error is None:
            ready()
        else:
            refusal = refusal_of(error)
            if isinstance(error, InvalidRequest):
                refusal = Refusal(NOT_FOUND, str(error))
            refuse(connection, link, refusal)

    return on_done


def grant(
    connection: Connection,
    link: AnyLink,
    endpoint: LinkEndpoint,
    *,
    source: Source | None,
    target: Any,
    **fields: Any,
) -> None:
    """Answer an attach with what is granted, and have `endpoint` serve the link.

    Args:
        connection: The link's.
        link: Attached by the peer, not answered yet.
        endpoint: Started once the answer is written.
        source: Of the answer.
        target: Of the answer: a `Target`, a `Coordinator` or None.
        fields: As `Link.attach` takes them.
    """
    try:
        link.attach(source=source, target=target, **fields)
    except InvalidCommand as reason:  # an answer larger than the frames that the peer takes
        refuse(connection, link, Refusal(INVALID_FIELD, str(reason)))
        return
    connection.attached(link, endpoint)


def refuse(connection: Connection, link: AnyLink, refusal: Refusal) -> None:
    """Attach without a terminus, then detach with the reason.

    An answer with an empty terminus would be a link that was attached and then closed to Qpid JMS:
    its application is not told that the destination is wrong.
    """
    link.refuse(error_of(refusal))
    connection.has_output()


def refuse_node(connection: Connection, link: AnyLink, node: AmbiguousNode | MalformedNode) -> None:
    """Tell that a name names nothing.

    The candidates of an ambiguous one go to the broker's log: a client need not learn who else
    has a queue.
    """
    if isinstance(node, AmbiguousNode):
        connection.broker.destinations.warn(node.ambiguous)
    condition = NOT_FOUND if isinstance(node, AmbiguousNode) else INVALID_FIELD
    refuse(connection, link, Refusal(condition, described(node)))


def same_source(link: ReceiverLink) -> Source | None:
    """The peer's own source, as far as we answer with it."""
    remote = link.remote.source
    return None if remote is None else Source(remote.address)


def same_target(link: SenderLink) -> Target | None:
    """The peer's own target, as far as we answer with it."""
    remote = link.remote.target
    return Target(remote.address) if isinstance(remote, Target) else None


def temporary_name() -> str:
    """A name that nobody has."""
    return f"{TEMPORARY_PREFIX}{uuid4().hex}"

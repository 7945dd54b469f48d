"""An attach that waits for what it names, its answer, and its refusal; of both sides.

A link is answered when all that it needs exists durably. A refused one is attached and detached
with the reason (AMQP 1.0 section 2.6.3), so that the client's library reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.broker.orders.wiring_limit import CreatedEntity
from broker_shim.broker.wiring.address import AmbiguousNode, MalformedNode, Node, described
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, LimitReached, StoreError
from broker_shim.listener_1_0.conditions import Refusal, error_of, refusal_of
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.served_endpoint import ServedEndpoint
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.sender import SenderLink
from sparkstore.core.queue_names import TEMPORARY_PREFIX, TOPIC_PREFIX

AnyLink = ReceiverLink | SenderLink

Step = Callable[[OnComplete], None]
"""step(on_done): one thing that an attach needs; `on_done` when it is there."""


def put_off(connection: Connection, link: AnyLink) -> Callable[[], bool]:
    """An attach goes on later; what it returns tells whether it is still wanted then."""
    pending = ServedEndpoint(link)  # so that the end of the link is noticed
    connection.served.put(link, pending)
    return lambda: not pending.is_gone


def room_for_queue(connection: Connection, name: str) -> Step:
    """Make the step that checks that the connection's user may have a queue made."""
    user = connection.login.principal.name
    return partial(connection.broker.wiring_limit.check, user, CreatedEntity(name))


def go_through(
    connection: Connection, link: AnyLink, steps: Sequence[Step], ready: Callable[[], None]
) -> None:
    """Take steps, one after the other, then call `ready`, if the link is still there by then.

    The first one that fails has the link refused.
    """
    _StepByStep(connection, link, steps, ready)(None)


class _StepByStep:
    """A completion that is that of each step: no closure, which would hold itself for ever."""

    def __init__(
        self,
        connection: Connection,
        link: AnyLink,
        steps: Sequence[Step],
        ready: Callable[[], None],
    ) -> None:
        self._connection, self._link, self._ready = connection, link, ready
        self._is_wanted, self._left = put_off(connection, link), list(steps)

    def __call__(self, error: StoreError | None) -> None:
        if not self._is_wanted():
            return
        if isinstance(error, InvalidRequest) and not isinstance(error, LimitReached):
            refuse(self._connection, self._link, Refusal(AmqpError.NOT_FOUND, str(error)))
        elif error is not None:
            refuse(self._connection, self._link, refusal_of(error))
        elif self._left:
            self._left.pop(0)(self)
        else:
            self._ready()


def grant(
    connection: Connection,
    link: AnyLink,
    endpoint: ServedEndpoint,
    **fields: Any,
) -> None:
    """Answer an attach with what is granted, and have `endpoint` serve the link.

    Args:
        connection: The connection that the link is on.
        link: Attached by the peer, not answered yet.
        endpoint: Started once the answer is written.
        fields: As `Link.attach` takes them.
    """
    try:
        link.attach(**fields)
    except InvalidCommand as reason:  # an answer larger than the frames that the peer takes
        refuse(connection, link, Refusal(AmqpError.INVALID_FIELD, str(reason)))
        return
    connection.attached(link, endpoint)


def refuse(connection: Connection, link: AnyLink, refusal: Refusal) -> None:
    """Attach without a terminus, then detach with the reason.

    An answer with an empty terminus would be a link that was attached and then closed to Qpid JMS:
    its application is not told that the destination is wrong.
    """
    connection.served.end(link, closed=False)
    link.refuse(error_of(refusal))
    connection.has_output()


def refusal_of_name(connection: Connection, node: Node) -> Refusal | None:
    """Tell that a name names nothing; None if it does.

    The candidates of an ambiguous one go to the broker's log: a client need not learn who else
    has a queue.
    """
    if isinstance(node, AmbiguousNode):
        connection.broker.destinations.warn(node.ambiguous)
        return Refusal(AmqpError.NOT_FOUND, described(node))
    is_malformed = isinstance(node, MalformedNode)
    return Refusal(AmqpError.INVALID_FIELD, described(node)) if is_malformed else None


def temporary_name(*, is_topic: bool = False) -> str:
    """Make a name that nobody has, of a queue or of a temporary topic."""
    return f"{TOPIC_PREFIX if is_topic else TEMPORARY_PREFIX}{uuid4().hex}"

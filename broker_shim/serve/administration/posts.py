"""Begin to take orders of administrators for a broker: their turns, and the control socket."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import StoreError
from broker_shim.serve.administration.connection_orders import ConnectionOrders
from broker_shim.serve.administration.control import ControlServer
from broker_shim.serve.administration.order_turns import OneBroker, OrderTurns
from broker_shim.serve.stores import Stores, trouble_of

if TYPE_CHECKING:
    from broker_shim.members.membership import Membership

_log = logging.getLogger(__name__)


def turns_of(
    stores: Stores, loop: Loop, broker: Broker, connections: ConnectionOrders
) -> OrderTurns:
    """Make the turns in which orders for the broker of these stores are carried out."""
    trouble = partial(trouble_of, stores.messages)
    return OrderTurns(loop, decider_of(stores, broker), connections=connections, trouble=trouble)


def decider_of(stores: Stores, broker: Broker) -> OneBroker:
    """Return the broker of these stores as what decides orders."""
    return OneBroker(broker, getattr(stores.messages, "look", None))


def control_of(
    stores: Stores,
    loop: Loop,
    turns: OrderTurns,
    membership: Membership | None,
    hand_over: Callable[[socket.socket], None] | None,
) -> ControlServer | None:
    """Listen for administrators in the root; AMQP is served even if that is not possible.

    A member has no root: the service of its members asks it (`membership`).
    """
    root = stores.root
    if membership is not None:
        membership.answer_administrator = turns.connections.answer
    if root is None:
        return None
    try:
        return ControlServer(loop, turns, root.path, root.identity.root_id, hand_over)
    except (OSError, StoreError) as reason:
        _log.warning("no control socket, so no administration while this runs: %s", reason)
        return None

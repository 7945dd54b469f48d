"""The protocols that are spoken at each port."""

from __future__ import annotations

from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.serve.entrance import Entrance
from broker_shim.sockets.listener import Listener, Successor


def listen(
    listener: Listener, host: Amqp10Listener, entrance: Entrance, successor: Successor | None
) -> None:
    """Serve clients of AMQP 1.0, and of 0-10 if that is asked for; then have a successor go on.

    That protocol is imported here, as few want it.
    """
    listener.successor = successor
    listening, guard = entrance.take_port(), entrance.guard
    if entrance.second is None and not entrance.is_shared:
        listener.listen(host, listening, guard)
        return
    from broker_shim.framing.frames import PROTOCOL_HEADER  # noqa: PLC0415
    from broker_shim.listener_0_10.host import Amqp010Listener  # noqa: PLC0415
    from broker_shim.sockets.shared_port import SharedPort  # noqa: PLC0415

    older = Amqp010Listener(host.broker, entrance.points)
    if entrance.second is None:
        begins = PROTOCOL_HEADER[:5]  # "AMQP" and the protocol's number; its version is for itself
        listener.listen(SharedPort({begins: older}, host), listening, guard)
    else:
        listener.listen(host, listening, guard)
        listener.listen(older, entrance.second.take_port(), guard)

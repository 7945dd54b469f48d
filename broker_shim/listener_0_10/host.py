"""The listener of AMQP 0-10, whose sessions take all commands that are served."""

from __future__ import annotations

from broker_shim.broker.virtual_host import Broker
from broker_shim.handlers.handler_chain import InsertionPoints
from broker_shim.listener_0_10.commands import invoke
from broker_shim.listener_0_10.sessions.session_host import SessionHost


class Amqp010Listener(SessionHost):
    """The broker as clients of AMQP 0-10 see it."""

    def __init__(self, broker: Broker, points: InsertionPoints = InsertionPoints()) -> None:  # noqa: B008  # a value
        super().__init__(broker, points, invoke)

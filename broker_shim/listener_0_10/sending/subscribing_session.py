"""The interface that a session has for its consumers."""

from __future__ import annotations

from typing import Any, Protocol

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.structs import Struct
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.segments import BodySegment, HeaderSegment
from broker_shim.listener_0_10.connection_output import RoomWaiter
from broker_shim.listener_0_10.transaction import SessionTransaction


class SubscribingSession(Protocol):
    """The session that a consumer is of; see `Amqp010Session`.

    Attributes:
        connection: The connection that carries it.
        broker: The virtual host.
        is_over: True once it ended.
        transaction: Since tx.select; None before it.
    """

    connection: Any
    broker: Broker
    is_over: bool
    transaction: SessionTransaction | None

    @property
    def holder(self) -> str:
        """The name by which the store knows the holder of the session's messages."""

    @property
    def may_send(self) -> bool:
        """False while nothing more should be sent: it would wait here."""

    def wait_to_send(self, waiter: RoomWaiter) -> None:
        """Have `has_room` called when more may be sent."""

    def wait_for(self, command_id: int) -> None:
        """Do the commands after this one only when it is complete."""

    def complete(self, command_id: int) -> None:
        """Complete a command that is done, durably."""

    def done(self, command_id: int) -> OnComplete:
        """Make the completion that completes a command, or fails the session."""

    def fail(self, error: RemoteCommandError) -> None:
        """End the session with the reason why something cannot be done."""

    def result(self, command_id: int, value: Struct) -> None:
        """Answer a command, and complete it."""

    def command(
        self,
        command: c.Command,
        header: HeaderSegment | None = None,
        body: BodySegment | None = None,
        *,
        sync: bool = False,
    ) -> int:
        """Send a command; its number."""

"""The interface that a session has for its commands and its consumers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.structs import Struct
from broker_shim.broker.operations.prepared_branches import Branches
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.segments import BodySegment, HeaderSegment
from broker_shim.listener_0_10.connection_output import RoomWaiter
from broker_shim.listener_0_10.dtx.open_branches import OpenBranches
from broker_shim.listener_0_10.open_transactions import OpenTransactions
from broker_shim.listener_0_10.transaction import SessionTransaction
from broker_shim.sockets.served_connection import ServedConnection
from broker_shim.sockets.turns import Turn


class CommandHost(Protocol):
    """The transactions of all sessions of a broker; see `Amqp010Listener`."""

    @property
    def branches(self) -> OpenBranches:
        """The distributed transactions that are not prepared."""

    @property
    def transactions(self) -> OpenTransactions:
        """The transactions of sessions (tx) that have begun."""

    @property
    def in_doubt(self) -> Branches:
        """The distributed transactions that are prepared."""


class CommandConnection(ServedConnection, Hashable, Protocol):
    """The connection that carries a session; see `Amqp010Connection`."""

    turn: Turn
    waiting_bytes: int

    @property
    def host(self) -> CommandHost:
        """The state that all connections share."""


class CommandSession(Hashable, Protocol):
    """The session that a command was sent on; see `Amqp010Session`.

    Attributes:
        broker: The virtual host.
        is_over: True once it ended.
        transaction: Since tx.select, or while it works in a branch; None at other times.
        is_distributed: It has asked for dtx.
    """

    broker: Broker
    is_over: bool
    transaction: SessionTransaction | None
    is_distributed: bool

    @property
    def connection(self) -> CommandConnection:
        """The connection that carries it, or did."""

    @property
    def key(self) -> tuple[str, bytes]:
        """Its user, and the name that its client gave it."""

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

    def complete_each(self, command_ids: Sequence[int]) -> None:
        """Complete commands that are done, durably, and change no wiring."""

    def done(self, command_id: int) -> OnComplete:
        """Make the completion that completes a command, or fails the session."""

    def fail(self, error: RemoteCommandError, command_id: int | None = None) -> None:
        """End the session with the reason why a command cannot be done."""

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

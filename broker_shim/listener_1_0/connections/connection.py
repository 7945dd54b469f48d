"""One AMQP connection: its sessions and links, and what their events mean to the broker.

Whatever a peer does wrong ends its own connection and nothing else. What an event is about may have
ended since, by what came in the same bytes: nothing is commanded of what `is_gone`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.amqp_1_0.definitions import ConnectionError as ConnectionCondition
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.virtual_host import Broker
from broker_shim.listener_1_0.conditions import Refusal, error_of
from broker_shim.listener_1_0.connections.connection_links import ConnectionLinks
from broker_shim.listener_1_0.connections.containers import (
    SOLE,
    TAKEN_OVER,
    Containers,
    answered,
    asked,
    client_of,
)
from broker_shim.listener_1_0.connections.links import Links
from broker_shim.listener_1_0.connections.served_endpoint import ServedEndpoint
from broker_shim.listener_1_0.transactions.connection_transactions import Transactions
from broker_shim.protocol_1_0 import connection as protocol
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.budget import UNLIMITED
from broker_shim.protocol_1_0.codec.errors import InvalidCommand
from broker_shim.protocol_1_0.links.link import Link
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.sockets.access import LOOPBACK, Access
from broker_shim.sockets.login import Login
from broker_shim.sockets.owners import owned
from broker_shim.sockets.served_connection import ClientFacts, LinkFacts, next_number
from broker_shim.sockets.turns import Turn

_CONTAINER_ID = "sparkstore"
_LEAST_WINDOW = 16


def limits_of(access: Access, settings: BrokerSettings) -> Settings:
    """The limits of one connection, in the protocol's terms: a session's bytes are frames."""
    frame_bytes = settings.max_frame_bytes
    return Settings(
        _CONTAINER_ID,
        max_frame_bytes=frame_bytes,
        max_sessions=settings.max_sessions,
        max_links=settings.max_links,
        session_window=max(_LEAST_WINDOW, settings.session_bytes // frame_bytes),
        idle_timeout_s=settings.idle_timeout_s,
        handshake_timeout_s=settings.handshake_timeout_s,
        requires_sasl=access.guard.requires_login,
    )


_log = logging.getLogger(__name__)

_OFFERED = ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY", SOLE)
"""A target without an address takes messages for every `to`; Qpid JMS asks for all of them."""


Attach = Callable[["Connection", ReceiverLink | SenderLink], None]
"""attach(connection, link): serve a link that the peer opened, or refuse it."""


class Connection:
    """The protocol's state with one peer, and what serves each of its links.

    Attributes:
        wait_s: How long the next turn has to wait.
        broker: The virtual host, with its queues.
        links: All links of the broker, on whatever connection.
        access: How the peer got in.
        began_at_us: When it came, UTC µs.
        login: Who it is.
        transactions: Of this peer.
        has_output: Say that something is to be written.
        served: Its links, and what serves each.
        turn: How much of what came may be acted on now; what a frame leads to may `spend` of it.
    """

    wait_s = 0.0

    def __init__(
        self,
        broker: Broker,
        links: Links,
        containers: Containers,
        attach: Attach,
        has_output: Callable[[], None],
        access: Access = LOOPBACK,
    ) -> None:
        """Begin; `Amqp10Listener.connect` makes one.

        Args:
            broker: The virtual host, with its queues.
            links: All links of the broker.
            containers: All connections of the broker.
            attach: Called for each link that the peer opens.
            has_output: Called whenever there is something to write.
            access: How the peer got in.
        """
        self.broker, self._settings = broker, broker.settings
        self.links, self._containers, self._attach = links, containers, attach
        self.now_us: Callable[[], int] = lambda: time.time_ns() // 1000
        self.number = next_number()
        self.began_at_us = self.now_us()
        self.access = access
        self.login = Login(access, broker.later, has_output)
        self._happened: deque[events.Event] = deque()
        self.turn = Turn()
        self._unsent_bytes = 0
        self.peer_parts = self._hangs_up = False
        self.has_output = has_output
        self.transactions = Transactions(broker)
        self.served = ConnectionLinks(self, links, has_output)
        self._waiting_for_room: dict[ServedEndpoint, None] = {}  # in the order in which they came
        limits, mechanisms = limits_of(access, broker.settings), access.mechanisms
        self._machine = protocol.ServerConnection(limits, mechanisms, now_s=time.monotonic())

    @property
    def container_id(self) -> str:
        """The peer's own name; empty if it gave none, or not yet."""
        remote = self._machine.remote
        return (remote.container_id if remote else "") or ""

    @property
    def container(self) -> str:
        """The peer's container id, or a name of ours if it gave none; see `owners`."""
        return owned(self.container_id or f"connection-{self.number}", self.login.principal.name)

    @property
    def link_count(self) -> int:
        """Count the links that are served."""
        return self.served.count

    @property
    def link_facts(self) -> Iterator[LinkFacts]:
        """Describe each link that is served."""
        return self.served.facts()

    @property
    def client(self) -> ClientFacts:
        """Describe the peer, and how much came and went."""
        return client_of(self._machine)

    @property
    def is_open(self) -> bool:
        """True once the peer has opened."""
        return self._machine.remote is not None

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be said to the peer."""
        return (self._machine.is_closed and not self.login.is_waiting) or self._hangs_up

    @property
    def is_over(self) -> bool:
        """True once nothing is read any more: write what waits, then hang up."""
        is_over = self._machine.is_over and not self.login.is_waiting and not self._happened
        return is_over or self._hangs_up

    def room_bytes(self, link: Link) -> int:
        """Tell how much more of a session may wait to be written; negative if too much does."""
        waiting = self._machine.pending_bytes + self._unsent_bytes + link.port.waiting_bytes
        return self._settings.buffered_bytes - waiting

    def wait_for_room(self, endpoint: ServedEndpoint) -> None:
        """Have `on_flow` called when less waits to be written."""
        self._waiting_for_room[endpoint] = None

    @property
    def has_more(self) -> bool:
        """True if what came was too much for one turn: let it `go_on` in the next."""
        return bool(self._happened) or self._machine.has_more

    def receive(self, received: bytes, most_work: int = UNLIMITED) -> None:
        """Bytes from the peer, for so much work at most; none means that it sends no more."""
        if not received:
            self.go_on(UNLIMITED)
        if self.login.is_waiting and not received:
            self._hangs_up = True  # the machine reads nothing any more: nobody else would see it
        self.turn.begin(most_work)
        step = self.turn.step_work
        self._machine.receive_data(received, now_s=time.monotonic(), most_work=step)
        self._handle_events(self.turn.goes_on)
        self.turn.spend(step)
        self._take_turn()

    def go_on(self, most_work: int) -> None:
        """Take more of what came before."""
        self.turn.begin(most_work)
        self._take_turn()

    def _take_turn(self) -> None:
        """Take some frames, then do what they lead to, and so on."""
        while self.has_more and self.turn.goes_on():
            step = 0 if self._happened else self.turn.step_work
            if step:
                self._machine.go_on(step)
            self._handle_events(self.turn.goes_on)
            self.turn.spend(step)

    def _handle_events(self, may_go_on: Callable[[], bool]) -> None:
        """Act on one thing that happened, and on the others while that may go on.

        What the frames of one step lead to may be far more than a turn has time for: the rest waits
        for the next turn. A fault of ours ends this connection only.
        """
        happened = self._happened
        happened += self._machine.events()
        try:
            while happened:
                event = happened.popleft()
                if self._machine.is_opened or type(event) in _BEFORE_OUR_OPEN:
                    _HANDLERS[type(event)](self, event)
                if not may_go_on():
                    break
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("connection %d: an event failed", self.number)
            happened.clear()
            self.close(
                Refusal(
                    AmqpError.INTERNAL_ERROR, "the broker failed on this connection: see its log"
                )
            )
        self.has_output()

    def output(self) -> bytes:
        """Take the next bytes to write; then tell how many are `unsent`."""
        if self.login.is_waiting:
            return b""
        return b"".join(self._machine.data_to_send(now_s=time.monotonic()))

    def unsent(self, byte_count: int) -> None:
        """Note how much of `output` is not with the peer yet; there may be room again."""
        self._unsent_bytes = byte_count
        if self._waiting_for_room:
            waiting, self._waiting_for_room = self._waiting_for_room, {}
            for endpoint in waiting:
                endpoint.on_flow()

    @property
    def written_bytes(self) -> int:
        """Bytes that were written to the peer, as far as we were told."""
        return self._machine.handed_bytes - self._unsent_bytes

    def tick(self, now_s: float) -> float:
        """Heartbeats and timeouts; when to call again, at the latest."""
        next_s = self._machine.tick(now_s=now_s)
        self.transactions.tick(now_s)
        if not self._happened:  # else a turn is due, which takes these, too
            self._handle_events(lambda: True)
        return next_s

    def detach(self, link: Link, refusal: Refusal) -> None:
        """End a link for a reason."""
        if not link.is_gone:
            link.detach(error=error_of(refusal))
            self.has_output()

    def attached(self, link: Link, endpoint: ServedEndpoint) -> None:
        """A link is served from now on."""
        self.served.put(link, endpoint)
        endpoint.start()
        self.has_output()

    def lose(self, link: Link, refusal: Refusal) -> None:
        """End a link here that another attach has taken."""
        self.served.end(link, closed=False)
        if link.is_answered:
            self.detach(link, refusal)
        elif not link.is_gone:
            link.refuse(error_of(refusal))
            self.has_output()

    def leave(self, link: Link) -> None:
        """Detach a link whose terminus lives on."""
        self.served.end(link, closed=False)
        if not link.is_gone:
            link.detach(closed=False)
            self.has_output()

    def lost(self) -> None:
        """All links are gone, as far as the broker goes; the peer may still be told."""
        self.served.lost(self)
        self._waiting_for_room.clear()
        self._containers.leave(self)
        self.login.gone(self._machine.given_up)

    def let_go(self) -> None:
        """Drop what the connection refers to, after `lost`. See `ServedConnection`."""
        self._happened.clear()
        self.served.let_go()

    def close(self, refusal: Refusal | None = None) -> None:
        """End the connection: politely, or by hanging up where nothing can be said any more."""
        try:
            self._machine.close(None if refusal is None else error_of(refusal))
        except InvalidCommand:
            self._hangs_up = True
        self.has_output()

    def close_forced(self, reason: str) -> None:
        """End the connection because the broker stops."""
        self.close(Refusal(ConnectionCondition.CONNECTION_FORCED, reason))

    def close_unauthorized(self, reason: str) -> None:
        """End the connection because the peer may not connect any more."""
        self.close(Refusal(AmqpError.UNAUTHORIZED_ACCESS, reason))

    def _opened(self, event: events.ConnectionOpened) -> None:
        if self._machine.is_closed:
            return
        refusal = self.login.opens(self._settings.max_connections_per_user)
        if refusal is not None:
            self.close(Refusal(AmqpError.RESOURCE_LIMIT_EXCEEDED, refusal))
            return
        policy = asked(event.open)
        entered = self._containers.enter(self, policy)
        properties = answered(policy, entered.refusal)
        for other in entered.to_close:
            other.close(TAKEN_OVER)
            other.lost()
        with suppress(InvalidCommand):  # closed by the peer since: `_closed` answers both
            self._machine.open(offered_capabilities=_OFFERED, properties=properties)
            if entered.refusal is not None:
                self.close(entered.refusal)

    def _session_begun(self, event: events.SessionBegun) -> None:
        if not event.session.is_gone:
            event.session.begin()

    def _link_attached(self, event: events.LinkAttached) -> None:
        if not event.link.is_gone:
            self._attach(self, event.link)

    def _deliveries(self, came: events.DeliveriesReceived) -> None:
        """Have deliveries taken as far as this turn goes; the next one takes what is left."""
        count = self.served.of(came.delivery.link).on_deliveries(came)
        if count < came.delivery.length:
            self._happened.appendleft(came.after(count))

    def _disposition(self, event: events.DispositionReceived) -> None:
        self.served.decided(event, self._happened)

    def _missed(self, event: events.DispositionMissed) -> None:
        """Spoil the transaction that decides about a delivery of a detached link.

        What cannot count must not be left out in silence: all of the transaction, or
        nothing.
        """
        self.transactions.spoil(event.state, "it decides about a delivery of a detached link")

    def _link_detached(self, event: events.LinkDetached) -> None:
        with self._parting(is_answer=event.link.is_over):
            self.served.detached(event)

    @contextmanager
    def _parting(self, *, is_answer: bool) -> Iterator[None]:
        """The peer ends something, of its own will unless we had ended it first."""
        self.peer_parts = not is_answer
        try:
            yield
        finally:
            self.peer_parts = False

    def _session_ended(self, event: events.SessionEnded) -> None:
        with self._parting(is_answer=event.session.is_over):
            self.served.end_session(self, event.session)
        if not event.session.is_over and not self._machine.is_closed:
            event.session.end()

    def _session_failed(self, event: events.SessionFailed) -> None:
        self.served.end_session(self, event.session)

    def _closed(self, _event: events.ConnectionClosed) -> None:
        with self._parting(is_answer=self._machine.is_over):
            self.lost()
        if not self._machine.is_over:
            self._machine.close()

    def _failed(self, event: events.ConnectionFailed) -> None:
        self.lost()
        self.broker.metrics.protocol_errors += 1
        text = ascii(f"{event.error.condition}: {event.error.description}"[:200])
        _log.info("connection %d ended: %s", self.number, text)

    def _hung_up(self, _event: events.Lost) -> None:
        self.lost()


_BEFORE_OUR_OPEN = {
    events.Authenticated,
    events.AuthenticationFailed,
    events.ConnectionOpened,
    events.ConnectionClosed,
    events.ConnectionFailed,
    events.Lost,
}
"""Without an open of ours nothing else matters: the peer, who had no credit, has closed since."""

_HANDLERS: dict[type, Callable[[Connection, Any], object]] = {
    events.Authenticated: lambda connection, event: connection.login.passed(event),
    events.AuthenticationFailed: lambda connection, event: connection.login.failed(event),
    events.ConnectionOpened: Connection._opened,  # noqa: SLF001  # a table of its own methods
    events.SessionBegun: Connection._session_begun,  # noqa: SLF001
    events.SessionEnded: Connection._session_ended,  # noqa: SLF001
    events.SessionFailed: Connection._session_failed,  # noqa: SLF001
    events.LinkAttached: Connection._link_attached,  # noqa: SLF001
    events.LinkDetached: Connection._link_detached,  # noqa: SLF001
    events.LinkFailed: lambda it, event: it.served.end(event.link, closed=False),
    events.FlowReceived: lambda it, event: it.served.of(event.link).on_flow(),
    events.DeliveriesReceived: Connection._deliveries,  # noqa: SLF001
    events.TransferPiece: lambda it, piece: it.served.of(piece.delivery.link).on_transfer(piece),
    events.DeliveryAborted: lambda it, event: it.served.of(event.delivery.link).on_aborted(
        event.delivery
    ),
    events.DispositionReceived: Connection._disposition,  # noqa: SLF001
    events.DispositionMissed: Connection._missed,  # noqa: SLF001
    events.ConnectionClosed: Connection._closed,  # noqa: SLF001
    events.ConnectionFailed: Connection._failed,  # noqa: SLF001
    events.Lost: Connection._hung_up,  # noqa: SLF001
}

"""The endpoints that serve the links of one connection, and how each ends.

On the loop's thread only.

Whatever ended, this is the order. The registry is told first, which decides whether the terminus
lives on. Then the endpoint lets go of its queue, and of what it held as that says. At last what was
the link's own ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from broker_shim.amqp_1_0.composites import Coordinator
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.links import Terminus
from broker_shim.listener_1_0.conditions import Refusal, error_of, refusal_of
from broker_shim.listener_1_0.connections.links import Links
from broker_shim.listener_1_0.connections.served_endpoint import ServedEndpoint
from broker_shim.protocol_1_0.events import DispositionReceived, LinkDetached
from broker_shim.protocol_1_0.links.link import Link
from broker_shim.protocol_1_0.session import Session
from broker_shim.sockets.access import Access
from broker_shim.sockets.login import Login
from broker_shim.sockets.served_connection import LinkFacts
from sparkstore.control.audit import AuditEvent

if TYPE_CHECKING:
    from broker_shim.listener_1_0.connections.connection import Connection
    from broker_shim.protocol_1_0.links.receiver import ReceiverLink
    from broker_shim.protocol_1_0.links.sender import SenderLink

_log = logging.getLogger(__name__)


class ConnectionLinks:
    """Knows what serves each link of a connection, and ends it. On the loop's thread only."""

    def __init__(
        self, connection: Connection, links: Links, has_output: Callable[[], None]
    ) -> None:
        """Begin; of a connection, which it does not hold: it is held by it."""
        self._number, self._links = connection.number, links
        self._access, self._login = connection.access, connection.login
        self._has_output = has_output
        self._endpoints: dict[Link, ServedEndpoint] = {}
        self._over: list[Link] = []

    @property
    def count(self) -> int:
        """Return how many links are served, or will be."""
        return len(self._endpoints)

    def facts(self) -> Iterator[LinkFacts]:
        """Describe each link that is served, or will be, by what its peer asked for."""
        return (_facts(cast("ReceiverLink | SenderLink", link)) for link in self._endpoints)

    def of(self, link: Link) -> ServedEndpoint:
        """Get the endpoint that serves a link, or will; one that does nothing if none does."""
        return self._endpoints.get(link) or ServedEndpoint(link)

    def put(self, link: Link, endpoint: ServedEndpoint) -> None:
        """Serve a link by this endpoint from now on, or remember whose attach is under way."""
        self._endpoints[link] = endpoint

    def end(self, link: Link, then: OnComplete | None = None, *, closed: bool) -> Refusal | None:
        """End a link; `closed`: its peer closed it.

        Args:
            link: Served or not.
            then: Called when its terminus is forgotten durably, or at once if it lives on.
            closed: The peer closed the link for good, as in `Links.left`.

        Returns:
            Why it cannot be closed: then `then` is not called.
        """
        # In this order: the registry decides whether the terminus lives on, the endpoint ends what
        # it held by that, and what was the link's own ends last.
        left = self._links.left(link, closed=closed)
        self._let_go([link])
        if isinstance(left, Refusal):
            return left
        if left is not None:
            if closed:
                _write_down(self._access, self._login, left)
            self._links.finish(left, then)
        elif then is not None:
            then(None)
        return None

    def decided(self, event: DispositionReceived, after: deque[Any]) -> None:
        """Hand on the states of deliveries that the peer told: those of one link together.

        With them go those that it settled likewise right after them (`after` has what is next).
        Many a client settles each read by a disposition. What it settled it says no more of, so no
        delivery is in two of them.
        """
        parts, likewise = [*event.parts], (event.state, True)
        while event.is_settled and after and isinstance(after[0], DispositionReceived):
            if (after[0].state, after[0].is_settled) != likewise:
                break
            parts += after.popleft().parts
        for link, some in groupby(parts, attrgetter("link")):
            self.of(link).on_dispositions([*some])

    def detached(self, event: LinkDetached) -> None:
        """End a link that the peer detached.

        A peer that answers our detach does not wish to close the link by that.
        """
        link = event.link

        def answer(error: StoreError | None) -> None:
            self._answer(event, None if error is None else refusal_of(error))

        refused = self.end(link, answer, closed=event.is_closed and not link.is_over)
        link.let_go()
        if refused is not None:
            self._answer(event, refused)

    def _answer(self, event: LinkDetached, refusal: Refusal | None) -> None:
        if not event.link.is_over and event.link.port.is_open:
            error = None if refusal is None else error_of(refusal)
            event.link.detach(closed=event.is_closed, error=error)
            self._has_output()

    def end_session(self, connection: Connection, session: Session) -> None:
        """End the links of a session that ended."""
        ended = list(session.links)
        over = self._links.session_ended(connection, session.channel, ended)
        self._end_all(ended, over)
        for link in ended:
            link.let_go()

    def lost(self, connection: Connection) -> None:
        """End all links of a connection that is gone; the peer may still be told."""
        ended = list(self._endpoints)
        self._over += ended
        self._end_all(ended, self._links.connection_lost(connection, ended))

    def let_go(self) -> None:
        """Part the links of a connection that is over from their deliveries.

        Until then the protocol has them; then each would be a cycle with each of its deliveries.
        """
        for link in self._over:
            link.let_go()
        self._over.clear()

    def _end_all(self, links: Iterable[Link], over: Iterable[Terminus]) -> None:
        self._let_go(links)
        for terminus in over:
            self._links.finish(terminus)

    def _let_go(self, links: Iterable[Link]) -> None:
        """Coordinators first: what their transactions had of the others is theirs again by that."""
        for link in sorted(links, key=_is_no_coordinator):
            endpoint = self._endpoints.pop(link, None)
            try:
                if endpoint is not None:
                    endpoint.gone()
                self._links.ended(link)
            except Exception:  # noqa: BLE001  # one link must not keep what the others held
                _log.exception("connection %d: a link could not be ended", self._number)


def _facts(link: ReceiverLink | SenderLink) -> LinkFacts:
    sender, receiver = link.snd_settle_mode.name.lower(), link.rcv_settle_mode.name.lower()
    return LinkFacts(
        link.name,
        "sender" if link.is_receiver else "receiver",
        getattr(link.remote.target if link.is_receiver else link.remote.source, "address", None),
        link.credit,
        sum(len(run) for run in link.runs if not run.is_settled),
        f"sender {sender}, receiver {receiver}",
    )


def _write_down(access: Access, login: Login, over: Terminus) -> None:
    """Write down who ended a durable subscription, with what waited there."""
    terms = over.terms
    if terms is not None and terms.queue is not None and terms.own.lives_on:
        access.guard.audit(
            AuditEvent.ADMINISTRATION,
            peer=access.remote,
            user=login.principal.name,
            act="unsubscribe",
            queue=terms.queue,
        )


def _is_no_coordinator(link: Link) -> bool:
    return not isinstance(link.remote.target, Coordinator)

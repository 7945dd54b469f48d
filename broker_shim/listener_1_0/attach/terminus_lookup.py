"""A link that asks for a terminus that is there, and brings none of its own (AMQP 2.6.3).

A receiver without a source is answered with the source that is kept of its link, or with none. It
gets no messages, and does not take the link from a consumer. Closing it ends the terminus: so Qpid
JMS unsubscribes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_shim.listener_1_0.attach.pending_attach import grant, refuse
from broker_shim.listener_1_0.attach.subscriptions import looked_up
from broker_shim.listener_1_0.authorization import refusal_of_act
from broker_shim.listener_1_0.conditions import NOT_FOUND, Refusal
from broker_shim.listener_1_0.links import key_of
from broker_shim.listener_1_0.termini import as_source, as_target, peers_target
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.security.rules.permissions import Permission

if TYPE_CHECKING:
    from broker_shim.listener_1_0.connection import Connection


class LookUp:
    """Serves such a link: with nothing."""

    def __init__(self, link: SenderLink) -> None:
        self._link = link

    @property
    def is_gone(self) -> bool:
        """True once the link ended."""
        return self._link.is_gone

    def start(self) -> None:
        """Nothing is sent."""

    def gone(self) -> None:
        """It held nothing."""

    def on_flow(self) -> None:
        """Credit is not used; a drain gives it up."""
        if not self._link.is_gone and self._link.is_draining:
            self._link.drained()

    def on_disposition(self, delivery: Delivery) -> None:
        """It has no deliveries."""


def look_up(connection: Connection, link: SenderLink) -> None:
    """Answer a receiver that has no source."""
    key = looked_up(key_of(connection, link), link.remote.desired_capabilities or ())
    terminus = connection.links.registry.find(key)
    if terminus is None or terminus.terms is None or terminus.terms.source is None:
        text = "there is no such subscription: an attach without a source asks for one"
        refuse(connection, link, Refusal(NOT_FOUND, text))
        return
    said = terminus.terms.source.address
    node = connection.broker.destinations.source_of(said)
    refusal = refusal_of_act(connection, Permission.READ, node, said)
    if refusal is not None:
        refuse(connection, link, refusal)
        return
    connection.links.looks_up(link, key)
    source, target = terminus.terms.source, peers_target(link.remote.target)
    grant(connection, link, LookUp(link), source=as_source(source), target=as_target(target))

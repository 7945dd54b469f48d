"""Brokers of both protocols, and users of them who have only some rights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from broker_shim.completion import nobody
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.permissions import Permission, rule_of
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.sockets.access import Access
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.control.audit import AuditEvent
from sparkstore.core.state_machine.call_values import BindCall, CreateCall
from tests.support.amqp.amqp_0_10 import Bench010, Client010
from tests.support.amqp.link_clients import House, Place

Grants = Mapping[str, Permission]
"""Address → the one right there."""


class Door:
    """A broker of one protocol with queues, exchanges and a user who has what it is granted."""

    def __init__(self, folder: Path) -> None:
        self.events: list[tuple[AuditEvent, dict[str, object]]] = []
        self.bench, self.house = Bench010(), House(Place("memory", folder))
        for each in (self.bench, self.house):
            for name in ("there", "other"):
                each.broker.create_queue(Queue(name), lambda _error: None)
            for name in ("news", "spare"):
                each.calls.make(CreateCall(exchange := Exchange(name, "topic")), nobody)
                each.broker.router.add_exchange(exchange)
            key = ExchangeBindingKey("news", "there", "k")
            each.calls.make(BindCall(key, {}), nobody)
            each.broker.router.bind(key.exchange, key.binding_key, key.queue, {})
            each.run()

    def close(self) -> None:
        self.bench.close()
        self.house.close()

    def access(self, grants: Grants, name: str = "ann") -> Access:
        rules: list[object] = [{"who": ["root"], "address": "#", "allow": ["admin"]}]
        for address, right in grants.items():
            rules.append({"who": [name], "address": address, "allow": [right]})
        settings = SecuritySettings(permissions=tuple(map(rule_of, rules)))
        guard = Guard(settings, ("EXTERNAL",), self._audit)
        return Access(guard, Remote("10.0.0.7", 40312, certificate_name=name))

    def _audit(self, event: AuditEvent, **details: object) -> None:
        if event is not AuditEvent.LOGIN:
            self.events.append((event, details))

    def client(self, grants: Grants, name: str = "ann") -> Client010:
        client = Client010(self.bench, self.access(grants, name))
        self.bench.clients.append(client)
        client.open("EXTERNAL")
        client.attach(b"session %d" % len(self.bench.clients))
        return client

"""Transactions as proton's own handlers use them: declared, sent and accepted in, ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proton import Event, Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from tests.support.system.clients import is_empty, send, take
from tests.support.system.processes import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]


class Relay(MessagingHandler, TransactionHandler):  # type: ignore[misc]  # proton has no types
    """Takes messages of one queue and sends each to another, all of them in one transaction."""

    def __init__(self, url: str, count: int, *, settles: bool, ends: str) -> None:
        super().__init__(auto_accept=False, prefetch=0, auto_settle=settles)
        self._url, self._count, self._ends, self._settles = url, count, ends, settles
        self._accepted = 0
        self._transaction: Any = None
        self.heard: list[str] = []

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(self._url)
        self._receiver = event.container.create_receiver(connection, "from")
        self._sender = event.container.create_sender(connection, "to")
        event.container.declare_transaction(
            connection, handler=self, settle_before_discharge=self._settles
        )

    def on_transaction_declared(self, event: Event) -> None:
        self._transaction = event.transaction
        self._receiver.flow(self._count)

    def on_message(self, event: Event) -> None:
        self._transaction.accept(event.delivery)
        self._transaction.send(self._sender, Message(event.message.body, durable=True))
        self._accepted += 1
        if self._accepted == self._count:
            getattr(self._transaction, self._ends)()

    def on_transaction_committed(self, event: Event) -> None:
        self._ended(event, "committed")

    def on_transaction_aborted(self, event: Event) -> None:
        self._ended(event, "aborted")

    def on_transaction_commit_failed(self, event: Event) -> None:
        self._ended(event, "failed")

    def on_disconnected(self, _event: Event) -> None:
        self.heard.append("disconnected")

    def _ended(self, event: Event, what: str) -> None:
        self.heard.append(what)
        event.container.schedule(0, self)  # what is to be released is written before

    def on_timer_task(self, _event: Event) -> None:
        self._sender.connection.close()


@pytest.mark.parametrize("settles", [True, False])
def test_a_relay_of_protons_moves_all_of_it_or_nothing(
    start_broker: StartBroker, tmp_path: Path, *, settles: bool
) -> None:
    broker = start_broker(str(tmp_path / "root"))
    send(broker.url, "from", *(Message(text, durable=True) for text in "abc"))
    send(broker.url, "to", Message("first", durable=True))
    aborted = Relay(broker.url, 2, settles=settles, ends="abort")
    Container(aborted).run()
    assert aborted.heard == ["aborted"]
    relay = Relay(broker.url, 3, settles=settles, ends="commit")
    Container(relay).run()
    assert relay.heard == ["committed"]
    assert is_empty(broker.url, "from")
    assert [each.body for each in take(broker.url, "to", 4)] == ["first", "a", "b", "c"]
    assert broker.terminate() == 0

"""Add-on handlers in real sessions: what one does wrong ends its connection, and harms nobody."""

from __future__ import annotations

import logging

import pytest

from broker_shim.amqp_0_10.commands import (
    ExecutionResult,
    ExecutionSync,
    MessageTransfer,
    QueueQuery,
)
from broker_shim.amqp_0_10.controls import ConnectionClose, SessionCompleted
from broker_shim.framing.assembly import Assembly
from broker_shim.handlers.handler import AssemblyAddOn, AssemblyHandler
from broker_shim.handlers.handler_chain import HandlerContext, InsertionPoints
from tests.support.amqp.amqp_0_10 import Bench010, Client010


@pytest.mark.parametrize("kind", [SessionCompleted, ExecutionResult, MessageTransfer])
@pytest.mark.parametrize("reason", [ValueError("a slip"), RecursionError()])
def test_one_of_what_goes_out_that_fails_ends_its_connection_and_no_other(
    kind: type, reason: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A transfer is sent when the store has answered the broker: nobody else may fail by it."""
    faulty: list[AssemblyHandler] = []

    class Faulty(AssemblyAddOn):
        def __init__(self, then: AssemblyHandler, _context: HandlerContext) -> None:
            super().__init__(then)
            if not faulty:
                faulty.append(self)

        def handle_assembly(self, assembly: Assembly) -> None:
            if self in faulty and isinstance(assembly.method, kind):
                raise reason
            super().handle_assembly(assembly)

    bench = Bench010(points=InsertionPoints(session_outgoing=(Faulty,)))
    client, other = bench.opened(), bench.client()
    other.open()
    other.attach(b"other")
    client.subscribe("q")
    with caplog.at_level(logging.CRITICAL):  # it is told, with its traceback
        for body in (b"1", b"2", b"3"):
            other.send("q", body)
        ask_for_all(client)
    assert [int(each.reply_code) for each in client.of(ConnectionClose)] == [320]
    assert client.connection.is_over
    other.subscribe("q")
    assert other.bodies == [b"1", b"2", b"3"]
    assert other.sync()
    bench.close()


def ask_for_all(client: Client010) -> None:
    client.say(QueueQuery("q"))
    client.do(ExecutionSync(), sync=True)

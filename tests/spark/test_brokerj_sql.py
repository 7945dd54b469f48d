"""Spark over a root that was filled through the service as the Broker-J plugin fills it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from broker_shim.completion import Completion, OnComplete
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.cli.command_line import main
from sparkstore.core.xids import Xid, xid_text
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.roots.logs import until
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.raw_member import RawMember
from tests.support.stores.services import served

HOST = "node"
XID = Xid(4711, b"\x01\x02\x03", b"\x04")
QUEUE_ID = "8e1c1f5e-7c1e-4d7e-9a3c-000000000001"


def done(call: Callable[[OnComplete], None]) -> None:
    completion = Completion()
    call(completion.finish)
    completion.complete(timeout_s=30)


def _header(number: int, protocol: str, body: bytes) -> MessageHeader:
    return MessageHeader(
        protocol=f"brokerj:{protocol}",
        header=b"\x02encoded",
        header_bytes=8,
        body_bytes=len(body),
        subject=f"s{number}",
        to="orders",
        correlation_id=f"c{number}",
        properties=(("region", "EU" if number % 2 else "US"), ("n", str(number))),
    )


@pytest.fixture(scope="module")
def filled(module_root: Root) -> Root:
    """Six messages of three protocols on a queue, one of them taken; two configured objects.

    A branch in doubt takes the fifth message and puts one on another queue.
    """
    with served(module_root.path) as there:
        store = RemoteMessageStore(there.path, MemberIdentity("brokerj", str(uuid4()), HOST))
        done(partial(store.create, Queue("orders", arguments={"brokerj_id": QUEUE_ID})))
        for n, protocol in enumerate(["1.0", "0-10", "0-8"] * 2):
            body = f"body {n}".encode()
            message = store.message(_header(n, protocol, body), body)
            done(partial(store.enqueue, message, "orders"))
        done(partial(store.dequeue, message.message_id, "orders", None))
        done(partial(store.create, Queue("done")))
        branch = store.begin()
        store.dequeue(message.message_id - 1, "orders", None, Completion().finish, branch)
        moved = store.message(_header(6, "0-10", b"moved"), b"moved")
        store.enqueue(moved, "done", Completion().finish, branch)
        done(partial(store.prepare, branch, XID))
        for category, key in (("brokerj.configuration", QUEUE_ID), ("brokerj", "version")):
            done(partial(store.configure, category, key, {"name": "orders", "type": "Queue"}))
        done(partial(store.configure, "brokerj", "gone", {}))
        done(partial(store.configure, "brokerj", "gone", None))
        store.close()
    return module_root


def test_messages_by_their_properties_whatever_protocol_they_came_by(
    spark: SparkSession, filled: Root
) -> None:
    found = views.sql(
        spark,
        filled,
        "SELECT subject, correlation_id, `to`, properties['n'] AS n, string(body) AS body"
        " FROM queue_messages WHERE properties['region'] = 'EU' ORDER BY subject",
    ).collect()
    assert [tuple(row) for row in found] == [
        (f"s{n}", f"c{n}", "orders", str(n), f"body {n}") for n in (1, 3)
    ]


def test_what_the_broker_keeps_of_its_configuration(spark: SparkSession, filled: Root) -> None:
    found = views.sql(
        spark,
        filled,
        "SELECT * FROM configuration WHERE category LIKE 'brokerj%' ORDER BY category",
    ).collect()
    assert [(row["category"], row["key"]) for row in found] == [
        ("brokerj", "version"),
        ("brokerj.configuration", QUEUE_ID),
    ]
    assert [row["detail"] for row in found] == ['{"name": "orders", "type": "Queue"}'] * 2


def test_a_branch_in_doubt_its_queues_and_what_it_holds(spark: SparkSession, filled: Root) -> None:
    (found,) = views.sql(
        spark,
        filled,
        "SELECT t.*, m.queue, m.subject FROM transactions t"
        " JOIN queue_messages m ON m.acquired_by = 'xid:' || t.xid",
    ).collect()
    assert (found.xid, found.state, found.holder) == (xid_text(XID), "prepared", "brokerj")
    assert (found.queues, found.operations) == (["done", "orders"], 2)
    assert (found.queue, found.subject) == ("orders", "s4")


@pytest.fixture
def service(filled: Root) -> Iterator[ServicedRoot]:
    there = ServicedRoot(filled.path)
    yield there
    there.stop()


def test_messages_are_changed_when_broker_j_has_left_and_not_before(
    spark: SparkSession, filled: Root, service: ServicedRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    """Orders that need no Spark are in tests/system/test_brokerj_orders.py."""

    def ordered(name: str, *arguments: str) -> int:
        return main([name, str(filled.path), "--no-progress", "--json", *arguments])

    with RawMember(service.path, "brokerj") as host:
        host.hello(HOST, exclusive=True)
        for order in (
            ("purge", "--from=orders", "--where", "1 = 1"),
            ("move", "--from=orders", "--to=done", "--where", "1 = 1"),
            ("requeue", "--from=orders", "--where", "1 = 1"),
            ("replay", "--queue=orders", "--where", "1 = 1"),
        ):
            assert ordered(*order) == 2, order
            said = capsys.readouterr()
            assert (said.out, said.err.count("\n")) == ("", 1)
            assert "a Broker-J host is attached" in said.err
            assert "stop it first" in said.err
    until(lambda: ordered("purge", "--from=orders", "--where", "1 = 1") == 0)
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (told["done"], told["left"]) == (4, 1)  # one is the branch's


def test_a_branch_that_an_operator_decided(
    spark: SparkSession, filled: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    xid = xid_text(XID)
    assert main(["transactions", str(filled.path), "--json", "--commit", xid]) == 0
    operator = json.loads(capsys.readouterr().out)["by"]
    columns = "xid, state, holder, operations, queues"
    (found,) = views.sql(spark, filled, f"SELECT {columns} FROM transactions").collect()
    assert tuple(found) == (xid, "heuristically committed", operator, 0, ["done", "orders"])

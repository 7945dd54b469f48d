"""Spark SQL over a root that was filled through the service as the Broker-J plugin fills it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from broker_shim.completion import Completion, OnComplete
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.store import RemoteMessageStore
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.stores.services import served

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
    """Six messages of three protocols on a queue, one of them taken; two configured objects."""
    with served(module_root.path) as there:
        store = RemoteMessageStore(there.path, MemberIdentity("brokerj", str(uuid4()), "node"))
        done(partial(store.create, Queue("orders", arguments={"brokerj_id": QUEUE_ID})))
        for n, protocol in enumerate(["1.0", "0-10", "0-8"] * 2):
            body = f"body {n}".encode()
            message = store.message(_header(n, protocol, body), body)
            done(partial(store.enqueue, message, "orders"))
        done(partial(store.dequeue, message.message_id, "orders", None))
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

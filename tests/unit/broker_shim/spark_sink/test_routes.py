"""The queues of a message of a write."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from broker_shim.errors import InvalidRequest
from broker_shim.spark_sink.message_columns import MessageColumns, RowMessage, RowRefused
from broker_shim.spark_sink.routes import TargetRoute
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue, Recovered

WIRING = Recovered(
    [Queue(name) for name in ("orders", "both", "a", "b", "sub::mine")],
    [Exchange("news", "topic"), Exchange("both", "fanout"), Exchange("match", "headers")],
    {
        ExchangeBindingKey("news", "a", "eu.#"): {},
        ExchangeBindingKey("news", "b", "eu.de"): {},
        ExchangeBindingKey("amq.fanout", "a", ""): {},
        ExchangeBindingKey("match", "b", ""): {"x-match": "all", "land": 7},
    },
    {},
    {},
    {},
    {},
)
COLUMNS = MessageColumns(
    t.StructType(
        [
            t.StructField("body", t.StringType()),
            t.StructField("routing_key", t.StringType()),
            t.StructField("subject", t.StringType()),
            t.StructField("properties", t.MapType(t.StringType(), t.LongType())),
        ]
    )
)


def message(
    key: str | None = None, subject: str | None = None, land: int | None = None
) -> RowMessage:
    return COLUMNS.message(("b", key, subject, [("land", land)]), 0)


def test_a_queue_gets_every_message_and_an_exchange_sends_by_key_option_or_subject() -> None:
    assert TargetRoute(WIRING, "orders", None, None).queues_of(message()) == ["orders"]
    assert TargetRoute(WIRING, "sub::mine", None, None).queues_of(message()) == ["sub::mine"]
    assert TargetRoute(WIRING, "amq.fanout", None, None).queues_of(message()) == ["a"]
    news = TargetRoute(WIRING, "news", None, "eu.fr")
    assert news.queues_of(message()) == ["a"]
    assert news.queues_of(message("eu.de", "eu.it")) == ["a", "b"]
    assert TargetRoute(WIRING, "news", None, None).queues_of(message(None, "eu.de")) == ["a", "b"]
    assert TargetRoute(WIRING, "match", None, None).queues_of(message(land=7)) == ["b"]
    assert TargetRoute(WIRING, "both", "queue", None).queues_of(message()) == ["both"]


def test_a_message_that_goes_nowhere_is_refused() -> None:
    news = TargetRoute(WIRING, "news", None, None)
    for nowhere in (message("us"), message(), message(".".join("abc" * 100))):
        with pytest.raises(RowRefused, match=r"sends it to no queue|has at most 256 words"):
            news.queues_of(nowhere)
    with pytest.raises(RowRefused, match="sends it to no queue"):
        TargetRoute(WIRING, "match", None, None).queues_of(message(land=8))


@pytest.mark.parametrize(
    ("target", "kind", "told"),
    [
        ("ordres", None, "no queue or exchange of this store .is 'orders' meant"),
        ("both", None, "is a queue and an exchange"),
        ("orders", "exchange", "no exchange of this store"),
        ("news", "queue", "no queue of this store"),
        ("a::", None, "has no queue"),
        ("'; DROP", None, "no queue or exchange"),
    ],
)
def test_a_target_that_is_not_there_is_refused(target: str, kind: str | None, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        TargetRoute(WIRING, target, kind, None)

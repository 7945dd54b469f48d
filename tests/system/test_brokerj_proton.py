"""Broker-J keeps its queues in a root: proton sends, everything is killed, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Message

from tests.support.system import brokerj
from tests.support.system.clients import connected, take

pytestmark = [pytest.mark.system, pytest.mark.slow]


def send(host: brokerj.Setup, queue: str, first: int, end: int, body: bytes = b"x") -> None:
    """Each send returns when the broker has settled it: durable by then."""
    with connected(host.broker.url, allowed_mechs="ANONYMOUS") as connection:
        sender = connection.create_sender(queue)
        for n in range(first, end):
            sender.send(
                Message(
                    id=n,
                    durable=True,
                    body=body,
                    subject=f"s{n}",
                    properties={"region": "EU" if n % 2 else "US", "n": n},
                )
            )


def ids(host: brokerj.Setup, queue: str, count: int) -> list[int]:
    return [m.id for m in take(host.broker.url, queue, count)]


def test_a_thousand_messages_survive_kill_9_of_broker_and_service(host: brokerj.Setup) -> None:
    send(host, "auto.q", 0, 1000)
    host.kill_and_restart()
    assert ids(host, "auto.q", 1000) == list(range(1000))


def test_either_alone_is_killed_and_all_goes_on(host: brokerj.Setup) -> None:
    send(host, "auto.q", 0, 100)
    host.service.kill()
    host.start_service()
    send(host, "auto.q", 100, 200)
    host.broker.kill()
    host.start_broker()
    send(host, "auto.q", 200, 300)
    assert ids(host, "auto.q", 300) == list(range(300))
    host.stop()


def test_columns_that_sql_queries_are_in_the_journal(host: brokerj.Setup) -> None:
    send(host, "auto.q", 0, 10, body=b"hello")
    host.stop()
    rows = host.journal("kind", "queue", "protocol", "subject", "properties", "amqp_message_id")
    found = [row for row in rows.to_pylist() if row["kind"] == "enqueued"]
    assert [row["subject"] for row in found] == [f"s{n}" for n in range(10)]
    assert [dict(row["properties"])["region"] for row in found] == ["US", "EU"] * 5
    assert {row["queue"] for row in found} == {"auto.q"}
    assert {row["protocol"] for row in found} == {"brokerj:1.0"}
    assert [row["amqp_message_id"] for row in found] == [str(n) for n in range(10)]


def test_sizes_from_nothing_to_many_pieces(host: brokerj.Setup) -> None:
    sizes = [0, 1, 100_000, 3_000_000, 20_000_000]
    with connected(host.broker.url, allowed_mechs="ANONYMOUS") as connection:
        sender = connection.create_sender("auto.large")
        for n, size in enumerate(sizes):
            sender.send(Message(id=n, durable=True, body=bytes([n]) * size))
    host.kill_and_restart()
    found = take(host.broker.url, "auto.large", len(sizes))
    assert [bytes(m.body) for m in found] == [bytes([n]) * size for n, size in enumerate(sizes)]


def test_names_of_queues_are_any_text(host: brokerj.Setup) -> None:
    names = ["auto." + "x" * 250, "auto.Grüße 日本 😀", "auto.a'b\"c;d%e"]
    for name in names:
        send(host, name, 0, 2)
    host.broker.kill()
    host.start_broker()
    assert [ids(host, name, 2) for name in names] == [[0, 1]] * 3


def test_a_second_broker_on_the_root_is_refused(host: brokerj.Setup, tmp_path: Path) -> None:
    second = brokerj.JavaBroker(tmp_path / "second", brokerj.at(host.socket))
    try:
        assert second.outcome == "ERRORED"
        assert "connected already" in second.log
    finally:
        second.kill()
    send(host, "auto.q", 0, 1)


def test_no_service_at_start_is_one_clear_line(brokerj_plugin: None, tmp_path: Path) -> None:
    broker = brokerj.JavaBroker(
        tmp_path / "work", brokerj.at(tmp_path / "nowhere"), "-Dsparkstore.connectTimeout=1"
    )
    try:
        assert broker.outcome == "ERRORED"
        assert "no store service at unix:" in broker.log
        assert "is 'sparkstore serve' running?" in broker.log
    finally:
        broker.kill()

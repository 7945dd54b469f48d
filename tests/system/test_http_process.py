"""The HTTP port of a real broker, on a root, with a real client of AMQP beside it."""

from __future__ import annotations

import json
import re
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection

from sparkstore.cli.command_line import main
from tests.support.roots.logs import until
from tests.support.system.processes import StartBroker

TIMEOUT_S = 20
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


def check_links(connection: dict[str, Any], container: str, rows: list[dict[str, Any]]) -> None:
    """Check those of a client that has sent by one link, and holds two messages by another."""
    assert connection["container"] == container
    assert (connection["links"], connection["sessions"]) == (2, 1)
    links = {link["role"]: link for link in rows}
    assert min(link.pop("credit") for link in links.values()) > 0
    shared = {"address": "orders", "settle_mode": "sender mixed, receiver first"}
    assert links["sender"].items() >= {**shared, "unsettled": 0}.items()
    assert links["receiver"].items() >= {**shared, "unsettled": 2}.items()


def test_messages_of_a_client_are_seen_and_its_connection_is_closed(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root = str(tmp_path / "root")
    broker = start_broker(root, "--queue", "orders", "--http", "127.0.0.1:0")
    found = re.search(r" http=(\S+)", broker.ready_line)
    assert found is not None
    url = found[1] + "/api/v1/"

    def ask(path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(url + path, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read())

    client = BlockingConnection(broker.url, timeout=TIMEOUT_S)
    sender = client.create_sender("orders")
    sender.send(proton.Message({"eggs": [1, "two"]}, durable=True, subject="breakfast"))
    sender.send(proton.Message("text", durable=True, properties={"color": "brown"}))
    rows = ask("queues/orders/messages")["items"]
    assert [(row["subject"], row["acquired_by"]) for row in rows] == [
        ("breakfast", None),
        (None, None),
    ]
    shown = [ask(f"queues/orders/messages/{row['id']}") for row in rows]
    assert [json.loads(each["body"]) for each in shown] == [{"eggs": [1, "two"]}, "text"]
    assert shown[1]["properties"] == {"color": "brown"}
    client.create_receiver("orders", credit=10).receive(timeout=TIMEOUT_S)
    row = ask("queues/orders")
    assert (row["depth"], row["consumers"]) == (2, 1)
    assert row["acquired"] >= 1
    assert ask("queues/orders/messages")["items"][0]["acquired_by"]
    (connection,) = ask("connections")["items"]
    number, container = connection["connection"], client.container.container_id
    check_links(connection, container, ask(f"connections/{number}/links")["items"])
    assert ask(f"connections/{number}", "DELETE")["changed"] is True
    with suppress(proton.ProtonException):
        client.close()
    until(lambda: ask("connections")["total"] == 0)  # when its socket has ended
    assert broker.terminate() == 0
    assert '"act": "close-connection"' in broker.log


def test_the_trace_context_of_a_message_is_seen_wherever_the_message_is(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a property or as an annotation; the message goes out as it came in."""
    root = str(tmp_path / "root")
    broker = start_broker(root, "--queue", "orders", "--http", "127.0.0.1:0")
    found = re.search(r" http=(\S+)", broker.ready_line)
    assert found is not None
    client = BlockingConnection(broker.url, timeout=TIMEOUT_S)
    sender = client.create_sender("orders")
    annotations = {proton.symbol("traceparent"): TRACE}
    sender.send(proton.Message("a", durable=True, annotations=annotations))
    sender.send(proton.Message("b", durable=True, properties={"traceparent": OTHER_TRACE}))
    sender.send(proton.Message("c", durable=True, properties={"color": "brown"}))
    with urllib.request.urlopen(f"{found[1]}/api/v1/queues/orders/messages", timeout=20) as answer:
        items = json.loads(answer.read())["items"]
    traces = [TRACE, OTHER_TRACE, None]
    assert [each["traceparent"] for each in items] == traces
    receiver = client.create_receiver("orders", credit=1)
    first = receiver.receive(timeout=TIMEOUT_S)
    assert (first.annotations, first.properties or {}) == (annotations, {})
    client.close()
    assert broker.terminate() == 0
    assert main(["browse", root, "orders", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["traceparent"] for each in lines] == traces
    query = "SELECT traceparent FROM message_history WHERE kind = 'enqueued' ORDER BY position"
    assert main(["sql", root, "--engine", "duckdb", "--json", query]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["traceparent"] for each in lines] == traces

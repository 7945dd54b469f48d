"""The HTTP port of a real broker, on a root, with a real client of AMQP beside it."""

from __future__ import annotations

import json
import re
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import proton
from proton.utils import BlockingConnection

from tests.support.roots.logs import until
from tests.support.system.processes import StartBroker

TIMEOUT_S = 20


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
    assert [(row["subject"], row["held_by"]) for row in rows] == [("breakfast", None), (None, None)]
    shown = [ask(f"queues/orders/messages/{row['id']}") for row in rows]
    assert [json.loads(each["body"]) for each in shown] == [{"eggs": [1, "two"]}, "text"]
    assert shown[1]["properties"] == {"color": "brown"}
    client.create_receiver("orders", credit=10).receive(timeout=TIMEOUT_S)
    row = ask("queues/orders")
    assert (row["depth"], row["consumers"]) == (2, 1)
    assert row["held"] >= 1
    assert ask("queues/orders/messages")["items"][0]["held_by"]
    (connection,) = ask("connections")["items"]
    assert connection["container"] == client.container.container_id
    assert connection["links"] == 2
    assert ask(f"connections/{connection['connection']}", "DELETE")["changed"] is True
    with suppress(proton.ProtonException):
        client.close()
    until(lambda: ask("connections")["total"] == 0)  # when its socket has ended
    assert broker.terminate() == 0
    assert '"act": "close-connection"' in broker.log

"""Server-sent events of a real broker: in order, again after a cut, and never for a slow reader."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.utils import BlockingConnection

from broker_shim.serve.http.resources import events as event_stream
from tests.support.roots.logs import until
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

TIMEOUT_S = 30


class Reader:
    """A client of the stream."""

    def __init__(self, broker: BrokerProcess, path: str = "", **headers: str) -> None:
        found = re.search(r" http=http://([\d.]+):(\d+)", broker.ready_line)
        assert found is not None
        self.connection = http.client.HTTPConnection(found[1], int(found[2]), timeout=TIMEOUT_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("GET", f"/api/v1/events{path}", headers=sent)
        self.answer = self.connection.getresponse()

    def events(self, count: int) -> list[dict[str, Any]]:
        """The next events; their ids are the positions in their data."""
        return [*islice(self._read(), count)]

    def _read(self) -> Iterator[dict[str, Any]]:
        position = kind = ""
        for line in iter(self.answer.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                position = value
            elif name == "event":
                kind = value
            elif name == "data":
                told = json.loads(value)
                assert (str(told["position"]), told["kind"]) == (position, kind)
                yield told

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def send(broker: BrokerProcess, *bodies: str) -> None:
    client = BlockingConnection(broker.url, timeout=TIMEOUT_S)
    sender = client.create_sender("orders")
    for body in bodies:
        sender.send(proton.Message(body, durable=True))
    client.close()


def test_events_come_in_order_and_go_on_where_a_reader_was_cut(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root = str(tmp_path / "root")
    broker = start_broker(root, "--http", "127.0.0.1:0", "--queue", "orders")
    reader = Reader(broker)
    assert reader.answer.headers["Content-Type"].startswith("text/event-stream")
    send(broker, "a", "b")
    first, second = reader.events(2)
    assert [each["queue"] for each in (first, second)] == ["orders", "orders"]
    assert [each["kind"] for each in (first, second)] == ["enqueued", "enqueued"]
    reader.close()
    send(broker, "c")
    assert broker.terminate() == 0
    again = start_broker(root, "--http", "127.0.0.1:0")
    reader = Reader(again, Last_Event_ID=str(first["position"]))
    found = reader.events(2)
    assert found[0] == second
    assert found[1]["message_id"] > second["message_id"]
    reader.close()
    reader = Reader(again, "?after=0&queue=orders")
    assert [each["message_id"] for each in reader.events(3)][1:] == [
        each["message_id"] for each in found
    ]
    reader.close()
    for path, headers, status in (
        ("", {"Last_Event_ID": "x"}, 400),
        ("?after=-1", {}, 400),
        ("?after=999999", {}, 409),
        ("?befor=1", {}, 400),
    ):
        refused = Reader(again, path, **headers)
        assert (refused.answer.status, b"error" in refused.answer.read()) == (status, True)
        refused.close()


def test_a_broker_without_a_root_has_no_events_to_read(start_broker: StartBroker) -> None:
    broker = start_broker("--memory", "--http", "127.0.0.1:0")
    refused = Reader(broker)
    assert (refused.answer.status, b"no root" in refused.answer.read()) == (409, True)
    refused.close()


def test_so_many_read_at_once_and_who_went_keeps_no_place(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(str(tmp_path / "root"), "--http", "127.0.0.1:0")
    readers = [Reader(broker) for _ in range(event_stream.MOST_STREAMS)]
    assert {each.answer.status for each in readers} == {200}
    refused = Reader(broker)
    assert (refused.answer.status, refused.answer.headers["Retry-After"]) == (429, "10")
    refused.close()
    for reader in readers:
        reader.close()
    until(lambda: Reader(broker).answer.status == 200)

"""The control socket serves the table of endpoints to the owner of the root, who may do all."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from broker_shim.broker.orders import bulk_turns
from broker_shim.service import socket as listening
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.control.socket_address import SocketAddress
from sparkstore.tables.root import open_root
from tests.support.stores.controls import ServedRoot, ServicedRoot
from tests.support.stores.http_houses import TIMEOUT_S, Reply
from tests.support.stores.owners import OwnerConnection, ask_as_owner
from tests.support.stores.stores import DELTA_CONFIG, done

HEADER = {"protocol": "raw", "header": base64.b64encode(b"h").decode()}
DRAFT = {"header": HEADER, "body": base64.b64encode(b"body").decode()}


class Place:
    """A root that somebody serves."""

    def __init__(self, path: Path, served: ServedRoot | ServicedRoot) -> None:
        self.path, self.served = path, served

    def ask(self, method: str, path: str, said: Any = None, **headers: str) -> Reply:
        """Ask as the owner."""
        return ask_as_owner(self.path, method, path, said, **headers)

    def done(self, method: str, path: str, said: Any = None, **headers: str) -> Any:
        """What an answer says that is none of a problem."""
        reply = self.ask(method, path, said, **headers)
        assert reply.status == 200, reply.body
        return reply.body

    @property
    def acts(self) -> list[tuple[str, str]]:
        """What was written down: who did what."""
        return [(details["peer"], details["act"]) for _event, details in self.served.audited]


@pytest.fixture(params=["broker", "service"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    root = tmp_path / "root"
    store = DeltaMessageStore(root, DELTA_CONFIG)
    for name in ("q", "r"):
        done(store.create, Queue(name))
    message = store.message(MessageHeader("raw", b"h"), b"x")
    done(store.enqueue, message, "q")
    store.close()
    held = [("q", message.message_id)]
    served = ServedRoot(root, held) if request.param == "broker" else ServicedRoot(root, held)
    place = Place(root, served)
    yield place
    if (root / "control.sock").exists():
        served.stop()


def test_who_asks_is_the_owner_and_learns_which_root_it_is(place: Place) -> None:
    told = place.done("GET", "self")
    assert told["role"] == "admin"
    assert told["root_id"] == open_root(place.path).identity.root_id
    assert place.acts == []


def test_orders_are_carried_out_and_written_down_with_the_process(place: Place) -> None:
    assert place.done("PUT", "queues/new", {})["changed"]
    assert place.done("DELETE", "queues/new")["changed"]
    peer = f"local uid={os.getuid()} pid={os.getpid()}"
    assert place.acts == [(peer, "create-queue"), (peer, "delete-queue")]


def test_messages_are_put_moved_purged_and_told_with_their_holders(place: Place) -> None:
    assert place.done("POST", "queues/q/messages", {"messages": [DRAFT] * 3})["done"] == 3
    ids = [row["id"] for row in place.done("GET", "queues/q/messages")["items"]]
    assert len(ids) == 4
    fates = place.done("POST", "queues/q/move", {"to": "r", "ids": ids, "operation": "deadbeef"})
    assert (fates["done"], fates["left"], fates["operation"]) == (3, 1, "deadbeef")
    held = place.done("GET", "holders?limit=10")
    if isinstance(place.served, ServicedRoot):  # a broker knows the links that are attached to it
        assert [(row["queue"], row["message"]) for row in held["items"]] == [("q", ids[0])]
    assert held["left_out"] == 0
    assert place.done("POST", "flush")["flushed"]


def test_a_purge_tells_how_far_it_is_to_who_takes_lines(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_turns, "RUN_IDS", 300)
    assert place.done("POST", "queues/r/messages", {"messages": [DRAFT] * 1001})["done"] == 1001
    *steps, last = place.done("POST", "queues/r/purge", {}, Accept="application/x-ndjson")
    counts = [step["so_far"]["done"] for step in steps]
    assert counts == sorted({*counts})
    assert len(counts) >= 2
    assert (last["done"], last["queue"]) == (1001, "r")


def test_a_purge_that_fails_tells_so_in_its_last_line(place: Place) -> None:
    reply = place.ask("POST", "queues/absent/purge", {}, Accept="application/x-ndjson")
    assert (reply.status, reply.body["kind"]) == (404, "InvalidRequest")
    assert reply.body["error"] == "unknown queue 'absent': see sparkstore queues"


def test_what_a_dead_holder_has_is_released_and_what_lives_is_left(place: Place) -> None:
    ids = [row["id"] for row in place.done("GET", "queues/q/messages")["items"]]
    fates = place.done("POST", "queues/q/release", {"ids": ids})
    assert fates["done"] + fates["left"] == 1
    fates = place.done("POST", "queues/q/dead-letter", {"ids": ids})
    assert (fates["done"], fates["left"]) == (0, 1)


def test_placements_are_carried_out(place: Place) -> None:
    body = {"placements": [{"target": "r", "draft": DRAFT}], "operation": "deadbeef"}
    assert place.done("POST", "placements", body)["done"] == 1
    assert len(place.done("GET", "queues/r/messages")["items"]) == 1
    body["placements"] = [{"target": 7}]
    assert "placements cannot be read" in place.ask("POST", "placements", body).body["error"]


def test_a_name_is_the_same_one_whatever_is_in_it(place: Place) -> None:
    name = "🦊" * 10_000
    assert place.done("PUT", "queues/" + "%F0%9F%A6%8A" * 10_000, {})["changed"]
    assert name in {row["name"] for row in place.done("GET", "queues?limit=1000")["items"]}
    for path, why in (("", "at least one character"), ("half%ED%A0%80", "not valid Unicode")):
        assert why in place.ask("PUT", f"queues/{path}", {}).body["error"]


def test_another_users_process_is_not_served(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of the socket's file keeps such a process out; this is for when it does not."""
    assert (place.path / "control.sock").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(listening, "_credentials", lambda _peer: (4711, 12345))
    with pytest.raises(OSError, match=r"Broken pipe|reset|closed"):
        ask_as_owner(place.path, "GET", "self")


def test_clients_that_say_nothing_keep_no_other_out(place: Place) -> None:
    with ExitStack() as sockets:
        for _ in range(200):
            client = sockets.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(TIMEOUT_S)
            with SocketAddress(place.path) as address:
                client.connect(address)
        assert place.done("GET", "self")["role"] == "admin"


def test_a_command_of_an_older_release_is_told_what_to_do_in_a_line(place: Place) -> None:
    """It greets by an object of JSON, and reads one."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT_S)
        with SocketAddress(place.path) as address:
            client.connect(address)
        client.sendall(b'{"control": 1, "root_id": "a root"}\n')
        line = client.makefile("rb").read()
    answer = json.loads(line)
    assert answer["error"] == "InvalidRequest"
    assert "use the sparkstore that serves it" in answer["message"]


def test_nobody_waits_for_a_broker_that_stopped(place: Place) -> None:
    """An order under way is answered or hung up on, and the socket is gone for the next one."""
    place.done("POST", "queues/r/messages", {"messages": [DRAFT] * 1001})
    with closing(OwnerConnection(place.path)) as connection:
        kind = {"Content-Type": "application/json"}
        connection.request("POST", "/api/v1/queues/r/purge", b"{}", kind)
        place.served.stop()
        with suppress(http.client.HTTPException, ConnectionError):
            connection.getresponse().read()
    with pytest.raises(FileNotFoundError):
        place.ask("GET", "self")

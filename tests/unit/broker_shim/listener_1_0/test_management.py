"""Requests to `$management`: what they do, what they tell, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import proton
import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Detach,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from broker_shim.store.interface import Queue
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.amqp.management import Manager

QUEUE, EXCHANGE, BINDING = (f"org.apache.qpid.{each}" for each in ("Queue", "Exchange", "Binding"))

_OF_CREATE = {"operation": "CREATE", "type": "queue", "name": "new"}
_OF_UPDATE = {"operation": "UPDATE", "type": "queue", "name": "q"}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    it = House(Place("recorded", tmp_path))
    yield it
    it.close()


@pytest.fixture
def manager(house: House) -> Manager:
    return Manager(house, Client(house))


def create(manager: Manager, name: str, kind: str = "queue", **attributes: Any) -> Any:
    return manager.ask(attributes or None, operation="CREATE", type=kind, name=name)


def test_a_queue_is_created_read_altered_and_deleted(manager: Manager, house: House) -> None:
    made = create(manager, "q", QUEUE, max_depth=5)
    assert (made.status, made.body["identity"], made.body["type"]) == (201, "queue/q", QUEUE)
    assert dict(house.broker.definitions["q"].arguments) == {"max_depth": 5}
    again = create(manager, "q", QUEUE, max_depth=5)
    assert (again.status, again.text) == (200, "it is there already")
    other = create(manager, "q", QUEUE, max_depth=6)
    assert (other.status, "see sparkstore queue alter" in other.text) == (409, True)
    read = manager.ask(operation="READ", identity="queue/q").body
    assert (read["depth"], read["consumers"], read["durability"]) == (0, 0, "unsettled-state")
    altered = manager.ask({**read, "max_depth": 7}, operation="UPDATE", type=QUEUE, name="q")
    assert (altered.status, "durability" in altered.text) == (400, False)
    assert "leave it out" in altered.text
    altered = manager.ask({"max_depth": 7}, operation="UPDATE", type=QUEUE, name="q")
    assert (altered.status, altered.body["max_depth"]) == (200, 7)
    altered = manager.ask({"max_depth": None}, operation="UPDATE", type=QUEUE, name="q")
    assert "max_depth" not in altered.body
    assert manager.ask(operation="DELETE", type=QUEUE, name="q").status == 204
    assert "q" not in house.broker.queues
    gone = manager.ask(operation="READ", type=QUEUE, name="q")
    assert (gone.status, gone.text) == (404, "there is no queue 'q'")


def test_an_exchange_is_bound_and_unbound(manager: Manager, house: House) -> None:
    create(manager, "q")
    assert create(manager, "news/1", "exchange", exchange_type="topic").status == 400
    assert create(manager, "news", "exchange", exchange_type="topic").status == 201
    bound = manager.ask(
        {"exchange": "news", "queue": "q", "key": "a/b %"}, operation="CREATE", type=BINDING
    )
    assert (bound.status, bound.body["identity"]) == (201, "binding/news/q/a%2Fb%20%25")
    read = manager.ask(operation="READ", type=BINDING, name=bound.body["name"])
    assert read.body == bound.body
    kept = manager.ask(operation="DELETE", type=EXCHANGE, name="news")
    assert (kept.status, "1 bindings" in kept.text) == (409, True)
    assert manager.ask(operation="DELETE", identity=bound.body["identity"]).status == 204
    assert manager.ask(operation="DELETE", type=EXCHANGE, name="news").status == 204
    assert "news" not in house.broker.router


def test_what_would_be_missed_is_deleted_by_force_only(manager: Manager, house: House) -> None:
    create(manager, "q")
    manager.client.attach("to", handle=8, is_receiver=False, target=Target("q"))
    manager.client.deliver(b"m", "body", handle=8)
    kept = manager.ask(operation="DELETE", type="queue", name="q")
    assert (kept.status, "1 messages" in kept.text) == (409, True)
    assert manager.ask(operation="READ", identity="queue/q").body["depth"] == 1
    assert manager.send(operation="PURGE", identity="queue/q") is None
    house.run_delayed()  # some messages at a time
    assert [told.body for told in manager.answers()] == [{"purged": 1}]
    manager.client.deliver(b"n", "body", handle=8)
    assert manager.ask(operation="DELETE", type="queue", name="q", force=True).status == 204
    assert "q" not in house.broker.queues


def test_a_query_tells_what_was_asked_for_in_pages(manager: Manager) -> None:
    for name in ("b", "a", "c"):
        create(manager, name, max_depth=3)
    asked = {"attributeNames": ["name", "max_depth", "depth"]}
    first = manager.ask(asked, operation="QUERY", entityType=QUEUE, offset=0, count=3)
    assert first.properties == {"count": 3}
    assert first.body["results"] == [["a", 3, 0], ["answers", None, 0], ["b", 3, 0]]
    rest = manager.ask(asked, operation="QUERY", entityType=QUEUE, offset=3)
    assert rest.body == {**asked, "results": [["c", 3, 0]]}
    every = manager.ask(operation="QUERY")
    kinds = every.body["attributeNames"].index("type")
    assert {each[kinds] for each in every.body["results"]} == {QUEUE, EXCHANGE}


def test_what_can_be_asked_is_told(manager: Manager) -> None:
    assert manager.ask(operation="GET-TYPES").body == {QUEUE: [], EXCHANGE: [], BINDING: []}
    told = manager.ask(operation="GET-OPERATIONS", entityType=EXCHANGE).body
    assert told == {EXCHANGE: ["CREATE", "READ", "DELETE"]}
    told = manager.ask(operation="GET-ATTRIBUTES", entityType=BINDING).body
    assert told[BINDING][3:] == ["exchange", "queue", "key", "arguments"]
    assert manager.ask(operation="GET-MGMT-NODES").body == []


@pytest.mark.parametrize(
    ("body", "said", "status", "text"),
    [
        (None, {"operation": "CREAT"}, 501, "say one of CREATE"),
        (None, {}, 501, "operation ''"),
        (None, {"operation": 7}, 501, "operation ''"),
        (None, {"operation": "READ"}, 400, "say one of org.apache.qpid.Queue"),
        (None, {"operation": "READ", "type": "queue"}, 400, "say which"),
        (None, {"operation": "READ", "identity": "queue"}, 400, "say which"),
        (None, {"operation": "READ", "identity": "binding/a/b"}, 400, "say which"),
        (None, {"operation": "READ", "type": "queue", "name": 7}, 400, "say which"),
        (None, {"operation": "READ", "identity": "queue/none"}, 404, "no queue 'none'"),
        (None, {"operation": "DELETE", "identity": "binding/e/q/k"}, 404, "no binding 'e/q/k'"),
        (None, {"operation": "CREATE", "type": "queue"}, 400, "needs a name"),
        (None, {"operation": "CREATE", "type": "queue", "name": "$management"}, 400, "$management"),
        ({"max_dept": 1}, _OF_CREATE, 400, "max_depth"),
        ({"max_depth": "1"}, _OF_CREATE, 400, "max_depth"),
        ({"max_depth": [1]}, _OF_CREATE, 400, "of a type"),
        ({"durability": "all"}, _OF_CREATE, 400, "say one of none"),
        ({"durability": [1]}, _OF_CREATE, 400, "say one of none"),
        ({"depth": 0}, _OF_UPDATE, 400, "cannot be altered"),
        ({"name": "other"}, _OF_UPDATE, 400, "cannot be altered"),
        ({}, {"operation": "UPDATE", "identity": "exchange/amq.topic"}, 501, "create it anew"),
        ({"exchange": 1}, {"operation": "CREATE", "type": "binding"}, 400, "are strings"),
        ({"keys": ""}, {"operation": "CREATE", "type": "binding"}, 400, "did you mean 'key'"),
        ({"exchange": "e"}, {"operation": "CREATE", "type": "binding"}, 400, ""),
        (None, {"operation": "PURGE", "identity": "exchange/amq.topic"}, 501, "a queue can"),
        ({"attributeNames": "name"}, {"operation": "QUERY"}, 400, "is a list"),
        ({"attributeNames": ["nam"]}, {"operation": "QUERY"}, 400, "attribute 'nam'"),
        (None, {"operation": "QUERY", "entityType": "topic"}, 400, "say one of"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_say(
    manager: Manager, house: House, body: Any, said: dict[str, Any], status: int, text: str
) -> None:
    create(manager, "q")
    before = dict(house.broker.definitions)
    told = manager.ask(body, **said)
    assert (told.status, text in told.text) == (status, True), told
    assert dict(house.broker.definitions) == before


def test_a_request_whose_answer_goes_nowhere_is_not_carried_out(
    manager: Manager, house: House
) -> None:
    said = {"operation": "CREATE", "type": "queue", "name": "new"}
    assert manager.refused(reply_to=None, **said) == "amqp:invalid-field"
    assert manager.refused(reply_to="nowhere", **said) == "amqp:not-found"
    assert manager.refused(reply_to="$management", **said) == "amqp:not-found"
    assert manager.refused("text", **said) == "amqp:decode-error"
    assert "new" not in house.broker.queues
    within = {"state": TransactionalState(b"\0")}
    request = proton.Message(None, reply_to="answers", properties=said).encode()
    outcome = manager.send_encoded(bytes(request), **within)
    assert isinstance(outcome, Rejected)
    assert str(outcome.error.condition) == "amqp:not-allowed"
    assert "new" not in house.broker.queues


def test_requests_on_one_link_are_done_in_their_order(manager: Manager) -> None:
    said = {"type": "queue", "name": "new"}
    with manager.client.house.store_that_does_not_answer():
        assert manager.send(operation="CREATE", **said) is None
        assert manager.send(operation="READ", **said) is None
        assert manager.send(operation="DELETE", **said) is None
    assert [told.status for told in manager.answers()] == [201, 200, 204]


def test_a_connection_that_ends_has_no_request_begun_after_it(
    manager: Manager, house: House
) -> None:
    with house.store_that_does_not_answer():
        manager.send(operation="CREATE", type="queue", name="first")
        manager.send(operation="CREATE", type="queue", name="second")
        manager.client.send(Detach(7, closed=True))
    assert "first" in house.broker.queues
    assert "second" not in house.broker.queues


def test_a_request_that_is_too_large_ends_its_link(manager: Manager, house: House) -> None:
    request = proton.Message({"x": "y" * 70_000}, reply_to="answers", properties={})
    error = manager.send_encoded(bytes(request.encode()))
    assert str(error.condition) == "amqp:link:message-size-exceeded"
    assert not house.broker.calls.open_count


def test_nothing_is_received_from_the_node_itself(house: House) -> None:
    client = Client(house)
    client.attach("from", source=Source("$management"))
    ((ended, _payload),) = client.taken(Detach)
    assert str(ended.error.condition) == "amqp:not-found"
    assert "dynamic source" in ended.error.description


def test_each_correlation_id_comes_back_as_it_was(house: House) -> None:
    client = Client(house)
    manager = Manager(house, client)
    for sent in ("text", 7, proton.ulong(8)):
        request = proton.Message(
            None, reply_to="answers", id="id", correlation_id=sent, properties={"operation": "x"}
        )
        outcome = manager.send_encoded(bytes(request.encode()))
        assert isinstance(outcome, Accepted)
    house.broker.create_queue(Queue("done"), lambda _error: None)
    assert [told.status for told in manager.answers()] == [501] * 3

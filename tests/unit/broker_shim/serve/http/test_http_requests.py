"""What the endpoints of the HTTP port answer and do, over a broker in memory."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import jsonschema
import msgspec
import pytest

from broker_shim.serve.http.console.console_files import console_endpoints
from broker_shim.serve.http.endpoint import Endpoint
from broker_shim.serve.http.http_server import EVERY
from broker_shim.serve.http.loop_calls import LoopCalls
from broker_shim.serve.http.request_models import MOST_BODY_BYTES as MOST_REQUEST_BYTES
from broker_shim.serve.http.request_models import MOST_LONG_BODY_BYTES
from broker_shim.serve.http.resources import copies as copy_requests
from broker_shim.serve.http.resources.messages import MOST_BODY_BYTES
from broker_shim.store.interface import MessageHeader
from sparkstore.cli.command_line import main
from sparkstore.control.http_client import BrokerClient
from sparkstore.core import entries as entries_module
from sparkstore.core.entries import Entries, Stretch
from tests.support.checkout import CHECKOUT
from tests.support.stores.http_houses import HttpHouse, path_of

ODD = "a/b?c#d%2F..::<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    it = HttpHouse(tmp_path_factory.mktemp("house"))
    yield it
    it.stop()


@pytest.fixture
def orders(house: HttpHouse) -> Iterator[str]:
    """A queue with four messages."""
    assert house.ask("PUT", path_of("orders"), None, {}).body["changed"]
    house.put("orders", b"one", b"two", b"\xff", b"x" * (MOST_BODY_BYTES + 1))
    yield "orders"
    house.ask("DELETE", path_of("orders") + "?force=true")


def test_a_queue_lives_from_its_making_to_its_end(house: HttpHouse) -> None:
    said = {"arguments": {"max_depth": 5}}
    assert house.ask("PUT", path_of(ODD), None, said).body["changed"] is True
    assert house.ask("PUT", path_of(ODD), None, said).body["changed"] is False
    change = {"set": {"message_ttl_ms": 7}, "unset": ["max_depth"]}
    assert house.ask("PATCH", path_of(ODD), None, change).status == 200
    told = house.ask("GET", path_of(ODD)).body
    assert (told["name"], told["arguments"], told["depth"]) == (ODD, {"message_ttl_ms": 7}, 0)
    assert house.ask("DELETE", path_of(ODD)).status == 200
    assert house.ask("DELETE", path_of(ODD)).status == 404


def test_lists_come_in_pages(house: HttpHouse) -> None:
    names = [f"page.{number:02}" for number in range(5)]
    for name in names:
        house.ask("PUT", path_of(name), None, {})
    found: list[str] = []
    while len(found) < 5:
        page = house.ask("GET", f"/api/v1/queues?match=page.&limit=2&offset={len(found)}").body
        assert (page["total"], page["offset"]) == (5, len(found))
        found += [row["name"] for row in page["items"]]
    assert found == names


def test_a_client_lists_queues_with_their_arguments_by_one_request_a_page(
    house: HttpHouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("listed.a", "listed.b"):
        house.ask("PUT", path_of(name), None, {"arguments": {"max_depth": 3}})
    asked, ask = list[str](), BrokerClient.ask

    def noted(broker: BrokerClient, method: str, path: str, *more: Any, **query: Any) -> Any:
        asked.append(path)
        return ask(broker, method, path, *more, **query)

    monkeypatch.setattr(BrokerClient, "ask", noted)
    assert main(["queue", "list", "--url", f"http://127.0.0.1:{house.port}", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"max_depth": 3} in [each["arguments"] for each in rows if each["queue"] == "listed.b"]
    assert asked == ["queues"]


def test_policies(house: HttpHouse, orders: str) -> None:
    said = {"match": "#", "arguments": {"max_depth": 4}, "priority": 2}
    assert house.ask("PUT", "/api/v1/policies/p", None, said).body["changed"]
    row = {"name": "p", **said, "queues": house.ask("GET", "/api/v1/queues").body["total"]}
    assert house.ask("GET", "/api/v1/policies").body["items"] == [row]
    effective = house.ask("GET", path_of(orders)).body["effective"]
    assert effective["max_depth"] == {"value": 4, "from": "policy p"}
    wrong = {"match": "#", "arguments": {"max_dpth": 4}}
    assert house.ask("PUT", "/api/v1/policies/q", None, wrong).status == 400
    assert house.ask("DELETE", "/api/v1/policies/p").body["changed"]
    assert house.ask("DELETE", "/api/v1/policies/p").status == 409


def test_exchanges_and_bindings(house: HttpHouse, orders: str) -> None:
    assert house.ask("PUT", "/api/v1/exchanges/x", None, {"type": "topic"}).body["changed"]
    said = {"exchange": "x", "queue": orders, "key": "o.#"}
    assert house.ask("POST", "/api/v1/bindings", None, said).body["changed"]
    row = {**said, "arguments": {}}
    assert house.ask("GET", "/api/v1/bindings?exchange=x").body["items"] == [row]
    assert house.ask("GET", path_of(orders)).body["bindings"] == [row]
    row = house.ask("GET", "/api/v1/exchanges").body["items"][0]
    assert (row["name"], row["type"]) == ("x", "topic")
    assert house.ask("DELETE", "/api/v1/exchanges/x").status == 409
    gone = "/api/v1/bindings?exchange=x&queue=orders&key=o.%23"
    assert house.ask("DELETE", gone).status == 200
    assert house.ask("DELETE", "/api/v1/exchanges/x").status == 200
    assert house.ask("GET", "/api/v1/exchanges").body["total"] == 0


def test_messages_are_looked_at_in_pages_and_not_taken(house: HttpHouse, orders: str) -> None:
    page = house.ask("GET", path_of(orders, "/messages?limit=3&offset=1")).body
    assert (page["total"], len(page["items"])) == (4, 3)
    ids = [row["id"] for row in house.ask("GET", path_of(orders, "/messages")).body["items"]]
    shown = [house.ask("GET", path_of(orders, f"/messages/{each}")).body for each in ids]
    forms = [(each["body"][:3], each["body_form"]) for each in shown]
    assert forms == [("one", "text"), ("two", "text"), ("/w=", "base64"), ("", "omitted")]
    assert house.depth(orders) == 4
    assert house.ask("GET", path_of(orders, "/messages/99999999")).status == 404
    assert house.ask("GET", path_of(orders, "/messages/x")).status == 400


def test_a_message_tells_its_header_and_why_it_is_dead(house: HttpHouse) -> None:
    house.ask("PUT", path_of("dead"), None, {})
    house.ask("PUT", path_of("live"), None, {"arguments": {"dead_letter_queue": "dead"}})
    header = MessageHeader("raw", b"h", subject="eggs", properties=(("color", "brown"),))
    house.put("live", b"it", header=header)
    row = house.ask("GET", path_of("live", "/messages")).body["items"][0]
    assert (row["subject"], row["properties"], row["death"]) == ("eggs", {"color": "brown"}, {})


def test_queues_that_get_dead_letters_are_listed_with_those_that_send_them(
    house: HttpHouse,
) -> None:
    house.ask("PUT", path_of("grave"), None, {})
    sources = [f"sender.{number:02}" for number in range(12)]
    for name in sources:
        said = {"arguments": {"dead_letter_queue": "grave"}}
        assert house.ask("PUT", path_of(name), None, said).status == 200
    house.put("grave", b"it")
    rows = house.ask("GET", "/api/v1/dead-letters").body["items"]
    row = next(each for each in rows if each["name"] == "grave")
    assert (row["depth"], row["sources"], row["source_count"]) == (1, sources[:10], 12)


def test_a_dry_run_tells_how_many_and_changes_nothing(house: HttpHouse, orders: str) -> None:
    house.ask("PUT", path_of("dry.target"), None, {})
    for what in ({"dry_run": True}, {"dry_run": True, "to": "dry.target"}):
        order = "/move" if "to" in what else "/purge"
        told = house.ask("POST", path_of(orders, order), None, what).body
        assert (told["would"], told["left"], told["done"]) == (4, 0, 0)
    assert house.depth(orders) == 4


def test_messages_are_moved_and_purged_by_id_or_all(house: HttpHouse, orders: str) -> None:
    house.ask("PUT", path_of("aside"), None, {})
    ids = [row["id"] for row in house.ask("GET", path_of(orders, "/messages")).body["items"]]
    some = {"to": "aside", "ids": ids[:1]}
    assert house.ask("POST", path_of(orders, "/move"), None, some).body["done"] == 1
    assert house.ask("POST", path_of(orders, "/move"), None, some).body["gone"] == 1
    said = {"ids": ids[1:2]}
    assert house.ask("POST", path_of(orders, "/purge"), None, said).body["done"] == 1
    assert house.ask("POST", path_of(orders, "/move"), None, {"to": "aside"}).body["done"] == 2
    assert (house.depth(orders), house.depth("aside")) == (0, 3)
    told = house.ask("POST", path_of("aside", "/purge"), None, {}).body
    assert (told["done"], len(told["operation"])) == (3, 8)
    row = house.ask("GET", path_of("aside")).body
    assert (row["arrived"], row["removed"]) == (3, 3)


def test_each_change_has_a_line_in_the_audit_log(house: HttpHouse, orders: str) -> None:
    house.audited.clear()
    house.ask("PUT", path_of("noted"), None, {})
    house.ask("POST", path_of("noted", "/purge"), None, {})
    house.ask("POST", path_of(orders, "/move"), None, {"to": "noted"})
    house.ask("DELETE", path_of("noted") + "?force=true")
    house.ask("DELETE", "/api/v1/connections/7")
    acts = [details["act"] for event, details in house.audited if event == "administration"]
    assert acts == ["create-queue", "purge-queue", "move", "delete-queue", "close-connection"]
    assert all(details["peer"].startswith("http 127.0.0.1:") for _, details in house.audited)


BAD: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/api/v1/queues?limi=3", None, 400, "did you mean 'limit'?"),
    ("GET", "/api/v1/queues?limit=0", None, 400, "limit"),
    ("GET", "/api/v1/queues?limit=1001", None, 400, "limit"),
    ("GET", "/api/v1/queues?offset=-1", None, 400, "offset"),
    ("GET", "/api/v1/queues?offset=x", None, 400, "offset"),
    ("GET", "/api/v1/self?x=1", None, 400, "leave 'x' out"),
    ("GET", "/api/v1/queues/%ff", None, 400, "UTF-8"),
    ("GET", "/api/v1/queues/none", None, 404, "unknown queue 'none': see sparkstore queues"),
    ("PUT", "/api/v1/queues/q", {"argments": {}}, 400, "did you mean 'arguments'?"),
    ("PUT", "/api/v1/queues/q", {"arguments": {"max_deph": 1}}, 400, "did you mean 'max_depth'?"),
    ("PUT", "/api/v1/queues/q", {"arguments": {"max_depth": "x"}}, 400, "max_depth"),
    ("PUT", "/api/v1/queues/q", {"arguments": {"max_depth": [1]}}, 400, "say an integer"),
    ("PUT", "/api/v1/queues/q", {"durability": 2}, 400, "durability"),
    ("PUT", "/api/v1/queues/q", [], 400, "the body should be an object, not []"),
    ("PUT", "/api/v1/queues/q", b'{"arguments":', 400, "not JSON"),
    ("PUT", "/api/v1/queues/q", b'{"x": "\xff"}', 400, "not JSON"),
    ("PUT", "/api/v1/queues/q", b"[" * 100_000, 400, "not JSON"),
    ("PUT", "/api/v1/queues/q", None, 415, "Content-Type: application/json"),
    ("PUT", "/api/v1/queues/amq.topic", {}, 400, "exchange's name"),
    ("PUT", "/api/v1/queues/q", b" " * (MOST_REQUEST_BYTES + 1), 413, "send less"),
    ("PATCH", "/api/v1/queues/none", {"set": {"max_depth": 1}}, 404, "unknown queue"),
    ("GET", "/api/v1/queues", {}, 400, "no body"),
    (
        "POST",
        "/api/v1/queues/here/purge",
        {"ids": ["1"]},
        400,
        "'ids[0]' should be a whole number, not \"1\"",
    ),
    (
        "POST",
        "/api/v1/queues/here/purge",
        {"ids": [-1]},
        400,
        "a whole number of at least 1, not -1",
    ),
    ("POST", "/api/v1/queues/here/move", {}, 400, "`to`"),
    ("POST", "/api/v1/queues/here/move", {"to": 5}, 400, "field 'to' should be a text, not 5"),
    ("POST", "/api/v1/queues/here/move", {"to": ""}, 400, 'a length of at least 1, not ""'),
    (
        "POST",
        "/api/v1/queues/here/redrive",
        {"limit": -1},
        400,
        "'limit' should be a whole number of",
    ),
    ("POST", "/api/v1/queues/here/move", {"to": "none"}, 404, "unknown queue"),
    ("POST", "/api/v1/queues/here/move", {"to": "here", "dry_run": True}, 400, "another queue"),
    ("POST", "/api/v1/queues/here/redrive", {"to": "here", "dry_run": True}, 400, "another queue"),
    ("POST", "/api/v1/bindings", {"exchange": "none", "queue": "here"}, 400, "none"),
    ("DELETE", "/api/v1/bindings?exchange=amq.topic", None, 400, "queue"),
    ("PUT", "/api/v1/exchanges/x", {"type": "tropic"}, 400, "tropic"),
    ("POST", "/api/v1/transactions/1:ab:cd/commit", {}, 400, "no body"),
    ("POST", "/api/v1/transactions/x/commit", None, 400, "xid"),
    ("POST", "/api/v1/transactions/1:ab:cd/forget", None, 409, "1:ab:cd"),
    ("POST", "/api/v1/messages/x/resubmit", {}, 400, "a number"),
    ("POST", "/api/v1/messages/4711/resubmit", {}, 409, "is not on any queue"),
    ("POST", "/api/v1/messages/1/resubmit", {"propertys": {}}, 400, "did you mean 'properties'?"),
    ("POST", "/api/v1/messages/1/resubmit", {"properties": {"a": 1}}, 400, "should be a text"),
    ("POST", "/api/v1/messages/1/resubmit", {"queue": "none"}, 404, "unknown queue"),
    ("POST", "/api/v1/messages/1/resubmit", {"body_base64": "?"}, 400, "is no base64"),
    ("POST", "/api/v1/messages/1/resubmit", {"body_base64": "é"}, 400, "is no base64"),
    ("POST", "/api/v1/messages/1/resubmit", {"body": "", "body_base64": ""}, 400, "say one of"),
    (
        *("POST", "/api/v1/messages/1/resubmit", {"properties": {"a": ""}, "unset": ["a"]}),
        *(400, "have 'a': say one of them"),
    ),
    ("POST", "/api/v1/queues/here/replay", {}, 400, "say which messages"),
    ("POST", "/api/v1/queues/here/replay", {"older_then": "1s"}, 400, "did you mean 'older_than'?"),
    ("POST", "/api/v1/queues/here/replay", {"older_than": "soon"}, 400, "such as 90s or 7d"),
    ("POST", "/api/v1/queues/here/replay", {"ids": [0]}, 400, "ids"),
    (
        "POST",
        "/api/v1/queues/here/replay",
        {"ids": [], "older_than": "0s"},
        400,
        "'ids' should be a list with a length of at least 1",
    ),
    ("POST", "/api/v1/queues/here/replay", {"ids": [1], "to": ""}, 404, "unknown queue ''"),
    ("POST", "/api/v1/queues/here/replay", {"ids": [1]}, 409, "no root to read"),
    ("POST", "/api/v1/queues/here/export", {"subjct": "x"}, 400, "did you mean 'subject'?"),
    ("POST", "/api/v1/queues/here/export", {"ids": "1"}, 400, "ids"),
    ("POST", "/api/v1/queues/here/export", {"ids": []}, 400, "a length of at least 1, not []"),
    ("POST", "/api/v1/definitions", {"documnt": {}}, 400, "did you mean 'document'?"),
    ("POST", "/api/v1/definitions", {"document": 7}, 400, "document"),
    ("POST", "/api/v1/definitions", b" " * (MOST_LONG_BODY_BYTES + 1), 413, "send less"),
    ("DELETE", "/api/v1/connections/4711", None, 404, "there is no connection 4711"),
    ("DELETE", "/api/v1/connections/x", None, 400, "is a number"),
]


def depths(house: HttpHouse) -> dict[str, int]:
    rows = house.ask("GET", "/api/v1/queues?limit=1000").body["items"]
    return {row["name"]: row["depth"] for row in rows}


@pytest.mark.parametrize(
    ("method", "where", "said", "status", "why"), BAD, ids=[f"{m} {p[:40]}" for m, p, *_ in BAD]
)
def test_what_cannot_be_is_refused_in_one_line(
    house: HttpHouse, method: str, where: str, said: Any, status: int, why: str
) -> None:
    house.ask("PUT", path_of("here"), None, {})
    before = depths(house)
    reply = house.ask(method, where, None, said)
    assert (reply.status, reply.body["status"]) == (status, status)
    assert why in reply.body["error"]
    assert "\n" not in reply.body["error"]
    assert depths(house) == before


def test_an_export_has_each_message_on_a_line_and_takes_none(house: HttpHouse, orders: str) -> None:
    reply = house.ask("POST", path_of(orders, "/export"), None, {})
    assert reply.headers["content-type"] == "application/x-ndjson"
    rows = [json.loads(line) for line in reply.body.splitlines()]
    assert [row.get("body", "")[:3] for row in rows] == ["one", "two", "", "xxx"]
    assert (rows[2]["body_base64"], len(rows[3]["body"])) == ("/w==", MOST_BODY_BYTES + 1)
    some = house.ask("POST", path_of(orders, "/export"), None, {"ids": [rows[1]["message_id"]]})
    assert [*map(json.loads, some.body.splitlines())] == rows[1:2]
    assert house.depth(orders) == 4


def test_an_export_has_about_a_mebibyte_in_memory_however_large_messages_are(
    house: HttpHouse, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, seen, load = list[int](), list[int](), house.store.load
    monkeypatch.setattr(copy_requests, "_PART_BYTES", 1)
    monkeypatch.setattr(house.store, "load", lambda each: loaded.append(each) or load(each))

    async def noted(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for part in parts:
            seen.append(len(loaded))
            yield part

    monkeypatch.setattr(copy_requests, "counted", noted)
    assert house.ask("POST", path_of(orders, "/export"), None, {}).body.count("\n") == 4
    assert seen == [1, 2, 3, 4], "the first is sent before the next is read"


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("/export", {"older_than": "0s"}),
        ("/export", {"ids": [1, 2], "older_than": "0s"}),
        ("/redrive", {}),
        ("/redrive", {"dry_run": True, "to": "deep.target"}),
        ("/move", {"to": "deep.target"}),
        ("/requeue", {}),
    ],
)
def test_an_order_about_a_whole_queue_holds_the_loop_for_a_thousand_messages_at_a_time(
    house: HttpHouse, monkeypatch: pytest.MonkeyPatch, order: str, said: dict[str, Any]
) -> None:
    """A million in one turn would keep each client waiting for seconds."""
    monkeypatch.setattr(entries_module, "_YOUNG", 2048)
    monkeypatch.setattr(entries_module, "CHUNK", 1024)
    for name in ("deep", "deep.target"):
        house.ask("PUT", path_of(name), None, {})
    house.put("deep", *[b""] * 3000)
    seen, turns, get, read = [0], list[int](), Entries.get, LoopCalls.read

    def counted(entries: Entries, message_id: int, default: None = None) -> Any:
        seen[0] += 1
        return get(entries, message_id, default)

    async def noted(calls: LoopCalls, call: Callable[[], Any]) -> Any:
        def turn() -> Any:
            before, found = seen[0], call()
            size = found.message_ids if isinstance(found, Stretch) else found
            turns.append(max(seen[0] - before, len(size) if isinstance(size, list) else 0))
            return found

        return await read(calls, turn)

    monkeypatch.setattr(Entries, "get", counted)
    monkeypatch.setattr(LoopCalls, "read", noted)
    assert house.ask("POST", path_of("deep", order), None, said).status == 200
    assert max(turns) <= 2048
    for name in ("deep", "deep.target"):
        house.ask("DELETE", path_of(name) + "?force=true")


def filled(path: str, queue: str) -> str:
    """The path of an endpoint, with names that are well formed."""
    names = {"queue": queue, "message": "1", "xid": "1:ab:cd", "connection": "1"}
    return re.sub(r"{(\w+)}", lambda found: names.get(found[1], "x"), path)


def needed_query(endpoint: Endpoint) -> str:
    """What has to stand after the question mark."""
    every = msgspec.structs.fields(endpoint.query) if endpoint.query else ()
    return "&".join(f"{each.name}=x" for each in every if each.required)


@pytest.mark.parametrize("endpoint", EVERY, ids=lambda each: f"{each.method} {each.path}")
def test_every_endpoint_refuses_what_it_does_not_know(
    house: HttpHouse, endpoint: Endpoint, orders: str
) -> None:
    """Of all there are: a name, and of those with a body another type, and one too large."""
    if endpoint.role is None or endpoint in console_endpoints():
        return
    path, before = filled(endpoint.path, orders), depths(house)
    said = None if endpoint.body is None else {}
    reply = house.ask(endpoint.method, f"{path}?nothing=1", None, said)
    assert (reply.status, "nothing" in reply.body["error"]) == (400, True)
    wrong: list[tuple[Any, int]] = [({"nothing": 1}, 400)]
    if endpoint.body is not None:
        wrong += [([], 400), ("text", 400), (b"null", 400), (None, 415)]
    for body, status in (*wrong, (b" " * (endpoint.most_body_bytes + 1), 413)):
        where = f"{path}?{needed_query(endpoint)}"
        assert house.ask(endpoint.method, where, None, body).status == status
    assert depths(house) == before


@pytest.mark.parametrize("name", ["..%2F..%2Fetc%2Fpasswd", "%2e%2e", "..%5C", "x%00y", "%2F"])
def test_a_name_in_a_path_is_a_name_and_no_file(house: HttpHouse, name: str) -> None:
    for endpoint in EVERY:
        if endpoint.method == "GET" and "{queue}" in endpoint.path:
            where = filled(endpoint.path, name)
            assert house.ask("GET", where).status in {400, 404}


@pytest.mark.parametrize("endpoint", EVERY, ids=lambda each: f"{each.method} {each.path}")
def test_a_nul_character_is_refused_in_a_line(
    house: HttpHouse, endpoint: Endpoint, orders: str
) -> None:
    for field in msgspec.structs.fields(endpoint.query) if endpoint.query else ():
        where = f"{filled(endpoint.path, orders)}?{field.name}=%00"
        reply = house.ask(endpoint.method, where, None, None if endpoint.body is None else {})
        assert (reply.status, field.name in reply.body["error"]) == (400, True)


def test_a_page_of_messages_ends_at_its_bytes_and_tells_where_to_go_on(house: HttpHouse) -> None:
    house.ask("PUT", path_of("large"), None, {})
    for text in ("x" * 3_000_000, "y" * 9_000_000):
        header = MessageHeader("raw", b"h", properties=(("p", text),))
        house.put("large", b"", b"", b"", header=header)
    seen, sizes, offset = list[int](), list[int](), 0
    while offset is not None:
        page = house.ask("GET", path_of("large", f"/messages?offset={offset}")).body
        assert (page["offset"], page["total"]) == (offset, 6)
        seen += [row["id"] for row in page["items"]]
        sizes.append(len(page["items"]))
        offset = page["next_offset"]
    assert (sizes, len(set(seen))) == ([2, 1, 1, 1, 1], 6)
    page = house.ask("GET", path_of("large", "/messages?offset=1&limit=2")).body
    assert (len(page["items"]), page["next_offset"]) == (2, 3)
    house.ask("DELETE", path_of("large") + "?force=true")


def test_an_answer_that_would_be_too_long_is_refused(house: HttpHouse) -> None:
    header = MessageHeader("raw", b"h", properties=(("p", "x" * (17 << 20)),))
    house.ask("PUT", path_of("large"), None, {})
    house.put("large", b"", header=header)
    reply = house.ask("GET", path_of("large", "/messages"))
    assert (reply.status, "longer than 16 MiB" in reply.body["error"]) == (413, True)
    house.ask("DELETE", path_of("large") + "?force=true")


@pytest.fixture(scope="module")
def document(house: HttpHouse) -> dict[str, Any]:
    found: dict[str, Any] = house.ask("GET", "/api/v1/openapi.json").body
    return found


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for name, each in node.items():
            if name == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def test_openapi_describes_every_endpoint_by_models_that_are_there(
    document: dict[str, Any],
) -> None:
    described = {(m.upper(), path) for path, ops in document["paths"].items() for m in ops}
    served = {(each.method, each.path) for each in EVERY}
    assert served - described == {(each.method, each.path) for each in console_endpoints()}
    assert described <= served
    schemas = document["components"]["schemas"]
    assert {each.rpartition("/")[2] for each in references(document)} <= {*schemas}
    names = [op["operationId"] for ops in document["paths"].values() for op in ops.values()]
    assert len({*names}) == len(names)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_openapi_tells_who_may_ask_and_whether_it_changes_something(
    document: dict[str, Any],
) -> None:
    def facts(method: str, path: str) -> list[Any]:
        operation = document["paths"][f"/api/v1/{path}"][method]
        names = ("role", "rights", "target-rights", "changes", "dry-run")
        return [operation[f"x-{name}"] for name in names]

    assert facts("post", "queues/{queue}/move") == ["operator", ["delete"], ["write"], True, True]
    assert facts("post", "sql") == ["operator", ["admin"], [], False, False]
    assert facts("delete", "policies/{policy}") == ["admin", ["admin"], [], True, True]
    assert facts("get", "users") == ["admin", [], [], False, False]


def test_answers_are_as_openapi_says(
    house: HttpHouse, orders: str, document: dict[str, Any]
) -> None:
    ids = [row["id"] for row in house.ask("GET", path_of(orders, "/messages")).body["items"]]
    for endpoint in EVERY:
        if endpoint.method != "GET" or endpoint.answer is None:
            continue
        if "{connection}" in endpoint.path:  # nobody is connected; `test_http_process` has a client
            continue
        path = endpoint.path.replace("{queue}", orders).replace("{message}", str(ids[0]))
        told = document["paths"][endpoint.path]["get"]["responses"]["200"]["content"]
        schema = {**told["application/json"]["schema"], "components": document["components"]}
        answer = house.ask("GET", path + "?subject=a" * path.endswith("/search"))
        if answer.status == 409:  # `test_http_operations` has a root, and a contract a pair
            assert "no root" in answer.body["error"] or "no pair" in answer.body["error"]
            continue
        jsonschema.validate(answer.body, schema, jsonschema.Draft202012Validator)


def msgspec_models() -> set[type[msgspec.Struct]]:
    """The models of rows and of all else that the port sends and takes."""
    found, left = set[type[msgspec.Struct]](), [msgspec.Struct]
    while left:
        kinds = left.pop().__subclasses__()
        left += kinds
        found.update(kind for kind in kinds if kind.__module__.startswith("broker_shim.serve"))
    return found


def test_answers_and_console_have_the_words_of_sql() -> None:
    """SQL's `queues` has `acquired`, `queue_messages` has `acquired_by`."""
    fields = {
        (name, field)
        for kind in msgspec_models()
        for name, field in ((kind.__name__, field) for field in kind.__struct_fields__)
    }
    assert {("QueueRow", "acquired"), ("MessageRow", "acquired_by")} <= fields
    assert not [each for each in fields if each[1].startswith("held")]
    console = CHECKOUT / "broker_shim" / "serve" / "http" / "console"
    assert not [
        path.name for path in console.glob("*.js") if re.search(r"\.held\b", path.read_text())
    ]

"""Messages are found by subject or property; who may not read the queue finds none."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from broker_shim.security.rules.permissions import Rule
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader
from tests.support.stores.http_houses import HttpHouse, path_of
from tests.support.stores.stores import DELTA_CONFIG

pytestmark = pytest.mark.slow
ODD = "it's % \\ <b>"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    folder = tmp_path_factory.mktemp("house")
    users = {"ada": ("admin",), "mia": ("monitor",)}
    rules = (
        Rule(frozenset({"ada"}), "#", frozenset({"read", "write", "create", "delete", "admin"})),
        Rule(frozenset({"mia"}), "orders", frozenset({"read"})),
    )
    store = DeltaMessageStore(folder / "root", DELTA_CONFIG)
    it = HttpHouse(folder, users, rules, store=store)
    for name in ("orders", "audit"):
        it.put_queue(name)
    for subject, shop in (("Eggs", "north"), ("eggs and milk", "south"), (ODD, ODD)):
        header = MessageHeader("raw", b"h", subject=subject, properties=((f"a {ODD}", shop),))
        it.put("orders", b"x", header=header)
        it.put("audit", b"x", header=header)
    yield it
    it.stop()


def search(house: HttpHouse, queue: str, user: str = "mia", **asked: object) -> tuple[int, object]:
    reply = house.ask("GET", path_of(queue, f"/search?{urlencode(asked)}"), user)
    if reply.status != 200:
        return reply.status, reply.body["error"]
    return reply.status, (
        [row["subject"] for row in reply.body["items"]],
        reply.body["left_out"],
    )


def test_a_part_of_the_subject_is_found_in_either_case(house: HttpHouse) -> None:
    assert search(house, "orders", subject="EGGS") == (200, (["Eggs", "eggs and milk"], []))
    assert search(house, "orders", subject=ODD.upper()) == (200, ([ODD], []))


def test_a_property_has_the_whole_value(house: HttpHouse) -> None:
    asked = {"property": f"a {ODD}=south"}
    assert search(house, "orders", **asked) == (200, (["eggs and milk"], []))
    assert search(house, "orders", subject="e", property=f"a {ODD}={ODD}") == (200, ([], []))


def test_what_is_beyond_the_limit_is_told(house: HttpHouse) -> None:
    answer = search(house, "orders", subject="egg", limit=1)
    assert answer == (200, (["Eggs"], ["1 of 2 that fit: the limit is 1"]))


def test_who_may_read_one_queue_of_two_finds_nothing_on_the_other(house: HttpHouse) -> None:
    status, error = search(house, "audit", subject="egg")
    assert (status, "has no permission to read" in str(error)) == (403, True)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({}, "give a subject or a property"),
        ({"property": "shop"}, "property is name=value"),
        ({"property": "=north"}, "property is name=value"),
        ({"subject": "x\0"}, "NUL"),
        ({"subject": "x", "limit": 0}, "limit"),
        ({"subject": "x" * 1001}, "subject"),
    ],
)
def test_what_is_no_search_is_refused(
    house: HttpHouse, asked: dict[str, object], error: str
) -> None:
    status, text = search(house, "orders", "ada", **asked)
    assert (status, error in str(text)) == (400, True), text


def test_a_message_tells_the_types_of_its_properties(house: HttpHouse) -> None:
    body = {"queue": "audit", "body": "x", "properties": {"n": 7, "s": "x", "t": True}}
    assert house.ask("POST", "/api/v1/messages", "ada", body).status == 200
    newest = house.ask("GET", path_of("audit", "/messages?offset=3"), "ada").body["items"][0]["id"]
    message = house.ask("GET", path_of("audit", f"/messages/{newest}"), "ada").body
    assert message["property_types"] == {"n": "long", "s": "string", "t": "boolean"}

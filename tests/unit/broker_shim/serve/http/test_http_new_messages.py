"""A message that a form sends: where it goes is tried first, and who may not send is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_shim.security.rules.permissions import Permission, Rule
from tests.support.stores.http_houses import HttpHouse, Reply, path_of

pytestmark = pytest.mark.slow

USERS = {"ada": ("admin",), "olaf": ("operator",), "mia": ("monitor",)}
RULES = (
    Rule(frozenset({"ada"}), "#", frozenset(Permission)),
    Rule(frozenset({"olaf"}), "orders", frozenset({Permission.READ})),
)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[HttpHouse]:
    it = HttpHouse(tmp_path, USERS, RULES)
    for name in ("orders", "audit"):
        it.put_queue(name)
    for name in ("shop", "empty"):
        it.ask("PUT", f"/api/v1/exchanges/{name}", "ada", {"type": "topic"})
    for queue, key in (("orders", "order.*"), ("audit", "#")):
        body = {"exchange": "shop", "queue": queue, "key": key}
        assert it.ask("POST", "/api/v1/bindings", "ada", body).status == 200
    yield it
    it.stop()


def publish(house: HttpHouse, user: str = "ada", **body: Any) -> Reply:
    return house.ask("POST", "/api/v1/messages", user, body)


def test_a_trial_tells_the_queues_and_sends_nothing(house: HttpHouse) -> None:
    reply = publish(house, exchange="shop", key="order.new", dry_run=True)
    assert reply.body == {"queues": ["audit", "orders"], "dry_run": True, "done": 0}
    assert house.ask("GET", path_of("orders"), "ada").body["depth"] == 0


def test_a_message_is_on_each_queue_that_it_reaches(house: HttpHouse) -> None:
    sent = {"body": "eggs", "subject": "s", "properties": {"shop": "north", "count": 3}}
    reply = publish(house, exchange="shop", key="other", **sent)
    assert (reply.body["queues"], reply.body["done"]) == (["audit"], 1)
    (row,) = house.ask("GET", path_of("audit", "/messages"), "ada").body["items"]
    shown = house.ask("GET", path_of("audit", f"/messages/{row['id']}"), "ada").body
    assert (shown["body"], shown["subject"], shown["durable"]) == ('"eggs"', "s", True)
    assert shown["properties"] == {"shop": "north", "count": "3"}


def test_bytes_go_to_a_queue_by_its_name(house: HttpHouse) -> None:
    assert publish(house, queue="orders", body_base64="AP8=").body["done"] == 1
    (row,) = house.ask("GET", path_of("orders", "/messages"), "ada").body["items"]
    shown = house.ask("GET", path_of("orders", f"/messages/{row['id']}"), "ada").body
    assert (shown["body"], shown["body_form"]) == ("AP8=", "base64")


BAD = (
    ({"queue": "orders", "exchange": "shop"}, 400, "say one of them"),
    ({}, 400, "say one of them"),
    ({"queue": "orders", "body": "a", "body_base64": "AA=="}, 400, "say one of them"),
    ({"queue": "orders", "body_base64": "%"}, 400, "is no base64"),
    ({"queue": "orders", "content_type": "é"}, 400, "this is no message"),
    ({"queue": "nowhere"}, 404, "unknown queue 'nowhere'"),
    ({"exchange": "nowhere"}, 404, "there is no exchange 'nowhere'"),
    ({"exchange": "empty", "key": "x"}, 409, "no queue gets this message"),
)


@pytest.mark.parametrize(("body", "status", "error"), BAD)
def test_a_wrong_order_is_refused_in_a_line(
    house: HttpHouse, body: dict[str, Any], status: int, error: str
) -> None:
    reply = publish(house, **body)
    assert (reply.status, error in reply.body["error"]) == (status, True), reply.body


def test_it_takes_the_role_operator_and_the_permission_to_write(house: HttpHouse) -> None:
    for body in ({"queue": "orders"}, {"exchange": "shop", "key": "k"}):
        reply = publish(house, "olaf", **body)
        assert (reply.status, "has no permission to write" in reply.body["error"]) == (403, True)
        assert publish(house, "mia", **body).status == 403


def test_queues_are_sorted_by_a_column(house: HttpHouse) -> None:
    for name, count in (("orders", 1), ("audit", 2)):
        house.put(name, *[b"x"] * count)
    house.put_queue("empty")

    def names(sort: str) -> list[str]:
        reply = house.ask("GET", f"/api/v1/queues?sort={sort}", "mia")
        return [row["name"] for row in reply.body["items"]]

    assert names("-depth") == ["audit", "orders", "empty"]
    assert names("depth") == ["empty", "orders", "audit"]
    assert names("-consumers") == ["audit", "empty", "orders"]  # alike: by name
    reply = house.ask("GET", "/api/v1/queues?sort=colour", "mia")
    assert (reply.status, "sort is one of depth, bytes" in reply.body["error"]) == (400, True)


def test_queues_that_a_policy_fits_are_listed(house: HttpHouse) -> None:
    body = {"match": "audit", "arguments": {"max_depth": 5}}
    assert house.ask("PUT", "/api/v1/policies/p", "ada", body).status == 200
    reply = house.ask("GET", "/api/v1/queues?policy=p", "mia")
    assert [row["name"] for row in reply.body["items"]] == ["audit"]
    reply = house.ask("GET", "/api/v1/queues?policy=q", "mia")
    assert (reply.status, "there is no policy 'q'" in reply.body["error"]) == (404, True)

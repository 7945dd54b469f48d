"""What the log of a root tells over HTTP: to whom, and what the audit log has of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_shim.security.rules.permissions import Permission, Rule
from broker_shim.store.delta import DeltaMessageStore
from tests.support.stores.http_houses import HttpHouse, path_of
from tests.support.stores.stores import DELTA_CONFIG

pytestmark = pytest.mark.slow

USERS = {
    "stranger": ("admin",),
    "owner": ("admin",),
    "operator": ("operator",),
    "mia": ("monitor",),
    "nora": ("shop",),
}
RULES = (
    Rule(frozenset({"stranger"}), "a.#", frozenset({Permission.ADMIN})),
    Rule(frozenset({"owner", "operator", "mia"}), "b.#", frozenset({Permission.ADMIN})),
)
OPERATIONS = "/api/v1/operations"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[HttpHouse]:
    slow = replace(DELTA_CONFIG, commit_interval_ms=10_000)  # who asks does not wait for a commit
    it = HttpHouse(tmp_path, USERS, RULES, store=DeltaMessageStore(tmp_path / "root", slow))
    it.put_queue("b.one")
    it.put("b.one", b"secret", b"more")
    yield it
    it.stop()


def done(house: HttpHouse, method: str, path: str, user: str, said: Any = None) -> Any:
    reply = house.ask(method, path, user, said)
    assert reply.status == 200, reply.body
    return reply.body


@pytest.mark.parametrize("is_deleted", [False, True])
def test_history_of_a_message_needs_the_right_to_its_queue_also_once_that_is_deleted(
    house: HttpHouse, *, is_deleted: bool
) -> None:
    message = done(house, "GET", path_of("b.one", "/messages"), "owner")["items"][0]["id"]
    if is_deleted:
        done(house, "DELETE", path_of("b.one") + "?force=true", "owner")
    where = f"/api/v1/messages/{message}/history"
    refused = house.ask("GET", where, "stranger")
    assert (refused.status, "no permission to read 'b.one'" in refused.body["error"]) == (403, True)
    assert done(house, "GET", where, "mia")["items"][0]["queue"] == "b.one"


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("act", ["purge", "delete"])
def test_an_undo_asks_for_its_rights_before_it_tells_anything(
    house: HttpHouse, act: str, *, dry_run: bool
) -> None:
    if act == "purge":
        done(house, "POST", path_of("b.one", "/purge"), "owner", {})
    else:
        done(house, "DELETE", path_of("b.one") + "?force=true", "owner")
    (operation,) = done(house, "GET", OPERATIONS, "owner")["items"]
    undo = f"{OPERATIONS}/{operation['operation']}/undo"
    refused = house.ask("POST", undo, "stranger", {"dry_run": dry_run})
    assert refused.status == 403
    assert "no permission to write 'b.one'" in refused.body["error"]
    if act == "delete":
        refused = house.ask("POST", undo, "operator", {"dry_run": dry_run})
        assert (refused.status, "needs the role admin" in refused.body["error"]) == (403, True)
    told = done(house, "POST", undo, "owner", {"dry_run": dry_run})
    assert told["restored"] == {"b.one": 2}


def test_each_look_at_content_is_a_line(house: HttpHouse) -> None:
    queue = path_of("b.one")
    page = done(house, "GET", queue + "/messages", "mia")
    message = page["items"][0]["id"]
    done(house, "GET", f"{queue}/messages/{message}", "mia")
    done(house, "GET", f"/api/v1/messages/{message}/history", "mia")
    assert house.ask("POST", queue + "/export", "mia", {}).status == 200
    resubmit = f"/api/v1/messages/{message}/resubmit"
    done(house, "POST", resubmit, "operator", {"dry_run": True})
    done(house, "POST", queue + "/purge", "operator", {})
    done(house, "POST", queue + "/replay", "operator", {"ids": [message]})
    read = [details for event, details in house.audited if event == "content-read"]
    assert [(each["user"], each["act"], each["queue"]) for each in read] == [
        ("mia", "browse", "b.one"),
        ("mia", "show-message", "b.one"),
        ("mia", "show-history", "b.one"),
        ("mia", "export", "b.one"),
        ("operator", "resubmit", "b.one"),
        ("operator", "replay", "b.one"),
    ]
    assert [each.get("message") for each in read[1:3]] == [message] * 2
    assert all(str(each["peer"]).startswith("http 127.0.0.1:") for each in read)


def test_what_is_refused_shows_nothing_and_is_a_line(house: HttpHouse) -> None:
    queue = path_of("b.one")
    for user, method, path in (
        ("mia", "POST", queue + "/purge"),
        ("operator", "PUT", path_of("b.two")),
        ("nora", "GET", queue),
        ("stranger", "GET", queue + "/messages"),
        ("stranger", "POST", queue + "/export"),
    ):
        said = None if method == "GET" else {}
        assert house.ask(method, path, user, said).status == 403
    for headers in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert house.ask("GET", queue + "/messages", "mia", **headers).status == 403
    lines = [details for event, details in house.audited if event == "permission-refused"]
    assert [(each["user"], str(each["act"]), each.get("role")) for each in lines] == [
        ("mia", "POST /api/v1/queues/{queue}/purge", "operator"),
        ("operator", "PUT /api/v1/queues/{queue}", "admin"),
        ("nora", "use the HTTP port", "monitor"),
        ("stranger", "read", None),
        ("stranger", "read", None),
        ("mia", "GET /api/v1/queues/{queue}/messages for another site", None),
        ("mia", "GET /api/v1/queues/{queue}/messages for another site", None),
    ]
    assert not [event for event, _ in house.audited if event == "content-read"]

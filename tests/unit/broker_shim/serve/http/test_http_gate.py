"""The gate of the HTTP port: who gets to which endpoint. Gates allow: what is not listed is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import InvalidRequest
from broker_shim.security.guard import Guard
from broker_shim.security.rules.attempts import MOST_NAMES_OF_ADDRESS
from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.security.rules.permissions import Permission, Rule
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.serve.http.endpoint import Endpoint
from broker_shim.serve.http.http_server import EVERY
from broker_shim.serve.http_option import http_of
from broker_shim.serve.options import parser
from broker_shim.serve.reporting import Reporter
from tests.support.stores.http_houses import HttpHouse, path_of

USERS = {
    "mia": ("monitor",),
    "olaf": ("operator",),
    "ada": ("admin", "shop"),
    "nora": ("shop",),
}
ALLOWED = {
    "mia": {HttpRole.MONITOR},
    "olaf": {HttpRole.MONITOR, HttpRole.OPERATOR},
    "ada": {HttpRole.MONITOR, HttpRole.OPERATOR, HttpRole.ADMIN},
}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    it = HttpHouse(tmp_path_factory.mktemp("users"), USERS)
    yield it
    it.stop()


@pytest.fixture(scope="module")
def open_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    it = HttpHouse(tmp_path_factory.mktemp("nobody"))
    yield it
    it.stop()


def path(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{", "").replace("}", "")


@pytest.mark.parametrize("user", [*USERS, None, "mia:wrong", "nobody"])
def test_every_endpoint_asks_for_its_role(house: HttpHouse, user: str | None) -> None:
    """All attempts there are: each endpoint with each user; and what a gate lets in is listed."""
    let_in = set()
    for endpoint in EVERY:
        status = house.ask(endpoint.method, path(endpoint), user).status
        assert status != 500
        if status not in {401, 403}:
            let_in.add((endpoint.method, endpoint.path))
        elif user in USERS:
            assert status == 403
        else:
            assert status == 401
    roles = ALLOWED.get(user or "", set())
    allowed = {(e.method, e.path) for e in EVERY if e.role is None or e.role in roles}
    assert let_in == allowed


@pytest.mark.parametrize("user", ["ada", None])
def test_a_method_that_is_not_listed_is_refused(house: HttpHouse, user: str | None) -> None:
    listed = {(each.method, each.path) for each in EVERY}
    for endpoint in EVERY:
        for method in METHODS:
            if (method, endpoint.path) not in listed:
                assert house.ask(method, path(endpoint), user).status == 405


def test_what_a_path_allows_is_all_that_is_listed_of_it(house: HttpHouse) -> None:
    for endpoint in EVERY:
        listed = {each.method for each in EVERY if each.path == endpoint.path}
        reply = house.ask("OPTIONS", path(endpoint))
        assert reply.status == 405
        allowed = {each.strip() for each in reply.headers["allow"].split(",")}
        assert allowed == listed | ({"HEAD"} if "GET" in listed else set())


@pytest.mark.parametrize(
    "where",
    [
        "/nothing",
        "/api/v1/../../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/api/v1/queues/a/",
        "/api/v2/x",
    ],
)
def test_a_path_that_is_not_listed_leads_nowhere(house: HttpHouse, where: str) -> None:
    reply = house.ask("GET", where, "ada")
    assert reply.status == 404
    assert "openapi.json" in reply.body["error"]


def test_a_user_without_a_role_is_told_how_to_get_one(house: HttpHouse) -> None:
    reply = house.ask("GET", "/api/v1/queues", "nora")
    assert "sparkstore passwd FILE NAME --roles" in reply.body["error"]
    reply = house.ask("POST", path_of("orders", "/purge"), "mia", {})
    assert "needs the role operator, and mia is monitor" in reply.body["error"]


@pytest.mark.parametrize("login", ["Basic", "Basic %%%", "Basic YQ==", "Bearer abc", "Basic /w=="])
def test_a_login_that_is_none_is_refused(house: HttpHouse, login: str) -> None:
    reply = house.ask("GET", "/api/v1/self", Authorization=login)
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Basic ")


def test_who_asks_is_told_who_it_is(house: HttpHouse) -> None:
    told = house.ask("GET", "/api/v1/self", "ada").body
    assert (told["user"], told["role"]) == ("ada", "admin")


def test_failed_logins_are_written_down_and_have_to_wait(tmp_path: Path) -> None:
    """But for who had the right password before, and for all other users of the address."""
    house = HttpHouse(tmp_path, USERS, delay_s=8.0)
    try:
        assert house.ask("GET", "/api/v1/self", "ada").status == 200
        assert house.ask("GET", "/api/v1/self", "ada:wrong").status == 401
        assert house.ask("GET", "/api/v1/self", "olaf").status == 200
        assert house.ask("GET", "/api/v1/self", "mia:wrong").status == 401
        reply = house.ask("GET", "/api/v1/self", "mia")
        assert (reply.status, reply.headers["retry-after"]) == (429, "8")
        assert house.ask("GET", "/api/v1/self", "ada:wrong").status == 429
        assert house.ask("GET", "/api/v1/self", "ada").status == 200
    finally:
        house.stop()
    events = [event for event, _ in house.audited]
    assert events == ["login", "login-failed", "login", "login-failed"]


def test_an_address_that_tries_many_names_is_looked_at_no_more(tmp_path: Path) -> None:
    """Each look costs the loop time. Tokens cost none, but wrong ones wait together."""
    house = HttpHouse(tmp_path, USERS, delay_s=8.0)
    try:
        token = {"Authorization": "Bearer sst_wrong"}
        for status in (401, 429):
            assert house.ask("GET", "/api/v1/self", **token).status == status
        tried = [f"user{number}:wrong" for number in range(MOST_NAMES_OF_ADDRESS)]
        found = [house.ask("GET", "/api/v1/self", each).status for each in tried]
        assert found == [401] * (MOST_NAMES_OF_ADDRESS - 1) + [429]
        assert house.ask("GET", "/api/v1/self", "olaf").status == 429
    finally:
        house.stop()


def test_where_nobody_logs_in_everything_is_open_on_this_machine(open_house: HttpHouse) -> None:
    assert open_house.ask("GET", "/api/v1/self").body["role"] == "admin"
    for host in ("localhost:1", "[::1]:1", "127.0.0.1"):
        assert open_house.ask("GET", "/api/v1/self", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""),
        *("localhost:evil", "localhost:80:evil", "localhost:", "127.0.0.1:x", "[::1]evil", "[::1"),
        *("[127.0.0.1:80", "localhost:123456", "evil@localhost", "::1"),
    ],
)
def test_a_name_that_leads_here_is_not_this_machine(open_house: HttpHouse, host: str) -> None:
    """A site has its name lead to 127.0.0.1, and its page asks there (DNS rebinding)."""
    assert open_house.ask("GET", "/api/v1/self", Host=host).status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_another_site_changes_nothing(open_house: HttpHouse, headers: dict[str, str]) -> None:
    reply = open_house.ask("PUT", path_of("theirs"), None, {}, **headers)
    assert reply.status == 403
    assert open_house.ask("GET", path_of("theirs")).status == 404


@pytest.mark.parametrize("endpoint", EVERY, ids=lambda each: f"{each.method} {each.path}")
def test_another_site_is_answered_nothing_but_probes(
    open_house: HttpHouse, endpoint: Endpoint
) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        reply = open_house.ask(endpoint.method, path(endpoint), **headers)
        is_probe = endpoint.role is None  # of a house that is half of no pair: 503
        assert reply.status in ({200, 503} if is_probe else {403})


def test_a_link_on_another_site_leads_to_the_console_alone(open_house: HttpHouse) -> None:
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert open_house.ask("GET", "/", **link).status == 200
    assert open_house.ask("GET", "/api/v1/queues", **link).status == 403


def test_the_console_of_this_port_changes_something(open_house: HttpHouse) -> None:
    here = {"Origin": f"http://127.0.0.1:{open_house.port}", "Sec_Fetch_Site": "same-origin"}
    assert open_house.ask("PUT", path_of("ours"), None, {}, **here).status == 200


def test_answers_let_no_page_use_them_and_set_no_cookie(open_house: HttpHouse) -> None:
    for where in ("/api/v1/queues", "/nothing", "/healthz"):
        headers = open_house.ask("GET", where).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert not {"set-cookie", "access-control-allow-origin", "server"} & {*headers}


def test_permissions_hold_for_orders_and_for_looking(tmp_path: Path) -> None:
    rules = (Rule(frozenset({"olaf"}), "mine.#", frozenset({Permission.READ, Permission.DELETE})),)
    house = HttpHouse(tmp_path, {**USERS, "root": ("admin",)}, rules)
    try:
        for queue in ("mine.a", "theirs"):
            assert house.ask("PUT", path_of(queue), "root", {}).status == 403
            house.put_queue(queue)
        assert house.ask("POST", path_of("mine.a", "/purge"), "olaf", {}).status == 200
        assert house.ask("GET", path_of("mine.a", "/messages"), "olaf").status == 200
        house.put("theirs", b"secret")
        message = house.ask("GET", "/api/v1/queues/theirs/messages", "root").body
        assert "items" not in message
        resubmit = house.ask("POST", "/api/v1/messages/1/resubmit", "olaf", {"dry_run": True})
        assert (resubmit.status, "secret" in str(resubmit.body)) == (403, False)
        for method, more in (
            ("POST", "/purge"),
            ("GET", "/messages"),
            ("GET", "/messages/1"),
            ("POST", "/export"),
            ("POST", "/replay"),
        ):
            said = {} if method == "POST" else None
            reply = house.ask(method, path_of("theirs", more), "olaf", said)
            assert reply.status == 403
            assert "[security] permissions" in reply.body["error"]
        move = {"to": "theirs"}
        assert house.ask("POST", path_of("mine.a", "/move"), "olaf", move).status == 403
        forget = house.ask("POST", "/api/v1/transactions/1:ab:cd/forget", "root")
        assert (forget.status, "admin '#'" in forget.body["error"]) == (403, True)
    finally:
        house.stop()
    refused = [details for event, details in house.audited if event == "permission-refused"]
    assert len(refused) == 11


def test_nothing_is_asked_of_a_broker_that_stops(tmp_path: Path) -> None:
    house = HttpHouse(tmp_path)
    house.server.stopping()
    assert house.ask("GET", "/api/v1/queues").status == 503
    assert house.ask("GET", "/healthz").status == 200
    house.stop()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--store", "unix:/nowhere", "--member", "b"], "leave it out with --no-amqp and --store"),
        (["--memory", "--insecure", "--http", "0.0.0.0:0"], "give --users FILE"),
        (["--memory", "--http", "0.0.0.0:0"], "--http 0.0.0.0:0 is not a loopback address"),
        (["--memory", "--http", "8161"], "write it as HOST:PORT"),
    ],
)
def test_a_port_that_cannot_be_is_refused_with_what_to_do(words: list[str], why: str) -> None:
    options = parser().parse_args(["--http", "127.0.0.1:0", *words])
    with pytest.raises(InvalidRequest, match=re.escape(why)):
        http_of(options, Guard(SecuritySettings()), Reporter(None), BrokerSettings())

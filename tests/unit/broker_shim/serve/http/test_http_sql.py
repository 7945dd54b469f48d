"""SQL over HTTP: who may ask, what comes back, and that nobody waits for a query."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from broker_shim.security.rules.permissions import Permission, Rule
from broker_shim.serve.http import limited_answers
from broker_shim.serve.http.resources import sql as sql_requests
from broker_shim.store.delta import DeltaMessageStore
from tests.support.objects.bucket_home import open_in_bucket
from tests.support.roots.logs import until
from tests.support.sql_attempts import FILES, FUNCTIONS, STATEMENTS
from tests.support.stores.http_houses import HttpHouse, Reply
from tests.support.stores.stores import DELTA_CONFIG

pytestmark = pytest.mark.slow

SQL = "/api/v1/sql"
ENDLESS = "SELECT count(*) FROM range(1000000000000)"
USERS = {"mia": ("monitor",), "olaf": ("operator",), "ada": ("admin",)}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    folder = tmp_path_factory.mktemp("house")
    slow = replace(DELTA_CONFIG, commit_interval_ms=10_000)  # who asks does not wait for a commit
    it = HttpHouse(folder, store=DeltaMessageStore(folder / "root", slow))
    it.put_queue("orders")
    it.put("orders", b"eggs", b"bread", b"milk")
    yield it
    it.stop()


def ask(house: HttpHouse, statement: str, **more: Any) -> Reply:
    return house.ask("POST", SQL, None, {"statement": statement, **more})


def test_an_answer_is_of_now_and_as_openapi_says(house: HttpHouse) -> None:
    house.audited.clear()
    statement = "SELECT queue, decode(body) AS body FROM queue_messages ORDER BY message_id"
    reply = ask(house, statement, limit=2)
    assert reply.body["rows"] == [
        {"queue": "orders", "body": "eggs"},
        {"queue": "orders", "body": "bread"},
    ]
    assert reply.body["is_cut"] is True
    document = house.ask("GET", "/api/v1/openapi.json").body
    told = document["paths"][SQL]["post"]["responses"]["200"]["content"]["application/json"]
    schema = {**told["schema"], "components": document["components"]}
    jsonschema.validate(reply.body, schema, jsonschema.Draft202012Validator)
    assert reply.headers["content-type"] == "application/json"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    ((event, details),) = house.audited
    assert (event, details["statement"], details["user"]) == ("query", statement, None)
    assert details["error"] is None


def test_nothing_is_imported_from_where_the_broker_runs(
    house: HttpHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert ask(house, "SELECT 1 AS one").body["rows"] == [{"one": 1}]


def test_where_the_current_folder_was_deleted_an_answer_comes_all_the_same(
    house: HttpHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert ask(house, "SELECT count(*) AS n FROM queues").body["rows"] == [{"n": 1}]


def test_a_process_that_fails_has_its_last_words_in_the_log(
    house: HttpHouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where standard error is a file: the process itself may write none."""
    program = (
        "import os, sys; from sparkstore.cli.queries import limited_process as it;"
        " it.limit_this_process(60); sys.stderr.write('x' * 9000 + '\\nlast words\\n');"
        " sys.stderr.flush(); os.abort()"
    )
    monkeypatch.setattr(limited_answers, "_COMMAND", (sys.executable, "-c", program))
    reply = ask(house, "SELECT 1")
    assert reply.status == 500
    assert "(exit code -6): see the broker's log" in reply.body["error"]
    (line,) = [each.getMessage() for each in caplog.records if "query ended" in each.getMessage()]
    assert "code -6" in line
    assert line.endswith("x last words")
    assert len(line) < 2_100


def test_a_root_in_a_bucket_is_asked_by_its_copy_here(tmp_path: Path) -> None:
    it = HttpHouse(tmp_path, store=open_in_bucket(tmp_path, DELTA_CONFIG))
    try:
        it.put_queue("orders")
        it.put("orders", b"eggs")
        reply = ask(it, "SELECT queue, depth FROM queues")
    finally:
        it.stop()
    assert reply.body["rows"] == [{"queue": "orders", "depth": 1}]


def test_the_views_are_asked_as_of_a_position(house: HttpHouse) -> None:
    reply = ask(house, "SELECT count(*) AS count FROM queue_messages", as_of="position=1")
    assert reply.body["rows"] == [{"count": 0}]


@pytest.mark.parametrize("statement", [STATEMENTS[0], FILES[0], FUNCTIONS[0], "SELEKT", "FROM x"])
def test_what_may_not_pass_is_refused_in_one_line(house: HttpHouse, statement: str) -> None:
    """All attempts go through what the process does in test_limited_process.py."""
    said = statement if statement[0].isupper() else f"SELECT * FROM {statement}"
    house.audited.clear()
    reply = ask(house, said.format(secret=__file__))
    assert reply.status == 400
    assert [details["error"] for _, details in house.audited] == [reply.body["error"]]
    assert reply.body["error"].count("\n") == 0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"statement": ""}, "a length of at least 1"),
        ({"statement": "x" * 100_001}, "a length of at most 100000"),
        ({"statement": "SELECT 1", "limit": 0}, "limit"),
        ({"statement": "SELECT 1", "limit": 10_001}, "limit"),
        ({"statment": "SELECT 1"}, "did you mean 'statement'?"),
        ({"statement": ["SELECT 1"]}, "statement"),
        ({"statement": "SELECT 1", "as_of": "never"}, "never"),
    ],
)
def test_a_question_that_is_none_is_refused(
    house: HttpHouse, said: dict[str, Any], why: str
) -> None:
    reply = house.ask("POST", SQL, None, said)
    assert reply.status == 400
    assert why in reply.body["error"]


def queries() -> list[int]:
    """The processes of queries that run now, of this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"limited_process" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def test_nobody_waits_for_a_query_and_there_are_few_at_once(
    house: HttpHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_requests, "MOST_S", 600.0)
    monkeypatch.setattr(sql_requests, "MOST_AT_ONCE", 1)
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(ask, house, ENDLESS)
        until(queries)
        house.audited.clear()
        assert ask(house, "SELECT 1").status == 429
        ((event, details),) = house.audited
        assert (event, details["error"][:13]) == ("query", "1 queries run")
        assert house.depth("orders") == 3
        assert house.ask("GET", "/healthz").status == 200
        (process,) = queries()
        os.kill(process, signal.SIGKILL)
        reply = long.result()
    assert reply.status == 500
    assert "the engine failed on this query (exit code -9)" in reply.body["error"]
    assert ask(house, "SELECT 1 AS one").body["rows"] == [{"one": 1}]


def test_a_query_ends_when_whoever_asked_hangs_up(
    house: HttpHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_requests, "MOST_S", 600.0)
    monkeypatch.setattr(sql_requests, "MOST_AT_ONCE", 1)
    connection = http.client.HTTPConnection("127.0.0.1", house.port)
    with closing(connection):
        said = json.dumps({"statement": ENDLESS})
        connection.request("POST", SQL, said, {"Content-Type": "application/json"})
        until(queries)
    until(lambda: ask(house, "SELECT 1").status == 200)
    assert queries() == []


def test_a_query_ends_in_time(house: HttpHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_requests, "MOST_S", 0.5)
    reply = ask(house, ENDLESS)
    assert reply.status == 400
    assert "took longer than 0.5 s" in reply.body["error"]


def test_where_there_are_permissions_it_takes_admin_on_every_address(tmp_path: Path) -> None:
    some = frozenset({Permission.READ, Permission.WRITE, Permission.DELETE})
    every = frozenset({Permission.ADMIN})
    rules = (
        Rule(frozenset({"olaf"}), "#", some),
        Rule(frozenset({"olaf"}), "orders.#", every),
        Rule(frozenset({"mia", "ada"}), "#", every),
    )
    house = HttpHouse(tmp_path, USERS, rules)
    try:
        replies = {user: house.ask("POST", SQL, user, {"statement": "SELECT 1"}) for user in USERS}
    finally:
        house.stop()
    assert "needs the role operator" in replies["mia"].body["error"]
    assert (replies["olaf"].status, replies["ada"].status) == (403, 409)
    assert "'olaf' has no permission to admin '#'" in replies["olaf"].body["error"]
    assert "no root" in replies["ada"].body["error"]
    refused = [details for event, details in house.audited if event == "permission-refused"]
    found = [(each["user"], each.get("address") or each["role"]) for each in refused]
    assert found == [("mia", "operator"), ("olaf", "#")]

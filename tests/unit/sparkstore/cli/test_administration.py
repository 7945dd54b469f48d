"""The commands of an administrator: what they print, how they end, and who is told."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from broker_shim.amqp_1_0.composites import Close, Open
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import AMQP_HEADER, FrameDecoder, encoded_frame
from sparkstore.cli.command_line import main
from tests.support.stores.controls import Place
from tests.support.stores.stores import TIMEOUT_S

COMMANDS = [
    *(("queue", each) for each in ("create", "alter", "delete", "purge")),
    *(("exchange", each) for each in ("create", "delete")),
    *(("binding", each) for each in ("add", "remove")),
    *(("policy", each) for each in ("list", "set", "delete")),
    ("connections",),
    ("transactions",),
]


@pytest.fixture
def captured(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    return capsys


@pytest.fixture
def root(tmp_path: Path) -> str:
    """One that nobody serves, with a message on q."""
    place = Place(tmp_path / "root", is_served=False)
    place.create("q")
    place.put("q")
    place.close()
    return str(place.path)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Place]:
    """One that a broker serves."""
    place = Place(tmp_path / "root", is_served=True)
    place.create("q")
    place.put("q")
    assert place.control
    yield place
    place.close()


def told(captured: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command prints with --json, if it ends well."""
    assert main([*words, "--json"]) == 0, captured.readouterr().err
    return json.loads(captured.readouterr().out)


def refused(captured: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """The one line of a command that ends with this code, and prints nothing else."""
    assert main([*words]) == code
    said = captured.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    return line


def depths(captured: pytest.CaptureFixture[str], root: str) -> dict[str, int]:
    assert main(["queues", "--json", root]) == 0
    rows = map(json.loads, captured.readouterr().out.splitlines())
    return {row["queue"]: row["depth"] for row in rows}


def test_a_queue_is_made_altered_purged_and_deleted_from_the_command_line(
    root: str, captured: pytest.CaptureFixture[str]
) -> None:
    made = told(
        captured,
        *("queue", "create", root, "calls", "--set", "max_delivery_count=5"),
        *("--set", "dead_letter_queue=7", "--set", "exclusive=true"),
    )
    arguments = {"max_delivery_count": 5, "dead_letter_queue": "7", "exclusive": True}
    assert made["arguments"] == arguments
    altered = told(
        captured,
        *("queue", "alter", root, "calls", "--unset", "exclusive", "--set", "message_ttl_ms=9"),
    )
    arguments = {"max_delivery_count": 5, "dead_letter_queue": "7", "message_ttl_ms": 9}
    assert altered["arguments"] == arguments
    purged = told(captured, "queue", "purge", root, "q")
    assert len(purged.pop("operation")) == 8
    assert purged == {
        "act": "purge-queue",
        "queue": "q",
        "done": 1,
        "left": 0,
        "gone": 0,
    }
    assert told(captured, "queue", "delete", root, "calls")["changed"]
    assert depths(captured, root) == {"q": 0}


def test_a_policy_is_tried_set_shown_and_deleted(
    root: str, captured: pytest.CaptureFixture[str]
) -> None:
    asked = ("policy", "set", root, "p", "--match", "#", "--set", "max_depth=5")
    dry = told(captured, *asked, "--dry-run")
    assert (dry["dry_run"], dry["altered"], dry["changed"]) == (True, 1, True)
    assert told(captured, *asked, "--priority", "3")["changed"]
    row = {"policy": "p", "match": "#", "priority": 3, "arguments": {"max_depth": 5}, "queues": 1}
    assert told(captured, "policy", "list", root) == row
    shown = told(captured, "queue", "show", root, "q")
    assert shown["effective"] == {"max_depth": {"value": 5, "from": "policy p"}}
    assert main(["queue", "show", root, "q"]) == 0
    assert "5 (policy p)" in captured.readouterr().out
    assert told(captured, "policy", "delete", root, "p")["altered"] == 1


def test_a_person_is_shown_a_line_for_each_field(
    root: str, captured: pytest.CaptureFixture[str]
) -> None:
    assert main(["exchange", "create", root, "news", "--type", "topic"]) == 0
    assert captured.readouterr().out.split() == [
        *("act", "create-exchange", "exchange", "news", "type", "topic", "changed", "true"),
    ]
    name = "q" * 80
    assert main(["queue", "create", root, name]) == 0
    assert name in captured.readouterr().out, "nothing that was done is cut"
    bound = told(captured, "binding", "add", root, "news", "q", "--key", "a.#")
    assert (bound["key"], bound["changed"]) == ("a.#", True)
    assert told(captured, "binding", "remove", root, "news", "q", "--key", "a.#")["changed"]
    assert told(captured, "exchange", "delete", root, "news")["bindings_removed"] == 0


WRONG = [
    (
        "queue delete ROOT q",
        "1 messages: --force deletes it (over HTTP ?force=true)",
    ),
    ("queue delete ROOT absent", "unknown queue 'absent'"),
    ("queue alter ROOT q --set ttl", "say NAME=VALUE"),
    ("queue alter ROOT q --set a=1 --set a=2", "is there twice"),
    ("queue alter ROOT q --set exclusive=1 --unset exclusive", "say one of them"),
    ("queue alter ROOT q --set message_ttl_ms=NaN", "say an integer"),
    ("queue alter ROOT q --set exclusive=yes", "say true or false"),
    ("queue create ROOT q2 --set mesage_ttl_ms=1", "did you mean 'message_ttl_ms'"),
    ("queue create ROOT q2 --durability none", "none runs: start one"),
    ("queue purge ROOT/absent q", "no root"),
]


def test_what_is_wrong_is_one_line_and_exit_code_2(
    root: str, captured: pytest.CaptureFixture[str]
) -> None:
    for words, why in WRONG:
        assert why in refused(captured, *words.replace("ROOT", root).split())
    assert depths(captured, root) == {"q": 1}


def test_an_unknown_word_after_queue_is_a_wrong_command_line(
    captured: pytest.CaptureFixture[str],
) -> None:
    for words in (["queue"], ["queue", "creat", "root", "q"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2
        assert "create" in captured.readouterr().err or words == ["queue"]


def test_every_command_of_an_administrator_has_an_example_in_its_help(
    captured: pytest.CaptureFixture[str],
) -> None:
    for words in COMMANDS:
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        said = captured.readouterr().out.split("example", 1)[1]
        assert f"sparkstore {' '.join(words)} ROOT" in said


def test_a_running_broker_does_it_and_writes_down_who_asked(
    served: Place, captured: pytest.CaptureFixture[str]
) -> None:
    root = str(served.path)
    assert told(captured, "queue", "purge", root, "q")["done"] == 1
    assert told(captured, "queue", "alter", root, "q", "--set", "exclusive=true")["changed"]
    refused(captured, "queue", "delete", root, "absent")
    assert served.served is not None
    lines = [details for event, details in served.served.audited if event == "administration"]
    assert all(line["peer"].startswith("local uid=") for line in lines)
    assert [(line["act"], line.get("queue"), line["error"] is None) for line in lines] == [
        ("purge-queue", "q", True),
        ("alter-queue", "q", True),
        ("delete-queue", "absent", False),
    ]
    assert lines[0]["done"] == 1
    assert lines[1]["arguments"] == '{"exclusive": true}'


@pytest.mark.parametrize("is_named", [False, True])
def test_where_no_broker_runs_the_command_writes_down_what_it_did(
    root: str, tmp_path: Path, captured: pytest.CaptureFixture[str], *, is_named: bool
) -> None:
    named, default = tmp_path / "named.log", Path(root) / "audit.log"
    settings = tmp_path / "sparkstore.toml"
    settings.write_text(f'[security]\naudit_file = "{named}"\n')
    config = ["--config", str(settings)] if is_named else []
    assert told(captured, "queue", "alter", root, "q", "--set", "exclusive=true", *config)
    refused(captured, "queue", "delete", root, "absent", *config)
    assert told(captured, "queue", "purge", root, "q", *config)["done"] == 1
    assert (named.exists(), default.exists()) == (is_named, not is_named)
    written = named if is_named else default
    assert written.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    who = f"local uid={os.getuid()} pid={os.getpid()}"
    assert [(line["event"], line["peer"]) for line in lines] == [("administration", who)] * 3
    assert [(line["act"], line["queue"], "error" in line) for line in lines] == [
        ("alter-queue", "q", False),
        ("delete-queue", "absent", True),
        ("purge-queue", "q", False),
    ]
    assert (lines[0]["arguments"], lines[2]["done"]) == ('{"exclusive": true}', 1)


def test_a_running_broker_is_not_written_about_a_second_time(
    served: Place, captured: pytest.CaptureFixture[str]
) -> None:
    assert told(captured, "queue", "create", str(served.path), "new")["changed"]
    assert not (served.path / "audit.log").exists()


class Peer:
    """A client that opens a connection and no more."""

    def __init__(self, port: int, container: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._decoder = FrameDecoder(1 << 16)
        self._socket.sendall(AMQP_HEADER.encoded() + encoded_frame(Open(container), 0))
        self._has_header = False
        self.take(Open)

    def take(self, kind: type) -> Any:
        """The next frame of a kind."""
        while True:
            frame = self._decoder.next_frame() if self._has_header else None
            if frame is None:
                received = self._socket.recv(1 << 16)
                assert received, "the broker hung up"
                self._decoder.feed(received)
                self._has_header = self._has_header or self._decoder.next_header() is not None
            elif frame.start != frame.end:
                told, _ = read_performative(frame.encoded, frame.start, frame.end)
                if isinstance(told, kind):
                    return told

    def close(self) -> None:
        self._socket.close()


def test_connections_are_listed_and_one_is_ended(
    served: Place, captured: pytest.CaptureFixture[str]
) -> None:
    root = str(served.path)
    assert main(["connections", root, "--json"]) == 0
    assert captured.readouterr().out == ""
    assert served.served is not None
    first, second = (Peer(served.served.port, name) for name in ("one\x1b[2J", "two"))
    assert main(["connections", root, "--json"]) == 0
    rows = [*map(json.loads, captured.readouterr().out.splitlines())]
    assert [row["container"] for row in rows] == ["one\x1b[2J", "two"]
    assert all(row["open"] and row["peer"].startswith("127.0.0.1:") for row in rows)
    assert {(row["protocol"], row["sessions"]) for row in rows} == {("AMQP 1.0", 0)}
    assert all(min(row["received_bytes"], row["sent_bytes"]) > 0 for row in rows)
    assert main(["connections", root]) == 0
    assert "\x1b" not in captured.readouterr().out
    ended = told(captured, "connections", root, "--close", str(rows[0]["connection"]))
    assert ended["container"] == "one\x1b[2J"
    assert ended["connected_at"] == rows[0]["connected_at"]
    error = first.take(Close).error
    assert (error.condition, "administrator" in error.description) == (
        "amqp:connection:forced",
        True,
    )
    assert "there is no connection 0" in refused(captured, "connections", root, "--close", "0")
    url, number = served.served.serve_http(), str(rows[1]["connection"])
    with urlopen(f"{url}/api/v1/connections?sort=-connection") as reply:
        row, *_ = json.load(reply)["items"]  # the one that is ended may still be there
    assert (row.keys(), row["connection"]) == (rows[1].keys(), rows[1]["connection"])
    with pytest.raises(HTTPError, match="400"):
        urlopen(f"{url}/api/v1/connections?sort=peer")
    by_url = told(captured, "connections", "--url", url, "--close", number)
    assert by_url["connected_at"][:23] == rows[1]["connected_at"][:23], "to the millisecond"
    assert by_url.keys() == ended.keys()
    assert second.take(Close).error is not None
    first.close()
    second.close()


def test_nobody_is_connected_where_no_broker_runs(
    root: str, captured: pytest.CaptureFixture[str]
) -> None:
    assert "no broker serves" in refused(captured, "connections", root, code=75)

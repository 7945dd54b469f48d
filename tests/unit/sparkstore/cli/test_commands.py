"""What the commands print, and how they end. `sql` and `compact` are tested with Spark."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from shutil import rmtree

import pytest

import sparkstore
from sparkstore.cli import command_line
from sparkstore.cli.command_line import main
from sparkstore.cli.output import one_line, printable, table
from sparkstore.core.records import (
    MessageHeader,
    Record,
    ids_reserved,
    message_acquired,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.queue_columns import Road, columns_of
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.checkout import CHECKOUT
from tests.support.histories.strategies import Row
from tests.support.roots.roots import append_journal

NASTY = "a\x1b[31mred\n\u202e"
AT = 1_750_000_000_000_000
HEADER = MessageHeader(
    subject="eggs", header_bytes=2, body_bytes=3, properties=(("color", "\x07brown"),)
)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Two queues: `orders` with three messages, one of them acquired, and one with a nasty name."""
    records: list[Record] = [
        opened(AT, "writer"),
        queue_created(AT, "orders", "{}"),
        queue_created(AT, NASTY, "{}"),
        ids_reserved(AT, 11),
        message_enqueued(AT, "orders", 1, HEADER, b"one"),
        message_enqueued(AT, "orders", 2, HEADER, b"t\nw"),
        message_enqueued(AT, "orders", 3, HEADER, b"\xff\x00\x01"),
        message_acquired(AT, "orders", 2, "consumer-1"),
    ]
    rows = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    root = open_or_create_root(tmp_path / "root")
    append_journal(root, rows, segment=1, number=1)
    return root


@pytest.fixture
def captured(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    return capsys


def lines_of(captured: pytest.CaptureFixture[str]) -> list[str]:
    return captured.readouterr().out.splitlines()


def objects_of(captured: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines_of(captured)]


def test_each_command_of_another_package_can_be_called_and_is_in_the_help() -> None:
    """By `pyproject.toml`: what is installed may be older."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    points = settings["project"]["entry-points"]["sparkstore.commands"]
    assert set(points) == set(command_line._ABOVE)
    for target in points.values():
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))


def test_queues_shows_depth_bytes_and_what_is_acquired(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    assert main(["queues", "--json", str(root.path)]) == 0
    by_name = {row.pop("queue"): row for row in objects_of(captured)}
    age = by_name["orders"].pop("oldest_age_s")
    assert isinstance(age, float)
    assert age > 0
    rest = dict.fromkeys(column.name for column in columns_of(Road.COMMAND)[1:])
    rest |= {"delayed": 0, "not_durable": 0, "durability": "unsettled-state"}
    del rest["oldest_age_s"]
    assert by_name[NASTY]["delayed"] is not False, "a count, also where nothing was ever delayed"
    assert by_name["orders"] == {**rest, "depth": 3, "bytes": 15, "acquired": 1}
    nothing = {"depth": 0, "bytes": 0, "acquired": 0, "oldest_age_s": None}
    assert by_name[NASTY] == {**rest, **nothing}


def test_a_table_has_a_heading_and_a_line_for_each_queue(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    assert main(["queues", str(root.path)]) == 0
    heading, ruler, _nasty, orders = lines_of(captured)
    columns = "queue depth bytes acquired delayed oldest_age_s not_durable effective"
    assert heading.split() == columns.split()
    assert set(ruler) == {"-", " "}
    assert orders.split()[:4] == ["orders", "3", "15", "1"]


def test_queues_shows_what_a_queue_asks_for(
    tmp_path: Path, captured: pytest.CaptureFixture[str]
) -> None:
    arguments = {"exclusive": True, "last_value_key": "k"}
    detail = json.dumps({"durability": 2, "arguments": arguments})
    root = open_or_create_root(tmp_path / "root")
    records = [opened(AT, "writer"), queue_created(AT, "q", detail)]
    rows = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    append_journal(root, rows, segment=1, number=1)
    assert main(["queues", "--json", str(tmp_path / "root")]) == 0
    (row,) = objects_of(captured)
    assert row["arguments"] == arguments
    assert main(["queues", str(tmp_path / "root")]) == 0
    assert '{"exclusive": true, "last_value_key": "k"}' in lines_of(captured)[-1]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_name_cannot_drive_the_terminal(
    root: Root, captured: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert main(["queues", *options, str(root.path)]) == 0
    assert all(line.isprintable() for line in lines_of(captured))


def test_a_root_without_queues_still_has_a_heading(
    tmp_path: Path, captured: pytest.CaptureFixture[str]
) -> None:
    open_or_create_root(tmp_path / "empty")
    assert main(["queues", str(tmp_path / "empty")]) == 0
    assert len(lines_of(captured)) == 2


def test_browse_shows_messages_in_order_and_who_holds_them(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    assert main(["browse", "--json", str(root.path), "orders"]) == 0
    rows = objects_of(captured)
    assert [row["message_id"] for row in rows] == [1, 2, 3]
    assert [row["acquired_by"] for row in rows] == [None, "consumer-1", None]


@pytest.mark.parametrize(("limit", "count"), [("2", 2), ("0", 3), ("20", 3)])
def test_browse_stops_at_its_limit_and_0_is_none(
    root: Root, captured: pytest.CaptureFixture[str], limit: str, count: int
) -> None:
    assert main(["browse", "--json", "--limit", limit, str(root.path), "orders"]) == 0
    assert len(objects_of(captured)) == count


def test_browse_tells_people_of_what_it_does_not_show(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    assert main(["browse", "--limit", "2", str(root.path), "orders"]) == 0
    assert "first 2 of 3 messages" in captured.readouterr().err
    assert main(["browse", "--limit", "3", str(root.path), "orders"]) == 0
    assert captured.readouterr().err == ""


def test_machines_get_all_messages_unless_they_say_otherwise(
    root: Root, captured: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkstore.cli.messages.browse._BROWSED", 1)
    assert main(["browse", "--json", str(root.path), "orders"]) == 0
    assert len(objects_of(captured)) == 3
    assert main(["browse", str(root.path), "orders"]) == 0
    assert len(lines_of(captured)) == 3  # heading, ruler, one message


def test_browse_gives_machines_a_body_as_text_or_as_base64(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    assert main(["browse", "--json", "--body", str(root.path), "orders"]) == 0
    first, second, third = objects_of(captured)
    assert first["body"] == "one"
    assert first["properties"] == {"color": "\x07brown"}
    assert second["body"] == "t\nw"
    assert third["body_base64"] == "/wAB"


def test_browse_escapes_a_body_for_people(root: Root, captured: pytest.CaptureFixture[str]) -> None:
    assert main(["browse", "--body", str(root.path), "orders"]) == 0
    lines = lines_of(captured)
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if "body:" in line] == [
        "  body: one",
        r"  body: t\nw",
        "  body: 0xff0001",
    ]
    assert r"  color: \x07brown" in lines


def test_browsing_an_unknown_queue_is_a_wrong_request(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    assert main(["browse", str(root.path), "o'rders\n"]) == 2
    said = captured.readouterr()
    assert said.out == ""
    assert said.err.startswith("sparkstore: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("command", [["queues"], ["verify"], ["sql", "SELECT 1"], ["compact"]])
def test_a_folder_that_is_no_root_is_a_wrong_request(
    tmp_path: Path, captured: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, *rest = command
    assert main([name, str(tmp_path), *rest]) == 2
    assert "not a sparkstore root" in captured.readouterr().err


def test_reading_changes_nothing(root: Root, captured: pytest.CaptureFixture[str]) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in root.path.rglob("*"))
    for command in (["queues"], ["verify", "--deep"]):
        assert main([*command, str(root.path)]) == 0
    assert main(["browse", "--body", str(root.path), "orders"]) == 0
    assert captured.readouterr().out
    assert sorted((path, path.stat().st_mtime_ns) for path in root.path.rglob("*")) == before


def test_verify_names_every_invariant_that_holds(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--deep", "--json", str(root.path)]) == 0
    findings = objects_of(captured)
    assert all(finding["holds"] for finding in findings)
    assert {"positions_are_gapless", "content_is_there"} <= {row["name"] for row in findings}


def test_verify_ends_with_1_when_an_invariant_is_broken(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    append_journal(root, [Row(99, 1, queue_created(AT, "far", "{}"))], segment=1, number=2)
    assert main(["verify", str(root.path)]) == 1
    broken = [line for line in lines_of(captured) if line.startswith("BROKEN")]
    assert any("positions_are_gapless" in line for line in broken)


def test_a_record_that_is_missing_ends_queues_as_damaged(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    append_journal(root, [Row(99, 1, queue_created(AT, "far", "{}"))], segment=1, number=2)
    assert main(["queues", str(root.path)]) == 4
    assert "positions 9 to 98 are missing" in captured.readouterr().err


@pytest.mark.parametrize("command", [["queues"], ["browse"], ["browse", "--body"]])
@pytest.mark.parametrize("lost", ["journal", "journal/segment=1"])
def test_what_was_lost_of_a_table_is_one_line_with_what_to_do(
    root: Root, captured: pytest.CaptureFixture[str], command: list[str], lost: str
) -> None:
    rmtree(root.path / lost)
    queue = ["orders"] if command[0] == "browse" else []
    assert main([*command, str(root.path), *queue]) == 4
    (said,) = captured.readouterr().err.splitlines()
    assert f"{root.path / lost}" in said
    assert "gone" in said
    assert "restore the root" in said


def test_verify_does_not_advise_to_start_a_store_that_lost_what_was_on_disk(
    root: Root, captured: pytest.CaptureFixture[str]
) -> None:
    mark_durable(root, {"journal": newest_version(root.journal)})
    rmtree(root.path / "journal" / "segment=1")
    assert main(["verify", str(root.path)]) == 1
    said = captured.readouterr().out
    assert "start the store" not in said
    assert "put it back, or restore the root" in said


def test_an_engines_words_are_one_plain_line() -> None:
    assert (
        one_line("\x1b[31mno\x1b[0m such table\n\nError: Os\x07") == r"no such table Error: Os\x07"
    )


def test_the_version_is_told(captured: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert captured.readouterr().out == f"sparkstore {sparkstore.__version__}\n"


@pytest.mark.parametrize(
    "argv", [[], ["nope"], ["queues"], ["browse", "--limit", "-1", "root", "orders"]]
)
def test_a_wrong_command_line_ends_with_2(
    captured: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: sparkstore" in captured.readouterr().err


def test_version_tells_the_engines(captured: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    [versions] = objects_of(captured)
    assert versions["sparkstore"] == sparkstore.__version__
    assert versions["deltalake"] is not None


def test_every_command_has_an_example_in_its_help(
    captured: pytest.CaptureFixture[str],
) -> None:
    for command in ("queues", "browse", "sql", "compact", "verify"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert f"sparkstore {command}" in captured.readouterr().out.split("example", 1)[1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Schlüssel 🦊", "Schlüssel 🦊"),
        ("a\x1b[2J", r"a\x1b[2J"),
        ("\u202e", r"\u202e"),
        ("\U000e0001", r"\U000e0001"),
        ("\ud800", r"\ud800"),
    ],
)
def test_printable_escapes_what_a_terminal_would_obey(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_values_are_shown_as_they_are() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    row = {"a": 0.00042, "b": 25917, "c": Decimal("1.10"), "d": at, "e": True, "f": None}
    *_, shown = table([row])
    assert shown.split() == [
        "0.00042",
        "25917",
        "1.10",
        "2026-01-02",
        "03:04:05.678901",
        "true",
        "-",
    ]


def test_a_table_aligns_wide_characters_and_numbers() -> None:
    rows = [{"name": "漢字", "n": 1}, {"name": "ab", "n": 1000}]
    assert list(table(rows)) == [
        "name     n",
        "----  ----",
        "漢字     1",
        "ab    1000",
    ]


def test_a_long_cell_is_cut() -> None:
    assert len(list(table([{"x": "y" * 300}]))[2]) == 60

"""`sparkstore diff`: what came to queues, left them and moved between two moments."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from sparkstore.core.records import (
    MessageHeader,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
    queue_destroyed,
)
from sparkstore.embedded.message_changes import changes
from sparkstore.exit_codes import ExitCode
from sparkstore.tables.root import Root
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.histories import History, Layers, Row, fold_rows
from tests.support.histories.seeds import seed
from tests.support.roots.roots import build_root

SECOND_US = 1_000_000
HEADER = MessageHeader("amqp-1.0", b"h", subject="s", header_bytes=1, body_bytes=3)
MOVED = '{"outcome":"moved","to":"r"}'
RECORDS = [
    opened(1, "w"),
    ids_reserved(1, 100),
    *(queue_created(1, name, "{}") for name in ("q", "r", "gone")),
    *(message_enqueued(10 * SECOND_US, "q", n, HEADER, b"abc") for n in (1, 2, 3)),
    message_enqueued(10 * SECOND_US, "gone", 4, HEADER, b"abc"),
    message_enqueued(20 * SECOND_US, "q", 5, HEADER, b"abc"),
    message_enqueued(20 * SECOND_US, "r", 2, HEADER.known(), None),
    message_dequeued(20 * SECOND_US, "q", 2, None, MOVED),
    message_acquired(20 * SECOND_US, "q", 3, "c"),
    message_dequeued(21 * SECOND_US, "q", 3, "c"),
    queue_destroyed(22 * SECOND_US, "gone"),
    message_enqueued(23 * SECOND_US, "q", 6, HEADER, b"abc"),
    message_dequeued(24 * SECOND_US, "q", 6, "d", '{"outcome":"rejected"}'),
    message_acquired(25 * SECOND_US, "q", 1, "c"),
    message_enqueued(90 * SECOND_US, "q", 7, HEADER, b"abc"),
]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    numbered = [Row(position, 1, record) for position, record in enumerate(RECORDS, 1)]
    return build_root(tmp_path / "root", Layers(History(numbered), 11, 12, 1, 1000))


def diff(root: Root, *argv: str) -> int:
    return main(["diff", str(root.path), *argv])


def test_each_message_that_is_elsewhere_is_a_row(
    root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    times = ("--from", "1970-01-01T00:00:15Z", "--to", "1970-01-01T00:01:00Z")
    assert diff(root, *times, "--json") == 0
    told = capsys.readouterr()
    rows = [tuple(json.loads(line).values())[:7] for line in told.out.splitlines()]
    assert [(*row[:4], row[4][17:19], *row[5:]) for row in rows] == [
        ("moved", 2, "q", "r", "20", "moved", None),
        ("came", 5, "q", None, "20", None, None),
        ("left", 3, "q", None, "21", "accepted", "c"),
        ("left", 4, "gone", None, "22", "queue destroyed", None),
        ("passed", 6, "q", None, "24", "rejected", "d"),
    ]
    assert told.err == "sparkstore: 1 came, 2 left, 1 moved, 1 passed\n"
    assert diff(root, *times, "--limit", "1") == 0
    told = capsys.readouterr()
    assert "change  message_id  queue  to_queue" in told.out
    assert "moved" in told.out
    assert "passed" not in told.out
    assert "the first 1 rows are shown, there are more" in told.err


def test_without_an_end_it_is_up_to_now(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(root, "--from", "position=18", "--json") == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["change"], row["message_id"], row["queue"]) == ("came", 7, "q")
    assert diff(root, "--from", "position=19", "--json") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--from", "1970-01-02", "--to", "1970-01-01"], "is after --to 1970-01-01: swap them"),
        (["--from", "position=9", "--to", "position=8"], "is after --to position=8: swap them"),
        (["--from", "soon"], "'soon' is no time"),
        (["--from", "9000-01-01"], "is in the future"),
        (["--from", "1969-01-01"], "is before the first record"),
        (["--from", "position=1", "--to", "position=999"], "is in the future"),
    ],
    ids=str,
)
def test_a_mistake_is_a_line_and_an_exit_code(
    root: Root, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert diff(root, *argv) == ExitCode.WRONG_CALL
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


@pytest.mark.slow
def test_the_changes_lead_from_the_one_fold_to_the_other(tmp_path: Path) -> None:
    number = seed()
    print(f"seed {number}")
    chance = random.Random(number)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(10)])
    root = build_root(tmp_path / "root", drawn_layers(chance, history))
    start, end = sorted(chance.sample(range(1, history.last_position + 1), 2))
    print(f"from {start} to {end} of {history.last_position}")
    places = {
        position: {
            (name, message_id)
            for name, queue in fold_rows(history.rows[:position]).queues.items()
            for message_id in queue.entries
        }
        for position in (start, end)
    }
    found = places[start]
    for row in changes(root, start, end).to_pylist():
        queue, message_id = row["queue"], row["message_id"]
        if row["change"] in {"left", "moved"}:
            found.remove((queue, message_id))
        if row["change"] in {"came", "moved"}:
            place = (row["to_queue"] or queue, message_id)
            assert place not in found
            found.add(place)
        if row["change"] == "passed":
            assert all(message_id != each for _, each in (*places[start], *places[end]))
    assert found == places[end]

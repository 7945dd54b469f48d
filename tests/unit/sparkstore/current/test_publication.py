"""The queues as plain tables: what they say, what is written anew, and what kills and disks do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkstore.cli.command_line import main
from sparkstore.core.annotations import annotations_of
from sparkstore.core.fold import State
from sparkstore.core.records import (
    MessageHeader,
    Record,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    message_released,
    opened,
    queue_created,
    queue_destroyed,
)
from sparkstore.current import columns, publication
from sparkstore.current.publication import BOUNDARIES, publish
from sparkstore.errors import CorruptData
from sparkstore.exit_codes import ExitCode
from sparkstore.tables.delta_files import log_file, newest_version
from sparkstore.tables.lock import FileLock
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import Root, open_or_create_root
from sparkstore.tables.schema import BLOCK_IDS
from tests.support.documents import blocks, text_of
from tests.support.histories.strategies import History, Row, fold_rows, histories
from tests.support.roots.damage import Damage, emptied, zeroed
from tests.support.roots.roots import append_journal

AT = 1_750_000_000_000_000
FAR = BLOCK_IDS + 7
HEADER = MessageHeader(
    "amqp-1.0",
    b"hh",
    subject="eggs",
    header_bytes=2,
    body_bytes=3,
    properties=(("colour", "br\x07wn"),),
)
RECORDS: list[Record] = [
    opened(AT, "writer"),
    queue_created(AT, "orders", '{"arguments":{}}'),
    queue_created(AT, "näme\n'; --", "{}"),
    ids_reserved(AT, 2 * FAR),
    message_enqueued(AT + 1, "orders", 1, HEADER, b"one"),
    message_enqueued(AT + 2, "orders", FAR, HEADER, b"two"),
    message_acquired(AT + 3, "orders", FAR, "consumer"),
]


def commit(root: Root, records: Sequence[Record], first: int) -> None:
    rows = [Row(position, 1, record) for position, record in enumerate(records, first)]
    append_journal(root, rows, segment=1, number=first)


def published(root: Root, name: str) -> list[dict[str, object]]:
    order = "queue" if name == "queues" else "position"
    found = DeltaTable(str(root.path / "current" / name)).to_pyarrow_table().sort_by(order)
    rows: list[dict[str, object]] = found.to_pylist()
    return rows


def files(root: Root) -> set[str]:
    return {*DeltaTable(str(root.path / "current" / "queue_messages")).file_uris()}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Two queues, one with messages in two blocks."""
    root = open_or_create_root(tmp_path / "root")
    commit(root, RECORDS, 1)
    return root


def test_the_tables_say_what_is_on_the_queues_and_how_old_that_is(root: Root) -> None:
    report = publish(root)
    empty, orders = published(root, "queues")
    assert (empty["queue"], empty["depth"], empty["acquired_by"]) == ("näme\n'; --", 0, [])
    assert empty["oldest_at"] is None
    assert (orders["depth"], orders["bytes"], orders["acquired"]) == (2, 10, 1)
    assert orders["acquired_by"] == [("consumer", 1)]
    assert orders["detail"] == '{"arguments":{}}'
    assert {row["as_of_position"] for row in (empty, orders)} == {len(RECORDS)}
    assert str(report.as_of) == orders["as_of"].isoformat()  # type: ignore[attr-defined]
    first, second = published(root, "queue_messages")
    assert (first["message_id"], first["acquired_by"]) == (1, None)
    assert (second["message_id"], second["acquired_by"]) == (FAR, "consumer")
    assert (first["subject"], first["properties"]) == ("eggs", [("colour", "br\x07wn")])
    assert {"header", "body"} & {*first} == set()
    for name in ("queues", "queue_messages"):
        commit_info = DeltaTable(str(root.path / "current" / name)).history(1)[0]
        assert commit_info["sparkstore.as_of_position"] == str(len(RECORDS))
        assert commit_info["sparkstore.as_of"] == report.as_of


def test_only_blocks_that_changed_are_written_anew(root: Root) -> None:
    assert publish(root).blocks_written == 2
    before = files(root)
    assert publish(root).blocks_written == 0
    assert files(root) == before
    commit(root, [message_released(AT, "orders", FAR, 1)], len(RECORDS) + 1)
    report = publish(root)
    assert (report.blocks, report.blocks_written, report.rows_written) == (2, 1, 1)
    assert len(files(root) & before) == 1
    assert published(root, "queue_messages")[1]["delivery_count"] == 1


def test_a_block_whose_messages_are_gone_is_emptied(root: Root) -> None:
    publish(root)
    commit(root, [message_dequeued(AT, "orders", FAR, "consumer")], len(RECORDS) + 1)
    assert publish(root).rows_written == 0
    assert [row["message_id"] for row in published(root, "queue_messages")] == [1]
    commit(root, [queue_destroyed(AT, "orders")], len(RECORDS) + 2)
    publish(root)
    assert published(root, "queue_messages") == []
    assert [row["queue"] for row in published(root, "queues")] == ["näme\n'; --"]


def test_nothing_of_the_root_itself_is_changed_nor_counted_as_its_position(root: Root) -> None:
    before = {name: newest_version(root.table(name)) for name in ("journal", "history", "state")}
    publish(root)
    assert {name: newest_version(root.table(name)) for name in before} == before
    marks = read_marks(root)
    assert marks.last_position == 0
    assert {"current/queues", "current/queue_messages"} <= {*marks.versions}
    assert main(["verify", str(root.path)]) == 0


class Stopped(BaseException):
    """What a failpoint of a test raises."""


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_publication_that_ends_between_its_steps_leaves_whole_tables(
    root: Root, boundary: str
) -> None:
    publish(root)
    commit(root, [message_dequeued(AT, "orders", 1, None)], len(RECORDS) + 1)

    def stop(at: str) -> None:
        if at == boundary:
            raise Stopped

    with pytest.raises(Stopped):
        publish(root, at=stop)
    depth = published(root, "queues")[1]["depth"]
    there = len(published(root, "queue_messages"))
    assert (depth, there) == {"read": (2, 2), "messages written": (2, 1)}.get(boundary, (1, 1))
    publish(root)
    assert published(root, "queues")[1]["depth"] == 1
    assert len(published(root, "queue_messages")) == 1


_KILLED = """
import os, signal, sys
from sparkstore.current.publication import publish
publish(sys.argv[1], at=lambda at: at == sys.argv[2] and os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.slow
def test_a_kill_between_the_commits_leaves_the_queues_as_they_were(root: Root) -> None:
    publish(root)
    commit(root, [message_dequeued(AT, "orders", 1, None)], len(RECORDS) + 1)
    command = [sys.executable, "-c", _KILLED, str(root.path), "messages written"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert published(root, "queues")[1]["depth"] == 2
    assert len(published(root, "queue_messages")) == 1
    publish(root)
    assert published(root, "queues")[1]["depth"] == 1


@pytest.mark.parametrize("damage", [zeroed, emptied])
@pytest.mark.parametrize("name", ["queues", "queue_messages"])
def test_what_a_disk_breaks_is_published_again(root: Root, name: str, damage: Damage) -> None:
    publish(root)
    expected = [published(root, each) for each in ("queues", "queue_messages")]
    for file in (root.path / "current" / name).rglob("*.parquet"):
        damage(file)
    publish(root)
    found = [published(root, each) for each in ("queues", "queue_messages")]
    assert [_ageless(rows) for rows in found] == [_ageless(rows) for rows in expected]
    table = root.path / "current" / name
    damage(log_file(table, newest_version(table)))
    publish(root)
    found = [published(root, each) for each in ("queues", "queue_messages")]
    assert [_ageless(rows) for rows in found] == [_ageless(rows) for rows in expected]


def _ageless(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: row[name] for name in row if name != "as_of"} for row in rows]


def test_tables_that_were_deleted_or_have_other_columns_are_made_anew(root: Root) -> None:
    publish(root)
    for file in sorted((root.path / "current").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    publish(root)
    assert len(published(root, "queue_messages")) == 2
    other = pa.schema([*columns.QUEUES, pa.field("more", pa.int64())])
    with patch.dict(publication._NAMES, {"current/queues": other}):
        opened_anew = publication._opened(root, "current/queues")
    assert opened_anew.version() == 0
    publish(root)
    assert published(root, "queues")[1]["depth"] == 2


def test_old_versions_and_files_do_not_pile_up(root: Root) -> None:
    with patch.object(publication, "_READER_HOURS", 0), patch.object(publication, "TIDY_EVERY", 2):
        for _ in range(5):
            publish(root)
    assert len([*(root.path / "current" / "queues").glob("*.parquet")]) < 4
    assert published(root, "queues")[1]["depth"] == 2


def test_a_header_that_is_lost_is_said_and_the_tables_stay_as_they_were(root: Root) -> None:
    publish(root)
    raw = MessageHeader(protocol=None, header_bytes=0)
    commit(root, [message_enqueued(AT, "orders", 3, raw, b"")], len(RECORDS) + 1)
    with pytest.raises(CorruptData, match=r"message 3 .*sparkstore verify"):
        publish(root)
    assert len(published(root, "queue_messages")) == 2


def test_the_command_prints_one_object_and_the_second_of_two_is_told_to_wait(
    root: Root, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["current", "--json", str(root.path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["queues"], told["messages"], told["as_of_position"]) == (2, 2, len(RECORDS))
    lock = FileLock(root.path / "current.lock", "test")
    assert main(["current", str(root.path)]) == ExitCode.TRY_LATER
    lock.release()
    (line,) = capsys.readouterr().err.splitlines()
    assert "current is in use by another process" in line
    assert main(["current", str(root.path)]) == 0
    assert "as_of_position" in capsys.readouterr().out


def test_the_snippet_of_the_documents_runs(root: Root, capsys: pytest.CaptureFixture[str]) -> None:
    publish(root)
    (snippet,) = [
        block for block in blocks(text_of("docs/sql.md"), "python") if "deltalake import" in block
    ]
    exec(compile(snippet, "docs/sql.md", "exec"), {"root": root.path})
    queues, count = capsys.readouterr().out.splitlines()
    assert "'queue': 'orders', 'depth': 2, 'as_of': " in queues
    assert count == "2"


def test_the_snippets_of_polars_and_duckdb_run(root: Root) -> None:
    duckdb = pytest.importorskip("duckdb")
    package = pytest.importorskip("duckdb_extension_delta")
    (extension,) = Path(package.__file__).parent.rglob("delta.duckdb_extension")
    duckdb.load_extension(str(extension))  # else DuckDB fetches it
    publish(root)
    snippets = blocks(text_of("docs/sql.md"), "python")
    names = {"root": root.path, "DeltaTable": DeltaTable, "duckdb": duckdb}
    run = [each for each in snippets if "polars." in each or "delta_scan" in each]
    assert len(run) == 2
    for snippet in run:
        exec(compile(snippet, "docs/sql.md", "exec"), names)


@settings(max_examples=5, deadline=None)
@given(histories(max_steps=40), st.integers(0, 200))
def test_each_publication_says_what_the_oracle_says(history: History, cut: int) -> None:
    """Two of one root, at a position and at the end, over blocks of two message ids."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(columns, "BLOCK_IDS", 2),
        patch.object(publication, "_ROWS", 3),
    ):
        root = open_or_create_root(Path(folder) / "root")
        for start, end in ((0, cut), (cut, history.last_position)):
            for _, group in groupby(history.rows[start:end], key=lambda row: row.epoch):
                part = [*group]
                append_journal(root, part, segment=1, number=part[0].position)
            publish(root)
            state = fold_rows(history.rows[:end])
            assert {*_entries_published(root)} == {*_entries(state)}
            assert {
                row["queue"]: (row["depth"], row["bytes"]) for row in published(root, "queues")
            } == {
                name: (len(queue.entries), queue.entries.message_bytes)
                for name, queue in state.queues.items()
            }


def _entries(state: State) -> Iterator[tuple[object, ...]]:
    for name, queue in state.queues.items():
        for message_id, entry in queue.entries.items():
            told = entry.detail is not None and tuple(sorted(annotations_of(entry.detail)))
            yield (
                name, message_id, entry.position, entry.acquired_by, entry.delivery_count,
                entry.priority, entry.message_bytes, told,
            )  # fmt: skip


def _entries_published(root: Root) -> Iterator[tuple[object, ...]]:
    rows = published(root, "queue_messages")
    for row in rows:
        told = row["annotations"] is not None and tuple(sorted(k for k, _ in row["annotations"]))  # type: ignore[attr-defined]
        names = ("queue", "message_id", "position", "acquired_by", "delivery_count", "priority")
        yield (*(row[name] for name in names), row["message_bytes"], told)
    assert len({row["position"] for row in rows}) == len(rows)

"""DuckDB's views say what the oracle's fold says, wherever a history is cut; no JVM is asked."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import sparkstore
from sparkstore.core.annotations import (
    MOST_TIME_MS,
    Death,
    as_detail,
    plain_time,
    with_death,
    with_delivery_time,
)
from sparkstore.core.link_records import LinkKey
from sparkstore.core.records import (
    ExchangeBindingKey,
    Kind,
    MessageHeader,
    Record,
    content_staged,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    message_released,
    opened,
    queue_created,
    queue_destroyed,
)
from sparkstore.embedded.answers import answer, view_batches
from sparkstore.embedded.duckdb_views import views_of
from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.jobs import job_runs
from sparkstore.jobs.job_runs import JobRun
from sparkstore.sql.queries import CONTENT, GUARDS, VIEWS
from sparkstore.sql.queries import view_text as spark_text
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.root import TABLES, Root
from tests.support.documents import blocks, text_of, view_columns
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.histories import History, Layers, Row, fold_rows
from tests.support.histories.seeds import seed
from tests.support.histories.stays import expected_stays
from tests.support.histories.viewed import rows
from tests.support.objects.copies import copy, enqueue
from tests.support.objects.s3_server import served
from tests.support.roots.roots import build_root, rows_table, state_table
from tests.support.spark.links import Links, expected_links
from tests.support.spark.tables import Folded, expected

SEEDS = [1, 2, 3, None]
"""None: one of chance, drawn when the test runs, as every worker must collect the same tests."""


def viewed(root: Root) -> Folded:
    found = rows(
        root,
        "SELECT queue, message_id, position, enqueued_at, acquired_by, delivery_count, priority,"
        " expires_at, message_bytes, annotations FROM queue_messages",
    )
    entries = {(row["queue"], row["message_id"]): tuple(row.values())[2:] for row in found}
    assert len(entries) == len(found)
    queues, bindings = rows(root, "FROM queues"), rows(root, "FROM bindings")
    configured = {
        (row["category"], row["key"]): row["detail"] for row in rows(root, "FROM configuration")
    }
    configured |= {
        (None, row["xid"]): f"{row['since']} {row['operations']}"
        for row in rows(root, "FROM transactions")
    }
    for queue in queues:
        held = [row for row in found if row["queue"] == queue["queue"]]
        assert queue["depth"] == len(held)
        assert queue["bytes"] == sum(row["message_bytes"] for row in held)
        assert queue["acquired"] == sum(row["acquired_by"] is not None for row in held)
        assert sum(queue["acquired_by"].values()) == queue["acquired"]
        assert queue["delayed"] == 0, "all of it was long ago"
        assert queue["oldest_at"] == min((row["enqueued_at"] for row in held), default=None)
    members = {
        row["member"]: (row["last_request"], row["refusals"]) for row in rows(root, "FROM members")
    }
    return Folded(
        entries,
        {row["queue"]: row["detail"] for row in queues},
        {
            ExchangeBindingKey(row["exchange"], row["queue"], row["binding_key"]): row["detail"]
            for row in bindings
        },
        configured,
        members,
    )


def viewed_links(root: Root) -> Links:
    found = Links({}, {}, {})
    for row in rows(root, "FROM deliveries"):
        key = LinkKey(row["container"], row["name"], row["role"])
        if row["queue"] is None:
            found.remembered[key, row["tag"]] = row["state"]
        else:
            assert int(row["tag"], 16) == row["message_id"]
            found.sent[key, row["message_id"]] = row["queue"]
    for row in rows(root, "FROM links"):
        key = LinkKey(row["container"], row["name"], row["role"])
        found.links[key] = row["detail"], row["detached_at"]
        assert row["attached"] == (row["detached_at"] is None)
        of_link = [place for place in (*found.remembered, *found.sent) if place[0] == key]
        assert row["unsettled"] == len(of_link)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fixed", SEEDS)
def test_the_views_say_what_the_oracle_says_of_ten_histories_in_one_root(
    tmp_path: Path, fixed: int | None
) -> None:
    number = seed() if fixed is None else fixed
    print(f"seed {number}")
    chance = random.Random(number)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(10)])
    root = build_root(tmp_path / "root", drawn_layers(chance, history))
    state = fold_rows(history.rows)
    assert viewed(root) == expected(state)
    assert viewed_links(root) == expected_links(state)
    counted = {row.position: row.record for row in history.rows}
    events = [Kind.CONTENT, Kind.ENQUEUED, Kind.DEQUEUED, Kind.ACQUIRED, Kind.RELEASED]
    told = {row["position"]: row["kind"] for row in rows(root, "FROM message_history")}
    assert told == {
        position: record.kind.column
        for position, record in counted.items()
        if record.kind in events
    }


@pytest.mark.slow
@pytest.mark.parametrize("fixed", SEEDS)
def test_every_message_is_there_as_its_last_stay_on_a_queue_ended(
    tmp_path: Path, fixed: int | None
) -> None:
    number = seed() if fixed is None else fixed
    print(f"seed {number}")
    chance = random.Random(number)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(10)])
    root = build_root(tmp_path / "root", drawn_layers(chance, history))
    found = rows(
        root,
        "SELECT queue, message_id, position, outcome, ended_position, ended_at, ended_by,"
        " end_detail FROM messages",
    )
    stays = {(row["queue"], row["message_id"]): tuple(row.values())[2:] for row in found}
    assert len(stays) == len(found)
    assert stays == expected_stays(history.rows)
    waiting = rows(root, "FROM queue_messages ORDER BY queue, message_id")
    ends = "outcome, ended_position, ended_at, ended_by, end_detail"
    query = f"SELECT * EXCLUDE ({ends}) FROM messages WHERE outcome IS NULL"
    assert waiting == rows(root, f"{query} ORDER BY queue, message_id")


def test_a_message_is_kept_with_its_content_and_the_way_it_went(tmp_path: Path) -> None:
    """It was given back, moved there and back, taken; of the others the queue was destroyed."""
    told_why = '{"outcome":"rejected","condition":"broken"}'
    known = HEADER.known()
    records = [
        *START,
        queue_created(1, "r", "{}"),
        message_enqueued(2, "q", 1, HEADER, b"one"),
        message_dequeued(3, "q", 1, None, '{"outcome":"moved","to":"r"}'),
        message_enqueued(3, "r", 1, known, None),
        message_dequeued(4, "r", 1, None, '{"outcome":"moved","to":"q"}'),
        message_enqueued(4, "q", 1, known, None),
        message_acquired(5, "q", 1, "c"),
        message_released(6, "q", 1, 2),
        message_acquired(7, "q", 1, "c"),
        message_dequeued(8, "q", 1, "c", told_why),
        message_enqueued(9, "r", 2, HEADER, b"two"),
        queue_destroyed(10, "r"),
        queue_created(11, "r", "{}"),
        message_enqueued(12, "r", 3, HEADER, b"thr"),
        message_enqueued(13, "q", 4, HEADER, b"fou"),
        message_dequeued(14, "q", 4, "d"),
    ]
    root = told(tmp_path, records, state=10, history=12)
    columns = "queue, message_id, delivery_count, outcome, ended_at, ended_by, end_detail, body"
    moved = '{"outcome":"moved","to":"q"}'
    found = rows(root, f"SELECT {columns} FROM messages ORDER BY message_id, queue")
    assert [tuple(row.values()) for row in found] == [
        ("q", 1, 2, "rejected", 8, "c", told_why, b"one"),
        ("r", 1, 0, "moved", 4, None, moved, b"one"),
        ("r", 2, 0, "queue destroyed", 10, None, None, b"two"),
        ("r", 3, 0, None, None, None, None, b"thr"),
        ("q", 4, 0, "accepted", 14, "d", None, b"fou"),
    ]


def test_an_end_before_history_is_whole_does_not_hide_that_a_message_is_back(
    tmp_path: Path,
) -> None:
    """Retention took the record of its return, and not that of its first end."""
    records = [
        *START,
        message_enqueued(2, "q", 1, HEADER, b"one"),
        message_dequeued(3, "q", 1, None, '{"outcome":"requeued"}'),
        message_enqueued(3, "q", 1, HEADER.known(), None),
        opened(4, "w"),
    ]
    root = told(tmp_path, records, state=7, history=7)
    state = fold_rows([Row(position, 1, each) for position, each in enumerate(records, 1)])
    kept = [Row(position, 1, records[position - 1]) for position in (1, 4, 5, 7)]
    write_deltalake(str(root.state), state_table(state, history_start=7), mode="overwrite")
    write_deltalake(str(root.history), rows_table(kept, 0), mode="overwrite")
    write_deltalake(str(root.journal), rows_table([], 0), mode="overwrite")
    found = rows(root, "SELECT message_id, position, outcome, body FROM messages")
    assert found == [{"message_id": 1, "position": 6, "outcome": None, "body": b"one"}]


def test_a_row_that_is_missing_after_p_is_an_error(tmp_path: Path) -> None:
    chance = random.Random(1)
    history = drawn_history(chance, 50)
    del history.rows[-2]
    root = build_root(tmp_path / "root", Layers(history, 0, 0, 1, 1000))
    with pytest.raises(Unavailable, match="records are missing after position 0"):
        answer(root, "SELECT count(*) FROM queues WHERE queue = 'no such queue'")


def spark_type(kind: pa.DataType) -> str:
    """The name that Spark has for it."""
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    return {
        "string": "string", "int64": "bigint", "int32": "int", "bool": "boolean",
        "binary": "binary", "timestamp[us, tz=UTC]": "timestamp", "double": "double",
    }[str(kind)]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_every_column_of_a_view_has_the_name_and_the_type_that_is_documented(
    root: Root, view: str
) -> None:
    schema = answer(root, f"FROM {view}").table.schema
    assert [(field.name, spark_type(field.type)) for field in schema] == view_columns()[view]


def test_the_documents_queries_are_answered(root: Root) -> None:
    queries = blocks(text_of("docs/sql.md"), "sql")
    assert len(queries) >= 3
    for query in queries:
        assert answer(root, query).table.num_columns


def told(path: Path, records: list[Record], *, state: int = 0, history: int = 0) -> Root:
    """A root with these records, folded and moved as far as is said."""
    numbered = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    return build_root(path / "told", Layers(History(numbered), state, history, 1, 1000))


START = [opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", "{}")]
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HEADER = MessageHeader("amqp-1.0", b"h", header_bytes=1, body_bytes=3)


@pytest.mark.parametrize("folded", [0, 3, 8])
def test_a_body_that_came_in_pieces_is_put_together_in_order_and_each_piece_once(
    tmp_path: Path, folded: int
) -> None:
    pieces = [(0, b"\x00a"), (12, b"c"), (2, b"b" * 10), (12, b"c")]
    records = [
        *START,
        *(content_staged(1, 1, offset, body) for offset, body in pieces),
        message_enqueued(2, "q", 1, HEADER, None),
        message_enqueued(2, "q", 2, HEADER, b"one"),
        message_enqueued(2, "q", 3, HEADER, None),
    ]
    root = told(tmp_path, records, state=folded, history=folded)
    found = rows(root, "SELECT message_id, body FROM queue_messages ORDER BY position")
    assert found == [
        {"message_id": 1, "body": b"\x00a" + b"b" * 10 + b"c"},
        {"message_id": 2, "body": b"one"},
        {"message_id": 3, "body": b""},
    ]


def test_a_null_of_the_last_record_is_not_passed_over(tmp_path: Path) -> None:
    """Spark's `max_by` tells it, DuckDB's does not: nobody holds what was given back."""
    records = [*START, message_enqueued(1, "q", 1, HEADER, b"one")]
    moves = [message_acquired(2, "q", 1, "one"), message_released(3, "q", 1, 2)]
    root = told(tmp_path, [*records, *moves])
    found = rows(root, "SELECT acquired_by, delivery_count FROM queue_messages")
    assert found == [{"acquired_by": None, "delivery_count": 2}]


def test_annotations_are_told_as_spark_tells_them(tmp_path: Path) -> None:
    detail = as_detail(
        {
            "then": ("timestamp", "1750000000000"),
            "exactly": ("timestamp", "1750000000120"),
            "never": ("timestamp", "999999999999999"),
            "before": ("timestamp", "-1"),
            "why": ("string", "1750000000000"),
        }
    )
    root = told(tmp_path, [*START, message_enqueued(1, "q", 1, HEADER, b"one", detail=detail)])
    (found,) = rows(root, "SELECT annotations FROM queue_messages")
    assert found["annotations"] == {
        "then": "2025-06-15 15:06:40",
        "exactly": "2025-06-15 15:06:40.12",
        "never": "999999999999999",
        "before": "-1",
        "why": "1750000000000",
    }


def test_a_dead_letter_says_why_whence_and_after_how_many_attempts(tmp_path: Path) -> None:
    death = Death("orders", "rejected", 3, 1_750_000_000_120_999)
    detail = as_detail(with_death(None, death))
    odd = as_detail({"x-opt-death-attempts": ("uint", "many"), "x-opt-death-time": ("x", "")})
    records = [
        *START,
        message_enqueued(1, "q", 1, HEADER, b"one", detail=detail),
        message_enqueued(1, "q", 2, HEADER, b"two", detail=odd),
        message_enqueued(1, "q", 3, HEADER, b"thr"),
    ]
    root = told(tmp_path, records, state=4, history=4)
    columns = "death_reason, death_queue, death_attempts, died_at"
    for view in ("queue_messages", "messages"):
        found = rows(root, f"SELECT {columns} FROM {view} ORDER BY message_id")
        assert [tuple(row.values()) for row in found] == [
            ("rejected", "orders", 3, 1_750_000_000_120_000),
            (None, None, None, None),
            (None, None, None, None),
        ]


def test_a_delayed_message_says_when_it_may_be_delivered(tmp_path: Path) -> None:
    """Also one that an annotation of a dead letter stands beside, and one that is no time."""
    at = 1_750_000_000_120_000
    death = as_detail(with_death(None, Death("orders", "rejected", 3, 1)))
    odd = '{"x-opt-delivery-time":["string","soon"]}'
    details = [None, plain_time(at // 1000), with_delivery_time(death, at - 999), odd]
    records = [
        *START,
        *(
            message_enqueued(1, "q", number, HEADER, b"one", detail=detail)
            for number, detail in enumerate(details, 1)
        ),
    ]
    root = told(tmp_path, records, state=4, history=4)
    for view in ("queue_messages", "messages"):
        found = rows(root, f"SELECT visible_at FROM {view} ORDER BY message_id")
        assert [row["visible_at"] for row in found] == [None, at, at, None]


def test_a_queue_says_how_many_messages_wait_for_their_time(tmp_path: Path) -> None:
    """Those of nobody: of two that a consumer has, or had, the second waits again."""
    later = plain_time(MOST_TIME_MS)
    records = [
        *START,
        *(
            message_enqueued(1, "q", number, HEADER, b"one", detail=detail)
            for number, detail in enumerate([None, later, plain_time(1), later, later], 1)
        ),
        message_acquired(1, "q", 4, "c"),
        message_acquired(1, "q", 5, "c"),
        message_released(1, "q", 5, 1, detail=later),
    ]
    for state in (4, len(records)):
        root = told(tmp_path / str(state), records, state=state, history=state)
        (row,) = rows(root, "SELECT depth, acquired, delayed FROM queues")
        assert row == {"depth": 5, "acquired": 1, "delayed": 2}


def test_consumed_messages_are_in_the_history_and_on_no_queue(tmp_path: Path) -> None:
    records = [
        *START,
        message_enqueued(1, "q", 1, HEADER._replace(properties=(("traceparent", TRACE),)), b"one"),
        message_dequeued(2, "q", 1, "c"),
    ]
    root = told(tmp_path, records)
    assert rows(root, "FROM queue_messages") == []
    events = rows(root, "SELECT kind, traceparent FROM message_history ORDER BY position")
    assert events == [
        {"kind": "enqueued", "traceparent": TRACE},
        {"kind": "dequeued", "traceparent": None},
    ]


@pytest.mark.parametrize("table", ["state", "history", "journal"])
def test_a_file_that_is_gone_or_broken_is_told_in_a_line(tmp_path: Path, table: str) -> None:
    records = [*START, message_enqueued(1, "q", 1, HEADER, b"one"), opened(2, "w")]
    root = told(tmp_path, records, state=3, history=3 if table == "journal" else 4)
    files = [path for path in root.table(table).rglob("*.parquet") if "_delta_log" not in str(path)]
    for path in files:
        path.write_bytes(b"PAR1")
    for path in (None, *files):
        if path:
            path.unlink()
        with pytest.raises(Unavailable, match="run it again") as failed:
            answer(root, "SELECT max(body) FROM queue_messages")
        assert "\n" not in str(failed.value)


@pytest.mark.parametrize("view", VIEWS)
def test_the_text_of_a_view_fits_into_a_catalog(view: str) -> None:
    """Hive's own database keeps 32,700 characters; a long path is in the text a dozen times."""
    places = {name: f"delta.`/{'x' * 150}/{name}`" for name in TABLES}
    assert len(spark_text(view, {**places, **GUARDS.get(view, {}), "entryhint": ""})) < 32_000


def test_sums_and_counts_are_bigint_as_with_spark(root: Root) -> None:
    table = answer(root, "SELECT sum(depth), count(*), sum(depth * 1.5) FROM queues").table
    assert [str(field.type) for field in table.schema][:2] == ["int64", "int64"]


@pytest.mark.slow
def test_columns_of_an_entry_are_the_same_where_no_content_is_read(tmp_path: Path) -> None:
    number = seed()
    print(f"seed {number}")
    chance = random.Random(number)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(10)])
    root = build_root(tmp_path / "root", drawn_layers(chance, history))
    table = answer(root, "SELECT * FROM queue_messages ORDER BY position").table
    table = table.select([name for name in table.column_names if name not in CONTENT])
    assert "annotations" in table.column_names
    found = pa.Table.from_batches(view_batches(root, "queue_messages", table.column_names))
    assert found.sort_by("position").to_pylist() == table.to_pylist()


def test_string_is_the_text_of_bytes_and_of_any_value_as_with_spark(root: Root) -> None:
    told = r"""'{"a": 1}'::BLOB, '\xff'::BLOB, 7, 'x\y', true"""
    query = f"SELECT {', '.join(f'string({each})' for each in told.split(', '))}"
    assert [*answer(root, query).table.to_pylist()[0].values()] == [
        '{"a": 1}',
        None,
        "7",
        r"x\y",
        "true",
    ]


def test_some_rows_are_shown_and_that_there_are_more_is_told(root: Root) -> None:
    assert answer(root, "SELECT * FROM range(5)", 5).is_cut is False
    found = answer(root, "SELECT * FROM range(5)", 2)
    assert (found.table.num_rows, found.is_cut) == (2, True)


def test_the_views_of_the_jobs_are_there_once_there_is_a_table(tmp_path: Path) -> None:
    root = told(tmp_path, START)
    with pytest.raises(InvalidRequest, match="there is no view job_runs"):
        answer(root, "FROM job_runs")
    job_runs.record(root, JobRun("1", "compact", datetime.now(UTC), 1.0, "done", {}))
    assert views_of(root) == [*VIEWS, "job_runs"]
    schema = answer(root, "FROM job_runs").table.schema
    assert [(field.name, spark_type(field.type)) for field in schema] == view_columns()["job_runs"]
    assert rows(root, "SELECT job, outcome FROM job_runs") == [
        {"job": "compact", "outcome": "done"}
    ]


def test_a_root_is_asked_by_its_path(root: Root) -> None:
    found = sparkstore.query(str(root.path), "SELECT count(*) AS n FROM queues")
    assert found.to_pylist() == answer(root, "SELECT count(*) AS n FROM queues").table.to_pylist()
    with pytest.raises(InvalidRequest, match="is not a sparkstore root"):
        sparkstore.query(root.path / "history", "SELECT 1")


def test_a_root_in_a_bucket_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(tmp_path / "primary", b"one", b"two")
    with served(monkeypatch):
        copy(tmp_path / "primary", ObjectStorage("s3://lake/queues"))
        found = sparkstore.query("s3://lake/queues", "SELECT body FROM queue_messages ORDER BY 1")
    assert found["body"].to_pylist() == [b"one", b"two"]

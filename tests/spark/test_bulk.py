"""Spark chooses messages by a predicate and nothing else; the commands from end to end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sparkstore.cli.command_line import main
from sparkstore.compaction import compact
from sparkstore.compaction.message_expiry import end_messages
from sparkstore.control.bulk_run import REPLAYED
from sparkstore.core import fold
from sparkstore.core.xids import Xid
from sparkstore.embedded.answers import answer
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import Action, Answer, Request
from sparkstore.recovery.departed_messages import departed_messages
from sparkstore.recovery.recovery import recover
from sparkstore.tables.root import Root, open_root
from sparkstore.views import message_choice, views
from tests.support.spark.tables import expected, viewed
from tests.support.stores.controls import HEADER, Place

QUEUE = "o'rd`ers\n--"
LONG_AGO_US = 1_000_000
Run = Callable[..., Any]


def place_at(path: Path) -> Place:
    return Place(path / "ro`ot 'n' ü", is_served=False)


def state_of(place: Place) -> fold.State:
    return recover(open_root(place.path)).state


def ids_of(place: Place, queue: str = QUEUE) -> list[int]:
    return [*state_of(place).queues[queue].entries]


def files_of(place: Place) -> list[tuple[Path, int]]:
    return sorted((path, path.stat().st_mtime_ns) for path in place.path.rglob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Two queues at rest, one with ten messages; the third of them is acquired."""
    it = place_at(tmp_path)
    it.create(QUEUE)
    it.create("other")
    for number in range(10):
        it.put(QUEUE, header=HEADER._replace(properties=(("n", str(number)),)))
    it.hold(QUEUE, 3)
    it.control.close()
    return it


@pytest.fixture
def run(place: Place, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on the place, in this session; what it printed as JSON."""

    def run(name: str, *arguments: str, code: int = 0) -> Any:
        assert main([name, "--json", str(place.path), *arguments]) == code
        said = capsys.readouterr()
        if code:
            assert said.err.count("\n") == 1
            return said.err
        return [json.loads(line) for line in said.out.splitlines()]

    return run


@pytest.mark.parametrize(
    "predicate",
    [
        "n n n",
        "",
        "true; DROP TABLE x",
        "true) OR (true",
        "SELECT 1",
        "subject = 'unclosed",
    ],
)
def test_what_is_no_expression_is_one_line_about_its_syntax(
    spark: SparkSession, predicate: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"^--where .*\[PARSE_.*\]") as refused:
        message_choice.condition(spark, predicate)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "predicate",
    [
        "EXISTS (SELECT 1 FROM queues)",
        "message_id IN (SELECT message_id FROM queue_messages)",
        "(SELECT max(depth) FROM queues) > 1",
        "true OR message_id = (VALUES (1))",
        "message_id IN (1, 2) AND NOT EXISTS (SELECT 1 FROM delta.`/etc`)",
        "transform(array(1), x -> x + (SELECT 1))[0] = 2",
    ],
)
def test_another_table_is_refused_wherever_it_stands(spark: SparkSession, predicate: str) -> None:
    with pytest.raises(InvalidRequest, match="without sub-queries"):
        message_choice.condition(spark, predicate)


@pytest.mark.slow
def test_what_the_analyser_refuses_is_one_line(spark: SparkSession, place: Place) -> None:
    root = open_root(place.path)
    for predicate, reason in {
        "message_id": "FILTER_NOT_BOOLEAN",
        "nope = 1": "UNRESOLVED_COLUMN",
        "queues.depth > 1": "UNRESOLVED_COLUMN",
        "count(*) > 1": "INVALID_WHERE_CONDITION",
        "message_id = :id": "UNBOUND_SQL_PARAMETER",
        "row_number() OVER (ORDER BY message_id) = 1": "WINDOW_FUNCTION",
    }.items():
        with pytest.raises(InvalidRequest, match=rf"^--where .*\[.*{reason}") as refused:
            message_choice.waiting(spark, root, QUEUE, predicate)
        assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_predicate_moves_what_it_names_in_order_and_leaves_what_is_acquired(
    run: Run, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_of(place)
    where = ("--from", QUEUE, "--where", "queue_messages.properties['n'] < '6'")
    [told] = run("move", *where, "--to", "other", "--dry-run")
    assert (told["dry_run"], told["count"], told["left"]) == (True, 5, 1)
    assert {row["message_id"] for row in told["sample"]} == {1, 2, 3, 4, 5, 6}
    assert files_of(place) == before
    [told] = run("move", *where, "--to", "other")
    assert (told["done"], told["left"], told["gone"]) == (5, 1, 0)
    assert ids_of(place, "other") == [1, 2, 4, 5, 6]
    assert ids_of(place) == [3, 7, 8, 9, 10]
    [told] = run("requeue", "--from", QUEUE, "--where", "message_id = 7 OR message_id = 8")
    assert told["done"] == 2
    assert ids_of(place) == [3, 9, 10, 7, 8]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["move", "--from", QUEUE, "--to", "nope"], "unknown queue 'nope': create it first"),
        (["purge", "--from", "nope"], "unknown queue 'nope'"),
        (["purge", "--from", "nope", "--dry-run"], "unknown queue 'nope'"),
        (["export", "--from", "nope"], "unknown queue 'nope'"),
        (["replay", "--queue", QUEUE, "--to", "nope"], "unknown queue 'nope'"),
    ],
    ids=lambda value: str(value)[:25],
)
def test_a_queue_that_is_not_there_is_refused_before_anything_is_chosen(
    run: Run, place: Place, command: list[str], reason: str
) -> None:
    name, *rest = command
    assert reason in run(name, *rest, "--where", "true", code=2)
    assert len(ids_of(place)) == 10


def assert_both_find_what_left(spark: SparkSession, path: Path, *pairs: tuple[str, str]) -> None:
    """The view and the way without Java choose the same messages, in the same order."""
    root = open_root(path)
    for queue, to in pairs:
        there = recover(root).state.queues[queue].entries
        chosen = message_choice.departed(spark, root, queue, "true", to=to)
        plain = departed_messages(root, queue, there, REPLAYED, to)
        assert [each.message_id for each in plain] == [*message_choice.ids(chosen)]


@pytest.mark.slow
def test_what_was_purged_is_replayed_once_as_copies_with_their_content(
    spark: SparkSession, run: Run, place: Place
) -> None:
    assert run("purge", "--from", QUEUE, "--where", "message_id <= 4")[0]["done"] == 3
    [told] = run("replay", "--queue", QUEUE, "--where", "properties['n'] <> '1'", "--to", "other")
    assert told["done"] == 2
    assert_both_find_what_left(spark, place.path, (QUEUE, "other"))
    again = run("replay", "--queue", QUEUE, "--where", "true", "--to", "other")
    assert again[0]["done"] == 1
    assert run("replay", "--queue", QUEUE, "--where", "true", "--to", "other")[0]["done"] == 0
    rows = run("export", "--from", "other")
    assert [row["body"] for row in rows] == ["body 0"] * 3
    assert [row["properties"]["sparkstore.replayed"] for row in rows] == ["1", "4", "2"]
    assert {row["message_id"] for row in rows}.isdisjoint(range(1, 11))
    purged = run("purge", QUEUE, "--id", "5", "--id", "6")[0]["operation"]
    run("resubmit", "7", "--body", "mended")
    run("undo", purged)
    assert_both_find_what_left(spark, place.path, (QUEUE, "other"), (QUEUE, QUEUE))
    assert run("replay", QUEUE, "--older-than", "0s", "--to", "other")[0]["done"] == 0


@pytest.mark.slow
def test_an_export_has_every_message_in_order_in_either_format_and_changes_nothing(
    run: Run, place: Place, tmp_path: Path
) -> None:
    before = files_of(place)
    rows = run("export", "--from", QUEUE, "--where", "message_id > 2")
    file = tmp_path / "out.parquet"
    run("export", "--from", QUEUE, "--where", "message_id > 2", "--format", "parquet",
        "--output", str(file))  # fmt: skip
    table = pq.read_table(file)
    assert [row["message_id"] for row in rows] == [*range(3, 11)]
    assert table["message_id"].to_pylist() == [*range(3, 11)]
    assert table["body"].to_pylist() == [row["body"].encode() for row in rows]
    assert [dict(p) for p in table["properties"].to_pylist()] == [row["properties"] for row in rows]
    assert rows[0]["header"]["subject"] == "eggs"
    assert files_of(place) == before


def assert_all_readers_agree(spark: SparkSession, place: Place, state: fold.State) -> None:
    """The views before and after a fold, a start after it, and DuckDB."""
    root = open_root(place.path)
    views.register(spark, root)
    assert viewed(spark) == expected(state)
    compact.run(spark, root)
    assert viewed(spark) == expected(state)
    assert expected(state_of(place)) == expected(state)
    assert [counted(root, what) for what in ("transactions", "queue_messages")] == [3, 14]


def counted(root: Root, view: str) -> int:
    """Operations of branches in doubt, or messages on queues, as DuckDB counts them."""
    what = "sum(operations)" if view == "transactions" else "count(*)"
    return int(answer(root, f"SELECT {what} FROM {view}").table.column(0)[0].as_py())


@pytest.mark.slow
def test_compact_ends_what_expired_or_failed_too_often_and_views_agree_with_the_fold(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = place_at(tmp_path)
    place.create("q", max_delivery_count=1, dead_letter_queue="dead")
    for name in ("plain", "target", "doubtful"):
        place.create(name)
    expired = HEADER._replace(expires_at=LONG_AGO_US)
    [fine, failed] = place.put("q", count=2)
    [last] = place.put("q", header=HEADER._replace(expires_at=LONG_AGO_US + 2))
    next_ones = place.put("q", count=2, header=HEADER._replace(expires_at=LONG_AGO_US + 1))
    late, held = place.put("q", count=2, header=expired)
    [lost] = place.put("plain", header=expired)
    moved = place.put("plain", count=4)
    place.fail("q", failed, times=2)
    place.prepare(Xid(1, b"g", b"b"), "doubtful", *place.put("doubtful", count=3))
    place.hold("q", held)
    place.control.run(Request(Action.REQUEUE, "q", (fine,)))
    place.control.run(Request(Action.MOVE, "plain", tuple(moved), "target"))  # as one run
    place.control.close()
    assert main(["compact", "--nice", "0", "--json", str(place.path)]) == 0
    lines = [json.loads(line) for line in (place.path / "audit.log").read_text().splitlines()]
    assert {line["queue"] for line in lines if line["act"] == "dead-letter"} == {"q", "plain"}
    state = state_of(place)
    assert [*state.queues["q"].entries] == [held, fine]
    in_the_order_of_expiry = [late, *next_ones, last]  # those of one moment as they stood
    assert [*state.queues["dead"].entries] == [*in_the_order_of_expiry, failed]
    assert lost not in state.messages
    assert [*state.queues["target"].entries] == moved
    root: Root = open_root(place.path)
    assert end_messages(spark, root) == Answer()
    assert_all_readers_agree(spark, place, state)
    assert_both_find_what_left(spark, place.path, ("q", "plain"), ("plain", "q"), ("dead", "q"))
    [history] = views.sql(
        spark,
        root,
        "SELECT collect_list(get_json_object(detail, '$.outcome')) FROM message_history"
        f" WHERE kind = 'dequeued' AND message_id IN ({late}, {lost}, {fine})",
    ).collect()
    assert sorted(history[0]) == ["dead-lettered", "expired", "requeued"]

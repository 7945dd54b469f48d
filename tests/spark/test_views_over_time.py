"""Views that were registered before the tables changed; what a query reads and what it must not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkstore.compaction import compact
from sparkstore.core import fold
from sparkstore.core.records import (
    Record,
    ids_reserved,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.errors import Unavailable
from sparkstore.replication.backup import back_up, restore
from sparkstore.tables.delta_files import log_file, newest_version
from sparkstore.tables.root import Root, open_root
from sparkstore.views import join_hints, message_choice, views
from sparkstore.views.spark_tables import settings, translated
from tests.support.histories.histories import Row, fold_rows
from tests.support.spark.killing import Stopped, stop_at
from tests.support.spark.tables import (
    HEADER,
    VIEWED,
    expected,
    journal,
    numbered,
    trim,
    viewed,
    viewed_entries,
)

START = [opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", "{}")]


def _put(message_id: int) -> Record:
    return message_enqueued(message_id, "q", message_id, HEADER, b"abc")


def _state(rows: list[Row]) -> fold.State:
    return fold_rows(rows)


@pytest.mark.slow
def test_views_stay_right_across_appends_compactions_and_trims(
    spark: SparkSession, root: Root, tmp_path: Path
) -> None:
    """Those that are kept, and those that are asked at once, which stay as they were then."""
    records = [*START, _put(1), _put(2)]

    def all_say_so() -> SparkSession:
        once = spark.newSession()
        views.register(once, root, ("queue_messages", "queues"), at_once=True)
        wanted = expected(_state(numbered(records)))
        assert viewed(spark) == wanted
        assert viewed_entries(once) == wanted[:2]
        return once

    journal(root, records)
    views.register(spark, root, VIEWED)
    first = all_say_so()
    with pytest.raises(Stopped):
        compact.run(spark, root, at=stop_at("appended"))
    all_say_so()
    journal(root, [_put(3)], first=6)
    records.append(_put(3))
    all_say_so()
    compact.run(spark, root)
    trim(root, 6)
    all_say_so()
    journal(root, [_put(4)], first=7)
    records.append(_put(4))
    all_say_so()
    assert viewed_entries(first)[0].keys() == {("q", 1), ("q", 2)}
    back_up(root.path, tmp_path / "backup", at="position=5")
    restore(tmp_path / "backup", tmp_path / "then")
    then = open_root(tmp_path / "then")
    journal(then, [_put(9)], first=6)
    compact.run(spark, then)  # no job takes what it does for what was done after then
    views.register(spark, then, VIEWED)
    assert viewed(spark) == expected(_state(numbered([*records[:5], _put(9)])))


OVER_A_GAP = [
    "SELECT * FROM queues",
    "SELECT count(*) FROM queues WHERE queue = 'no such queue'",
    "SELECT queue FROM queue_messages WHERE message_id = 1",
    "SELECT kind FROM message_history WHERE queue = 'q' AND message_id = 1",
    "SELECT count(*) FROM bindings",
    "SELECT count(*) FROM deliveries WHERE role = 'receiver'",
]


@pytest.fixture(scope="module")
def answers(spark: SparkSession, module_root: Root) -> dict[str, str]:
    """What each query says over a journal that goes on at 6 after P = 4."""
    journal(module_root, [*START, _put(1)])
    compact.run(spark, module_root)
    journal(module_root, [_put(3)], first=6)
    views.register(spark, module_root)
    return {query: _answer(spark, query) for query in OVER_A_GAP}


AS_SHIPPED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.databricks.delta.stats.skipping": "true",
}


@pytest.mark.slow
def test_a_gap_is_an_error_where_nothing_before_it_is_found(
    spark: SparkSession, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark leaves a join out as soon as one side of it is empty; the gap has what was there."""
    journal(root, [*START, queue_created(1, "r", "{}"), _put(1)])
    compact.run(spark, root)
    journal(root, [_put(3)], first=7)
    answers = {}
    with settings(spark, AS_SHIPPED):
        for most_rows in (join_hints.MOST_ROWS, -1):  # entries go to every task; they are too many
            monkeypatch.setattr(join_hints, "MOST_ROWS", most_rows)
            views.register(spark, root, ("queue_messages",))
            query = "SELECT message_id FROM queue_messages WHERE queue = 'r' AND content_type = 'x'"
            answers[most_rows] = _answer(spark, query)
        departed = message_choice.departed(spark, root, "r", "true", to="q")
        with pytest.raises(Unavailable, match="records are missing after position 5"):
            message_choice.count(departed)
    for answer in answers.values():
        assert answer.startswith("records are missing after position 5: ")


def _answer(spark: SparkSession, query: str) -> str:
    try:
        with translated("the query failed"):
            return str(spark.sql(query).collect())
    except Unavailable as reason:
        return str(reason)


@pytest.mark.slow
@pytest.mark.parametrize("query", OVER_A_GAP)
def test_a_gap_after_p_is_an_error_whatever_a_query_filters(
    answers: dict[str, str], query: str
) -> None:
    assert answers[query].startswith("records are missing after position 4: ")


@pytest.mark.slow
@pytest.mark.usefixtures("answers")
def test_a_position_that_is_there_twice_hides_no_gap_after_p(
    spark: SparkSession, module_root: Root
) -> None:
    journal(module_root, [_put(3)], first=6)  # two rows after P, and the last is P + 2
    answer = _answer(spark, "SELECT count(*) FROM bindings")
    assert answer.startswith("records are missing after position 4: ")


@pytest.mark.slow
def test_rows_of_a_fenced_writer_are_in_no_view_and_in_no_history(
    spark: SparkSession, root: Root
) -> None:
    journal(root, [*START, _put(1)])
    journal(root, [opened(2, "x"), _put(2)], first=5, epoch=2)
    journal(root, [_put(90), _put(91), _put(92)], first=5, epoch=1)
    query = "SELECT message_id FROM {} WHERE kind = 'enqueued' ORDER BY 1"
    for at_once in (True, False):
        views.register(spark, root, ("message_history",), at_once=at_once)
        assert [row[0] for row in spark.sql(query.format("message_history")).collect()] == [1, 2]
    compact.run(spark, root)
    history = spark.sql("SELECT position FROM message_history").count()
    journal(root, [_put(93)], first=7, epoch=1)
    assert history == 2
    for at_once in (False, True):
        views.register(spark, root, ("message_history",), at_once=at_once)
        assert [row[0] for row in spark.sql(query.format("message_history")).collect()] == [1, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("skipping")
def test_history_that_was_folded_is_not_opened(spark: SparkSession, root: Root) -> None:
    end = journal(root, [*START, _put(1)])
    compact.run(spark, root)
    trim(root, end + 1)
    journal(root, [_put(2)], first=end + 1)
    views.register(spark, root, ("queues",))
    for file in root.history.rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.unlink()
    assert [row.depth for row in spark.sql("SELECT depth FROM queues").collect()] == [2]


@pytest.mark.slow
def test_a_state_older_than_when_the_views_were_registered_is_an_error_until_they_are_anew(
    spark: SparkSession, root: Root
) -> None:
    end = journal(root, [*START, _put(1)])
    compact.run(spark, root)
    journal(root, [_put(2)], first=end + 1)
    compact.run(spark, root)
    views.register(spark, root, ("queues",))
    newest = log_file(root.state, newest_version(root.state))
    for file in newest.parent.glob(f"*{newest.stem}*"):  # its checksum, too, as healing does
        file.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert _answer(spark, "SELECT * FROM queues").startswith("records are missing after position")
    views.register(spark, root, ("queues",))
    assert [row.depth for row in spark.sql("SELECT depth FROM queues").collect()] == [2]


@pytest.mark.slow
def test_bodies_are_not_read_unless_asked_for(spark: SparkSession, root: Root) -> None:
    journal(root, [*START, _put(1)])
    views.register(spark, root, ("queue_messages", "queues", "message_history"))

    def columns_read(query: str) -> set[str]:
        plan = spark.sql(f"EXPLAIN FORMATTED {query}").first()
        assert plan is not None
        schemas = re.findall(r"ReadSchema: struct<(.*)>", plan[0])
        return {column.split(":")[0] for schema in schemas for column in schema.split(",")}

    narrow = columns_read(
        "SELECT queue, message_id, content_type FROM queue_messages WHERE priority > 3"
    )
    assert not narrow & {"body", "header", "properties"}
    assert "content_type" in narrow
    assert "body" in columns_read("SELECT body FROM queue_messages")
    assert not columns_read("SELECT * FROM queues") & {"body", "header", "properties"}
    assert not columns_read("SELECT * FROM message_history") & {"body", "header"}
    events = "SELECT position, kind, queue, detail, message_bytes FROM message_history"
    assert not columns_read(events) & {"body", "header", "properties"}


@pytest.mark.slow
def test_one_query_reads_each_table_at_one_version(spark: SparkSession, root: Root) -> None:
    journal(root, [*START, _put(1)])
    views.register(spark, root, ("queues",))
    before = spark.table("queues")
    journal(root, [_put(2)], first=5)
    # Analysed before the append and planned after it: all of it sees the newest version, or the
    # guard, which counts, would not agree with the rows.
    assert before.collect()[0].depth == 2
    journal(root, [_put(3)], first=6)
    assert before.collect()[0].depth == 2, "a computed frame keeps its answer"
    assert spark.table("queues").collect()[0].depth == 3


def test_a_wrong_query_is_one_line(spark: SparkSession, root: Root) -> None:
    with pytest.raises(Exception, match=r"the query failed: .*nothing") as caught:
        views.sql(spark, root, "SELECT nothing FROM queues")
    assert not isinstance(caught.value, PySparkException)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_values_of_a_query_are_arguments(spark: SparkSession, root: Root) -> None:
    journal(root, [*START, queue_created(2, "o'q", "{}")])
    found = views.sql(spark, root, "SELECT queue FROM queues WHERE queue = {q}", {"q": "o'q"})
    assert [row.queue for row in found.collect()] == ["o'q"]

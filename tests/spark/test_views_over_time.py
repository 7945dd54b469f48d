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
    queue_destroyed,
)
from sparkstore.embedded import duckdb_views
from sparkstore.embedded.moment import Moment
from sparkstore.errors import Unavailable
from sparkstore.replication.backup import back_up, restore
from sparkstore.sql.queries import GUARDS, view_text
from sparkstore.tables.delta_files import log_file, newest_version
from sparkstore.tables.root import Root, open_root
from sparkstore.views import join_hints, message_choice, view_relations, views
from sparkstore.views.join_hints import hints
from sparkstore.views.plan_trees import elements
from sparkstore.views.spark_tables import settings, table_names, translated
from sparkstore.views.view_relations import LOCAL_ROWS
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
    """Registered once, as plans over Delta in one session and as local rows in another."""
    records = [*START, _put(1), _put(2)]
    local = spark.newSession()

    def all_say_so() -> None:
        wanted = expected(_state(numbered(records)))
        assert viewed(spark) == viewed(local) == wanted

    journal(root, records)
    views.register(spark, root, VIEWED, local_rows=0)
    views.register(local, root, VIEWED)
    all_say_so()
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
    back_up(root.path, tmp_path / "backup", at="position=5")
    restore(tmp_path / "backup", tmp_path / "then")
    then = open_root(tmp_path / "then")
    journal(then, [_put(9)], first=6)
    compact.run(spark, then)  # no job takes what it does for what was done after then
    views.register(local, then, VIEWED)
    assert viewed(local) == expected(_state(numbered([*records[:5], _put(9)])))


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
    views.register(spark, module_root, local_rows=0)
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
            views.register(spark, root, ("queue_messages",), local_rows=0)
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
    for local_rows in (0, 10):
        views.register(spark, root, ("message_history",), local_rows=local_rows)
        assert [row[0] for row in spark.sql(query.format("message_history")).collect()] == [1, 2]
    compact.run(spark, root)
    history = spark.sql("SELECT position FROM message_history").count()
    journal(root, [_put(93)], first=7, epoch=1)
    assert history == 2
    for local_rows in (0, 10):
        views.register(spark, root, ("message_history",), local_rows=local_rows)
        assert [row[0] for row in spark.sql(query.format("message_history")).collect()] == [1, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("skipping")
def test_history_that_was_folded_is_not_opened(spark: SparkSession, root: Root) -> None:
    end = journal(root, [*START, _put(1)])
    compact.run(spark, root)
    trim(root, end + 1)
    journal(root, [_put(2)], first=end + 1)
    views.register(spark, root, ("queues",), local_rows=0)
    for file in root.history.rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.unlink()
    assert [row.depth for row in spark.sql("SELECT depth FROM queues").collect()] == [2]


@pytest.mark.slow
def test_a_state_older_than_when_the_views_were_registered_is_folded_on(
    spark: SparkSession, root: Root
) -> None:
    """A text in a catalog knows the P of then (`sql/fold/guard.sql`), a session's view does not."""
    end = journal(root, [*START, _put(1)])
    compact.run(spark, root)
    journal(root, [_put(2)], first=end + 1)
    compact.run(spark, root)
    views.register(spark, root, ("queues",), local_rows=0)
    text = view_text("queues", table_names(root) | hints(root) | GUARDS["queues"])
    newest = log_file(root.state, newest_version(root.state))
    for file in newest.parent.glob(f"*{newest.stem}*"):  # its checksum, too, as healing does
        file.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert _answer(spark, text).startswith("records are missing after position")
    assert [row.depth for row in spark.sql("SELECT depth FROM queues").collect()] == [2]


@pytest.mark.slow
def test_bodies_are_not_read_unless_asked_for(spark: SparkSession, root: Root) -> None:
    journal(root, [*START, _put(1)])
    views.register(spark, root, ("queue_messages", "queues", "message_history"), local_rows=0)

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
@pytest.mark.parametrize("local_rows", [0, LOCAL_ROWS])
def test_a_query_is_of_the_moment_at_which_it_was_analysed(
    spark: SparkSession, root: Root, local_rows: int
) -> None:
    """All views in it are; and the next query is of the next moment."""
    journal(root, [*START, _put(1)])
    views.register(spark, root, ("queues", "message_history"), local_rows=local_rows)
    before = spark.table("queues")
    journal(root, [_put(2)], first=5)
    assert before.collect()[0].depth == 1
    assert spark.table("queues").collect()[0].depth == 2
    moments = []

    def moment_of(root: Root, _as_of: None) -> Moment:
        moments.append(moment := duckdb_views.moment_of(root))
        journal(root, [_put(5 + len(moments))], first=5 + len(moments))
        return moment

    both = "SELECT max(depth), count(*) FROM queues JOIN message_history USING (queue)"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(view_relations, "moment_of", moment_of)
        assert [tuple(row) for row in spark.sql(both).collect()] == [(2, 2)]
        assert [tuple(row) for row in spark.sql(both).collect()] == [(3, 3)]
    assert len(moments) == 2


@pytest.mark.parametrize("local_rows", [0, LOCAL_ROWS])
def test_a_queue_that_was_deleted_meanwhile_is_gone_with_its_messages(
    spark: SparkSession, root: Root, local_rows: int
) -> None:
    journal(root, [*START, _put(1)])
    views.register(spark, root, ("queues", "queue_messages"), local_rows=local_rows)
    assert spark.table("queue_messages").count() == 1
    journal(root, [queue_destroyed(5, "q")], first=5)
    assert spark.sql("SELECT queue FROM queues UNION SELECT queue FROM queue_messages").count() == 0


@pytest.mark.slow
def test_an_answer_too_large_for_local_rows_is_a_plan(
    spark: SparkSession, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(root, [*START, _put(1), _put(2)])
    views.register(spark, root, ("queues", "message_history"), local_rows=1)

    def leaves(view: str) -> set[str]:
        plan = spark.table(view)._jdf.queryExecution().analyzed()
        return {type_.getClass().getSimpleName() for type_ in elements(plan.collectLeaves())}

    assert leaves("queues") == {"LocalRelation"}
    assert "LogicalRelation" in leaves("message_history")
    monkeypatch.setattr(view_relations, "_LOCAL_BYTES", 1)
    assert "LogicalRelation" in leaves("queues")


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

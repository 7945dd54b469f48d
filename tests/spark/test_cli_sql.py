"""`sparkstore sql` answers queries, and refuses everything else before it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkstore import session_effort as effort
from sparkstore.cli.command_line import main
from sparkstore.cli.queries import spark_sql
from sparkstore.cli.queries.query_result import QueryResult
from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.root import Root
from sparkstore.views import message_choice, views
from sparkstore.views.spark_tables import delta_name, translated

CALL = "'java.lang.System', 'setProperty', 'sparkstore.test', 'called'"


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession, module_root: Root) -> None:
    views.register(spark, module_root)


@pytest.fixture
def local_time_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="module")
def elsewhere(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Delta table of three rows, `t`, and a file, `secret`, of which the root knows nothing."""
    folder = tmp_path_factory.mktemp("elsewhere")
    spark.range(3).coalesce(1).write.format("delta").save(str(folder / "t"))
    (folder / "secret").write_text("s3cret\n")
    return folder


def ask(spark: SparkSession, root: Root, statement: str, limit: int = 0) -> QueryResult:
    return spark_sql.answer(spark, root, statement, limit)


def test_rows_come_in_the_order_that_was_asked_for_and_what_is_cut_is_told(
    spark: SparkSession, module_root: Root
) -> None:
    found = ask(spark, module_root, "SELECT id FROM range(5) ORDER BY id DESC", 2)
    assert found == QueryResult(["id"], [{"id": 4}, {"id": 3}], is_cut=True, types=["bigint"])
    assert not ask(spark, module_root, "SELECT * FROM range(5)", 5).is_cut
    assert len(ask(spark, module_root, "SELECT * FROM range(5)", 0).rows) == 5


@pytest.mark.usefixtures("local_time_is_elsewhere")
def test_every_column_is_told_exactly(spark: SparkSession, module_root: Root) -> None:
    found = ask(
        spark,
        module_root,
        """SELECT 1 AS a, 2 AS a, 3 AS a_2, named_struct('b', 4, 'b', 5) AS s, double('NaN') AS n,
                  map(date'2026-01-02', timestamp'2026-01-02 03:04:05.678901Z') AS m,
                  0.00042 AS d, parse_json('[1]') AS v""",
    )
    assert found.columns == ["a", "a_3", "a_2", "s", "n", "m", "d", "v"]
    (row,) = found.rows
    told = {name: str(value) for name, value in row.items()}
    assert told == {
        "a": "1",
        "a_3": "2",
        "a_2": "3",
        "s": "{'b': 4, 'b_2': 5}",
        "n": "NaN",
        "m": str({"2026-01-02": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)}),
        "d": "0.00042",
        "v": "[1]",
    }


def test_an_empty_answer_has_its_columns(spark: SparkSession, module_root: Root) -> None:
    assert ask(spark, module_root, "SELECT id FROM range(5) WHERE id > 9").columns == ["id"]


@pytest.mark.parametrize("value", ["INTERVAL 1 MONTH", "timestamp'+12000-01-01 00:00:00'"])
def test_a_value_that_has_no_form_here_is_a_wrong_query(
    spark: SparkSession, module_root: Root, value: str
) -> None:
    with pytest.raises(InvalidRequest, match="make it a string"):
        ask(spark, module_root, f"SELECT {value}")


@pytest.mark.parametrize(
    "statement",
    [
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
        "SHOW VIEWS",
        "DESCRIBE bindings",
        "EXPLAIN SELECT 1",
        "VALUES (1)",
        "SELECT 'DELETE FROM queues' AS harmless",
        "SELECT * FROM range(3), LATERAL explode(array(1))",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) TABLE r",
        "SELECT transform(array(1, 2), x -> x + 1), (SELECT max(id) FROM range(5))",
    ],
)
def test_a_query_of_any_form_is_answered(
    spark: SparkSession, module_root: Root, statement: str
) -> None:
    assert ask(spark, module_root, statement).rows != []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {table}",
        "INSERT INTO {table} SELECT 1",
        "WITH a AS (SELECT 1 AS x) INSERT INTO {table} SELECT x FROM a",
        "FROM range(5) INSERT INTO {table} SELECT id INSERT INTO {table} SELECT id",
        "UPDATE {table} SET id = 1",
        "MERGE INTO {table} USING bindings ON false WHEN NOT MATCHED THEN INSERT *",
        "OPTIMIZE {table}",
        "VACUUM {table}",
        "DROP VIEW queues",
        "CREATE TABLE other AS SELECT 1",
        "SET spark.sql.ansi.enabled = false",
        "SET VAR x = 1",
        "BEGIN DELETE FROM {table}; END",
        "EXECUTE IMMEDIATE 'DELETE FROM {table}'",
        "EXPLAIN DELETE FROM {table}",
        "ADD JAR '/tmp/some.jar'",
        "CREATE TEMPORARY FUNCTION f AS 'some.Class'",
        "CACHE TABLE queues",
    ],
)
def test_a_statement_that_changes_something_is_refused_and_changes_nothing(
    spark: SparkSession, module_root: Root, elsewhere: Path, statement: str
) -> None:
    table = f"delta.`{elsewhere / 't'}`"
    with pytest.raises(InvalidRequest, match="only queries"):
        ask(spark, module_root, statement.format(table=table))
    assert newest_version(elsewhere / "t") == 0
    assert spark.catalog.tableExists("queues")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT TRANSFORM(id) USING 'touch {file}' AS (x) FROM range(5)",
        "WITH a AS (SELECT TRANSFORM(id) USING 'touch {file}' AS (x) FROM range(5)) TABLE a",
        "SELECT (SELECT max(x) FROM (SELECT TRANSFORM(1) USING 'touch {file}' AS (x)))",
        "SELECT java_method({call})",
        "SELECT try_reflect({call})",
        "SELECT system.builtin.reflect({call})",
        "SELECT IDENTIFIER('ref' || 'lect')({call})",
        "SELECT sum(id) OVER w FROM range(5) WINDOW w AS (ORDER BY reflect({call}))",
    ],
)
def test_no_program_is_run(
    spark: SparkSession, module_root: Root, tmp_path: Path, statement: str
) -> None:
    file = tmp_path / "touched"
    with pytest.raises(InvalidRequest):
        ask(spark, module_root, statement.format(file=file, call=CALL))
    assert not file.exists()
    jvm: Any = spark._jvm
    assert jvm.java.lang.System.getProperty("sparkstore.test") is None


def test_a_predicate_runs_no_program(spark: SparkSession, module_root: Root) -> None:
    said = "reflect(" + CALL + ") = 'x'"
    with pytest.raises(InvalidRequest, match="reflect"):
        message_choice.waiting(spark, module_root, "orders", said)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM text.`{file}`",
        "SELECT * FROM IDENTIFIER('text.`{file}`')",
        "SELECT * FROM IDENTIFIER(lower('TEXT') || '.`{file}`')",
        "SELECT (SELECT max(value) FROM text.`{file}`)",
        "WITH a AS (TABLE text.`{file}`) SELECT * FROM a",
        "SELECT sum(id) OVER w FROM range(5) WINDOW w AS"
        " (ORDER BY (SELECT max(value) FROM text.`{file}`))",
        "SELECT * FROM delta.`{folder}`",
        "SELECT * FROM delta.`{folder}` VERSION AS OF 0",
        "SELECT * FROM delta.`{root}/../{folder}`",
        "SELECT * FROM table_changes_by_path('{folder}', 0)",
        "DESCRIBE HISTORY '{folder}'",
        "DESCRIBE DETAIL '{folder}'",
        "EXPLAIN SELECT * FROM text.`{file}`",
    ],
)
def test_no_file_but_the_roots_tables_is_read(
    spark: SparkSession, module_root: Root, elsewhere: Path, statement: str
) -> None:
    root = str(module_root.path).replace("`", "``")
    names = {"file": elsewhere / "secret", "folder": elsewhere / "t", "root": root}
    with pytest.raises(InvalidRequest) as refused:
        ask(spark, module_root, statement.format(**names))
    assert "s3cret" not in str(refused.value)


def test_the_views_and_the_roots_own_tables_may_be_asked(
    spark: SparkSession, module_root: Root
) -> None:
    assert ask(spark, module_root, "SELECT queue, depth FROM queues").columns == ["queue", "depth"]
    name = delta_name(module_root.journal)
    for statement in (f"SELECT count(*) AS n FROM {name}", f"SELECT 1 FROM {name} VERSION AS OF 0"):
        assert ask(spark, module_root, statement).columns != []


@pytest.mark.parametrize(
    "statement", ["SELEC 1", "SELECT nope FROM bindings", "SELECT 1; SELECT 2"]
)
def test_a_wrong_query_is_one_line_about_what_is_wrong(
    spark: SparkSession, module_root: Root, statement: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ask(spark, module_root, statement)
    text = str(refused.value)
    assert "\n" not in text
    assert "[" in text  # Spark's name for what is wrong


def test_a_query_that_fails_while_it_runs_is_unavailable(
    spark: SparkSession, module_root: Root
) -> None:
    with pytest.raises(Unavailable, match="boom"):
        ask(spark, module_root, "SELECT raise_error('boom')")


def test_the_answer_of_the_command_is_told_when_it_is_cut(
    spark: SparkSession,
    module_root: Root,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparkstore.session.local_session", lambda _app, **_options: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _spark: None)
    monkeypatch.setattr("sparkstore.cli.queries.sql.SQL_ROWS", 2)
    root, statement = str(module_root.path), "SELECT id FROM range(5) /* bindings */"
    by_spark = ("--engine", "spark")
    assert main(["sql", *by_spark, root, statement]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    assert "first 2 rows" in said.err
    assert main(["sql", *by_spark, "--json", root, statement]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 5
    assert said.err == ""
    assert main(["sql", *by_spark, root, f"{statement} WHERE id > 9"]) == 0
    assert capsys.readouterr().out.splitlines() == ["id", "--"]


def test_a_table_that_moved_is_to_be_tried_again_and_its_cause_is_told(
    spark: SparkSession, module_root: Root
) -> None:
    moved = f"SELECT * FROM {delta_name(module_root.journal)} VERSION AS OF 99"
    expected = r"^compact: \[DELTA_VERSION_NOT_FOUND\]"
    with pytest.raises(Unavailable, match=expected), translated("compact"):
        spark.sql(moved)
    jvm: Any = spark._jvm
    expected = r"^compact: .*FileNotFoundException: /not/there"
    with pytest.raises(Unavailable, match=expected), translated("compact"):
        jvm.java.io.FileReader("/not/there")


def test_files_that_were_deleted_under_a_reader_are_told_with_the_cause(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(3).coalesce(1).write.format("delta").save(str(tmp_path / "t"))
    frame = spark.read.format("delta").load(str(tmp_path / "t"))
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.unlink()
    expected = r"^compact: .*reader_grace_s .*, run it again$"
    with pytest.raises(Unavailable, match=expected), translated("compact"):
        frame.collect()
    jvm: Any = spark._jvm
    checkpoint = str(tmp_path / "_delta_log" / "00000000000000000010.checkpoint.parquet")
    with pytest.raises(Unavailable, match=expected), translated("compact"):
        jvm.java.io.FileReader(checkpoint)
    with pytest.raises(Unavailable, match=expected), translated("compact"):
        Path(checkpoint).read_bytes()


def test_only_the_views_that_a_statement_names_are_registered() -> None:
    assert set(views.named_in("SELECT * FROM queues")) == {"queues"}
    joined = 'SELECT * FROM "Queue_Messages" m JOIN Links ON m.queue = links.source'
    assert set(views.named_in(joined)) == {"queue_messages", "links"}
    assert set(views.named_in("SHOW VIEWS")) == set(views.ALL)
    assert set(views.named_in("SELECT * FROM quues")) == set(views.ALL)


def test_little_effort_goes_into_a_query_over_few_rows(
    module_root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert effort.effort_for(module_root) is effort.LITTLE
    monkeypatch.setattr(effort, "_MOST_ROWS", -1)
    assert effort.effort_for(module_root) is effort.FULL

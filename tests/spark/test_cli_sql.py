"""`sparkstore sql` answers queries, and refuses everything else before it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkstore.cli_sql import answer
from sparkstore.errors import InvalidRequest, Unavailable


@pytest.fixture(autouse=True)
def numbers(spark: SparkSession) -> None:
    spark.range(5).createOrReplaceTempView("numbers")


def test_rows_come_in_the_order_that_was_asked_for(spark: SparkSession) -> None:
    rows = answer(spark, "SELECT id FROM numbers ORDER BY id DESC", 2)
    assert rows == [{"id": 4}, {"id": 3}]


def test_limit_0_is_all_rows(spark: SparkSession) -> None:
    assert len(answer(spark, "SELECT * FROM numbers", 0)) == 5


@pytest.mark.parametrize(
    "statement",
    [
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
        "SHOW VIEWS",
        "DESCRIBE numbers",
        "EXPLAIN SELECT 1",
        "VALUES (1)",
        "SELECT 'DELETE FROM numbers' AS harmless",
    ],
)
def test_a_query_of_any_form_is_answered(spark: SparkSession, statement: str) -> None:
    assert answer(spark, statement) != []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {table}",
        "INSERT INTO {table} SELECT 1",
        "WITH a AS (SELECT 1 AS x) INSERT INTO {table} SELECT x FROM a",
        "FROM numbers INSERT INTO {table} SELECT id INSERT INTO {table} SELECT id",
        "UPDATE {table} SET id = 1",
        "MERGE INTO {table} USING numbers ON false WHEN NOT MATCHED THEN INSERT *",
        "OPTIMIZE {table}",
        "VACUUM {table}",
        "DROP VIEW numbers",
        "CREATE TABLE other AS SELECT 1",
        "SET spark.sql.ansi.enabled = false",
    ],
)
def test_a_statement_that_changes_something_is_refused_and_changes_nothing(
    spark: SparkSession, tmp_path: Path, statement: str
) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    table = f"delta.`{tmp_path / 't'}`"
    with pytest.raises(InvalidRequest, match="only queries"):
        answer(spark, statement.format(table=table))
    assert len(answer(spark, f"SELECT * FROM {table}")) == 3
    assert len(answer(spark, "SELECT * FROM numbers")) == 5


@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT nope FROM numbers", "SELECT 1; SELECT 2"])
def test_a_wrong_query_is_one_line_about_what_is_wrong(spark: SparkSession, statement: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        answer(spark, statement)
    text = str(refused.value)
    assert "\n" not in text
    assert "[" in text  # Spark's name for what is wrong


def test_a_query_that_fails_while_it_runs_is_unavailable(spark: SparkSession) -> None:
    with pytest.raises(Unavailable, match="boom"):
        answer(spark, "SELECT raise_error('boom')")

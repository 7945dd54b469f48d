"""The snippets of the documents run on one root; docs/sql.md tells every column of every view."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import MapType, StructType

from sparkstore.jobs import job_runs
from sparkstore.jobs.job_runs import JobRun
from sparkstore.reconcile.findings import Finding, write
from sparkstore.session import local_session
from sparkstore.tables.root import Root
from sparkstore.views import views
from sparkstore.views.views import LOGS
from tests.support.documents import DOCUMENTS, blocks, text_of, view_columns

ALL = "".join(page.read_text() for page in DOCUMENTS)


def snippet(page: str, word: str) -> str:
    """The Python of a page that has a word in it."""
    (found,) = [block for block in blocks(text_of(page), "python") if word in block]
    return found


def test_the_snippets_run_and_every_query_has_an_answer(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "queues"
    storing = snippet("docs/store-interface.md", "enqueued.complete")
    questions = snippet("README.md", "spark.sql").replace('"shop"', repr(str(root)))
    exec(compile(storing, "docs/store-interface.md", "exec"), {"root": root})
    exec(compile(questions, "README.md", "exec"), {})
    assert "orders" in capsys.readouterr().out
    queries = blocks(ALL, "sql")
    assert len(queries) == 11
    for query in queries:
        views.sql(spark, root, query).collect()
    import_module("pyspark.pandas")  # fails with a pandas that pyspark does not know
    frame = spark.table("queues").pandas_api()
    assert frame.groupby("queue")["depth"].sum().to_dict().keys() == {"orders"}


def test_a_typo_in_a_query_is_an_error_without_a_log(
    spark: SparkSession, module_root: Root, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether a program has its session from here, or registers the views in one of its own."""
    for prepare in (lambda: local_session("again"), lambda: views.register(spark, module_root)):
        logging.getLogger("SQLQueryContextLogger").disabled = False
        prepare()
        with pytest.raises(AnalysisException, match="queus"):
            spark.sql("SELECT * FROM queus")
        assert capfd.readouterr().err == ""


@pytest.fixture(scope="module")
def schemas(spark: SparkSession, module_root: Root) -> dict[str, StructType]:
    """Of every view, those of the jobs' tables too."""
    job_runs.record(module_root, JobRun("1", "compact", datetime.now(UTC), 1.0, "done", {}))
    write(spark, module_root, "run", [Finding("positions", "error", "journal")])
    views.register(spark, module_root)
    return {view: spark.table(view).schema for view in (*views.VIEWS, *LOGS)}


def test_the_dictionary_tells_every_column_of_every_view_with_its_type(
    schemas: dict[str, StructType],
) -> None:
    there = {
        view: [(field.name, field.dataType.simpleString()) for field in schema]
        for view, schema in schemas.items()
    }
    assert view_columns() == there


def test_no_view_promises_that_a_value_is_there(schemas: dict[str, StructType]) -> None:
    """DuckDB, which computes some of them, cannot; nor does a read by `format("sparkstore")`."""
    fields = [field for schema in schemas.values() for field in schema]
    assert all(field.nullable for field in fields)
    maps = [field.dataType for field in fields if isinstance(field.dataType, MapType)]
    assert all(kind.valueContainsNull for kind in maps)


def test_the_readme_names_every_view() -> None:
    named = re.findall(r"^\| (`.*?) \|", text_of("README.md"), re.MULTILINE)
    assert {*views.VIEWS, *LOGS} <= set(re.findall(r"`(\w+)`", " ".join(named)))

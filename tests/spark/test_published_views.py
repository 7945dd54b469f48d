"""Permanent views, in a catalog that outlives the session: spark-sql queries them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sparkstore.core.records import ids_reserved, message_enqueued, opened, queue_created
from sparkstore.errors import InvalidRequest
from sparkstore.reconcile.findings import Finding, write
from sparkstore.session import CONF, SETTINGS
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.spark.tables import HEADER, journal

SPARK_SQL = Path(pyspark.__file__).parent / "bin" / "spark-sql"
QUERY = """
SELECT queue, depth FROM broker_1.queues;
SELECT job, outcome, error FROM broker_1.job_runs;
SELECT `check`, subject FROM broker_1.findings;
"""


def catalog(place: Path) -> dict[str, str]:
    """Settings of Spark for a catalog in a folder: Derby in Spark's own process."""
    url = f"jdbc:derby:;databaseName={place}/metastore;create=true"
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{place}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": url,
    }


def told(program: Sequence[str | Path], settings: dict[str, str], place: Path) -> list[str]:
    """Run a program with settings of Spark, and return the lines that it prints."""
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [*program, *given], capture_output=True, text=True, check=False, cwd=place, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.thorough
def test_spark_sql_queries_what_the_command_published(
    spark: SparkSession, root: Root, tmp_path: Path
) -> None:
    records = [opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", "{}")]
    journal(root, [*records, message_enqueued(1, "q", 1, HEADER, b"abc")])
    write(spark, root, "run", [Finding("positions", "error", "journal")])
    command = [sys.executable, "-m", "sparkstore", "compact", root.path, "--publish", "broker_1"]
    told(command, catalog(tmp_path), tmp_path)
    shell = {**SETTINGS, "spark.jars.ivySettings": str(CONF / "ivysettings.xml")}
    lines = told([SPARK_SQL, "-e", QUERY], {**shell, **catalog(tmp_path)}, tmp_path)
    assert lines[-3:] == ["q\t1", "compact\tdone\tNULL", "positions\tjournal"]


def test_without_a_catalog_there_is_nowhere_to_publish(spark: SparkSession, root: Root) -> None:
    with pytest.raises(InvalidRequest, match="catalog"):
        views.publish(spark, root, "broker")


@pytest.mark.slow
@pytest.mark.thorough
def test_a_name_in_the_catalog_follows_its_table_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    places = [str(tmp_path / name) for name in ("o'ne", "two")]
    for number, place in enumerate(places):
        write_deltalake(place, pa.table({"number": [number]}))
    for number in (0, 0, 1):
        views.enter(spark, "entered", places[number])
        assert [row.number for row in spark.table("entered").collect()] == [number]
    spark.sql("DROP TABLE entered")
    assert [DeltaTable(place).version() for place in places] == [0, 0]

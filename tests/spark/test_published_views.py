"""Permanent views, in a catalog that outlives the session: another process queries them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sparkstore.core.records import ids_reserved, message_enqueued, opened, queue_created
from sparkstore.errors import InvalidRequest
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.spark.tables import HEADER, journal

_SESSION = """
import sys
from sparkstore.session import local_session
root, place = sys.argv[1:]
spark = local_session("catalog", heap="1g", java_options="-XX:TieredStopAtLevel=1", settings={
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.warehouse.dir": place + "/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL":
        "jdbc:derby:;databaseName=" + place + "/metastore;create=true",
})
"""
_PUBLISH = "from sparkstore import views\nviews.publish(spark, root, 'broker_1')\n"
_QUERY = """
found = spark.sql("SELECT queue, depth FROM broker_1.queues").collect()
print(*found[0], len(found))
"""


def _run(script: str, root: Root, place: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SESSION + script, str(root.path), str(place)],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.thorough
def test_another_session_queries_what_was_published(root: Root, tmp_path: Path) -> None:
    records = [opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", "{}")]
    journal(root, [*records, message_enqueued(1, "q", 1, HEADER, b"abc")])
    _run(_PUBLISH, root, tmp_path)
    assert _run(_QUERY, root, tmp_path) == "q 1 1\n"


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

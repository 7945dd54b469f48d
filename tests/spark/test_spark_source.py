"""`format("sparkstore")` in a session: the rows of the views, fewer columns, several roots.

That the embedded engine and Spark's views give equal values is tested elsewhere, for every view.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.seeds import seed
from tests.support.roots.roots import build_root

SEED = seed()
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Ten histories in one root, cut anywhere, with messages that wait."""
    chance = random.Random(SEED)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(10)])
    root = build_root(tmp_path_factory.mktemp("told") / "ro'ot ü", drawn_layers(chance, history))
    views.register(spark, root, ["queue_messages"], local_rows=0)
    return root


def reading(spark: SparkSession, root: Root) -> DataFrameReader:
    return spark.read.format("sparkstore").option("path", str(root.path))


@pytest.mark.slow
def test_a_read_has_the_columns_and_rows_of_the_view(spark: SparkSession, told: Root) -> None:
    there = spark.table("queue_messages")
    plain = reading(spark, told).load()
    assert plain.columns == [name for name in there.columns if name != "body"]
    whole = reading(spark, told).option("columns", "*").load()
    assert [(f.name, f.dataType) for f in whole.schema] == [
        (f.name, f.dataType) for f in there.schema
    ]
    names = ["queue", "message_id", "position", "enqueued_at", "body"]
    wanted = Counter(there.select(names).collect())
    assert wanted, f"seed {SEED}"
    assert Counter(whole.select(names).collect()) == wanted, f"seed {SEED}"
    assert plain.count() == wanted.total()


@pytest.mark.slow
def test_columns_roots_and_filters_are_chosen(spark: SparkSession, told: Root) -> None:
    where = str(told.path)
    narrow = reading(spark, told).schema("position long, queue string").load()
    rows = narrow.orderBy("position").collect()
    assert narrow.columns == ["position", "queue"]
    both = spark.read.format("sparkstore").option("path", f"{where},{where}")
    twice = both.schema("root string, position long").load().collect()
    assert Counter(twice) == Counter(2 * [(where, row.position) for row in rows])
    queue, middle = rows[0].queue, rows[len(rows) // 2].position
    of_queue = reading(spark, told).option("QUEUE", queue).load()
    assert of_queue.count() == sum(row.queue == queue for row in rows)
    spark.conf.set(PUSH_DOWN, "true")
    try:
        pushed = reading(spark, told).option("pushFilters", "true").load()
        found = pushed.where(pushed.position > middle).where("queue LIKE '%' OR priority = 9")
        assert found.count() == sum(row.position > middle for row in rows)
    finally:
        spark.conf.unset(PUSH_DOWN)


@pytest.mark.slow
def test_a_temporary_view_of_sql_reads_a_root(spark: SparkSession, told: Root) -> None:
    where = str(told.path).replace("'", "\\'")
    options = f"OPTIONS (path '{where}', view 'message_history', target 'orders')"
    spark.sql(f"CREATE TEMPORARY VIEW source_view USING sparkstore {options}")
    assert spark.table("source_view").count() > 0
    spark.catalog.dropTempView("source_view")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"view": "queus"}, "", "there is no view 'queus': there are queues, queue_messages"),
        ({"veiw": "queues"}, "", "is view meant"),
        ({"columns": "queue,bdy"}, "", "has no column 'bdy'"),
        ({}, "bdy binary", "has no column 'bdy'"),
        ({}, "queue long", "column queue cannot be read as int64"),
        ({"path": "/nowhere"}, "", "is not a sparkstore root"),
    ],
)
def test_a_mistake_is_told(
    spark: SparkSession, told: Root, options: dict[str, str], schema: str, message: str
) -> None:
    reader = reading(spark, told).options(**options)
    with pytest.raises(PySparkException, match=message):
        (reader.schema(schema) if schema else reader).load().collect()

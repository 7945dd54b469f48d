"""How much Spark puts into a query before it runs: little over a root of few rows.

The plans of the views are long. To compile them to Java, to plan them anew after each stage, and
to ask which files may be skipped takes seconds, whatever the number of rows. Measured with 2,000
messages, seconds of processor time of a first `SELECT queue, depth FROM queues` and of a second:
15.3 and 5.4 as shipped; 13.2 and 5.0 without plans anew; 9.9 and 3.9 without compilation, too; 7.8
and 2.8 without the question about files. The JVM's second compiler costs a first query as
much again (23.6 instead of 15.3). Spark's checks of each change of a plan, and its search for joins
that a Bloom filter would make smaller, cost a tenth of the planning (0.51 to 0.46 s of `queues`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkstore.tables.root import TABLES, Root
from sparkstore.tables.snapshot import snapshot

_MOST_ROWS = 100_000


@dataclass(frozen=True)
class Effort:
    """Settings of a session, and options of its JVM."""

    settings: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""


LITTLE = Effort(
    {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.stats.skipping": "false",
        "spark.sql.lightweightPlanChangeValidation": "false",
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    },
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
)
FULL = Effort()


def effort_for(root: Root) -> Effort:
    """Choose by the rows of the three tables, from Delta's logs.

    Raises:
        Unavailable: A table cannot be read.
    """
    rows = sum(file.row_count for table in TABLES for file in snapshot(root.table(table)))
    return LITTLE if rows <= _MOST_ROWS else FULL

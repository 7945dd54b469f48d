"""How Spark is set up for tests: quick to start and to plan, for plans are long and rows few."""

from __future__ import annotations

import os

from sparkstore.session_effort import LITTLE

IS_SHIPPED = os.environ.get("SPARKSTORE_SPARK") == "shipped"
"""`make test-all` runs everything as Spark is shipped."""

SHORT_QUERIES = {**LITTLE.settings}
"""As `sparkstore sql` asks a root of few rows; tests of the notebook and the demo set none."""

_TASKS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.files.minPartitionNum",
    "spark.sql.leafNodeDefaultParallelism",
)
ONE_TASK = dict.fromkeys(_TASKS, "1")
MANY_TASKS = dict.fromkeys(_TASKS, "2")
"""A third of the time goes into sending plans to tasks and reading them there: a task a stage, but
where it is tested that rows of many partitions come together (the fixture `many_tasks`)."""

QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    " -XX:+UseSerialGC -Xmn600m -XX:MetaspaceSize=300m"
)
"""Short queries: to compile them well costs more than it saves; that cache must be large. Two cores
are shared by three workers: one thread collects, and seldom."""

SETTINGS = MANY_TASKS if IS_SHIPPED else {**SHORT_QUERIES, **ONE_TASK}

"""Which data files a query opened, as its plan says after it has run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_STAGES = ("QueryStageExec",)
_AGAIN = {"ReusedExchangeExec", "ReusedSubqueryExec"}


def opened(spark: SparkSession, query: str) -> Counter[str]:
    """Run a query; how many files it opened of each table, a file as often as it is opened.

    Scans that Spark planned and left out when it saw that nothing can be joined with them are in
    no final plan.
    """
    frame = spark.sql(query)
    frame.collect()
    return opened_by(frame)


def opened_by(frame: DataFrame) -> Counter[str]:
    """The same of a query that has run."""
    found: Counter[str] = Counter()
    _count(frame._jdf.queryExecution().executedPlan(), found)
    return found


def _count(plan: Any, found: Counter[str]) -> None:
    kind = plan.getClass().getSimpleName()
    if kind == "AdaptiveSparkPlanExec":
        _count(plan.executedPlan(), found)
    elif kind.endswith(_STAGES):
        _count(plan.plan(), found)
    elif kind not in _AGAIN:
        if kind == "FileSourceScanExec":
            table = str(plan.relation().location().rootPaths().head().getName())
            found[table] += int(plan.metrics().apply("numFiles").value())
        for inner in (plan.subqueries(), plan.children()):
            for at in range(inner.size()):
                _count(inner.apply(at), found)

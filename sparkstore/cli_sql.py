"""`sparkstore sql`: the answer to one query, and nothing else than queries."""

from __future__ import annotations

import logging
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from sparkstore.errors import InvalidRequest
from sparkstore.tables import translated

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_CHANGES = (_PLANS + "Command", _PLANS + "ParsedStatement")
_HARMLESS = ("Describe", "Explain", "Show")


def answer(spark: SparkSession, statement: str, limit: int = 0) -> list[dict[str, Any]]:
    """The rows that answer a query over the views that are registered; limit 0 is all of them.

    Decision: statements that change something are refused before they run, by what Spark's parser
    makes of them. Each table has one committing engine (Rule 2), and a `DELETE FROM delta.…` typed
    here would be a second one. Looking at the words instead would refuse good queries, and miss
    `WITH … INSERT`.

    Raises:
        InvalidRequest: It is not SQL, names what is not there, or is not a query.
        Unavailable: Spark failed; the views' guard found that records were moved meanwhile.
    """
    # PySpark logs a failed query as JSON with both stacks, before it raises what we report.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    with translated("the query failed"):
        if _changes_something(_parsed(spark, statement)):
            message = "only queries are answered here: SELECT, SHOW, DESCRIBE or EXPLAIN"
            raise InvalidRequest(message)
        frame = spark.sql(statement)
        rows = (frame.limit(limit) if limit else frame).collect()
        return [row.asDict(recursive=True) for row in rows]


def _parsed(spark: SparkSession, statement: str) -> Any:
    """The plan as the parser leaves it: nothing was looked up, nothing has run."""
    try:
        return spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)  # noqa: SLF001
    except ParseException as reason:  # its first line is empty
        raise InvalidRequest(str(reason).strip().splitlines()[0]) from reason


def _changes_something(plan: Any) -> bool:
    gateway = SparkContext._gateway  # noqa: SLF001  # is_instance_of asks for it
    if any(is_instance_of(gateway, plan, name) for name in _CHANGES):
        return not plan.getClass().getSimpleName().startswith(_HARMLESS)
    children = plan.children()
    return any(_changes_something(children.apply(at)) for at in range(children.size()))

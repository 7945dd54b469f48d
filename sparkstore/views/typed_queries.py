"""Check SQL that somebody typed: it may ask the views and tables of one root, nothing else.

Whoever may only ask must not run a command on this machine, read another file, send a request, or
change a table, each of which has one committing engine. So this check lists what may pass
(`permitted_sql`), and looks twice:

- *As written*, before Spark looks up a name, since to look up a path is to read it. What stands at
  the top is a query, or one of a few statements that tell what there is; everything in the tree is
  a part of a query; a function is one that computes; a relation is named by the name of a view, by
  one that the statement defines itself (WITH), or is one of the root's tables by its path, all
  links followed. The whole tree is gone through, each field of each node: children alone would miss
  what Spark keeps elsewhere (a clause WINDOW, what is explained).
- *Analysed*, before a row is read or a statement runs: again by lists, and each leaf must be a
  view of ours, a table of the root, or nothing that is read.

What was analysed is what runs. It is parsed and analysed in a clone of the session, where the
functions that do not pass are missing, and where Spark does not put the environment into the text
(`${env:HOME}`); the caller's session keeps its own.

Decision: functions of a program (a UDF) and its other views do not pass, either. A program that
wants them registers the views and asks Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession

from sparkstore.errors import InvalidRequest
from sparkstore.views import permitted_sql as permitted
from sparkstore.views.analysed_queries import check_analysed
from sparkstore.views.plan_trees import kind_of, nodes
from sparkstore.views.schema_calls import without_schema_calls
from sparkstore.views.written_queries import Relations, check_expression, check_written


def ask(spark: SparkSession, relations: Relations, statement: str) -> DataFrame:
    """Answer one statement; one that is no query (SHOW, DESCRIBE, EXPLAIN) has run then.

    Raises:
        InvalidRequest: It is no query, or asks for more than these relations.
        ParseException, AnalysisException: It is not SQL, or names what is not there.
    """
    session = _Session(spark)
    statement = without_schema_calls(
        statement, session.parse, lambda query: _texts(spark, relations, query)
    )
    parsed = session.parse(statement)
    check_written(relations, parsed)
    kind = kind_of(parsed)
    if kind in permitted.QUERY_OF:
        query = getattr(parsed, permitted.QUERY_OF[kind])()
        check_analysed(relations, session.analyse(query), permitted.ANALYSED)
        return session.run_here(parsed)
    analysed = session.analyse(parsed)
    if kind in permitted.STATEMENTS:
        check_analysed(relations, analysed, permitted.ANALYSED_STATEMENTS)
        return session.run_here(analysed)
    check_analysed(relations, analysed, permitted.ANALYSED)
    return session.run_at_the_caller(analysed)


def _texts(spark: SparkSession, relations: Relations, query: str) -> list[str | None]:
    return [row.text for row in ask(spark, relations, query).collect()]


def condition(spark: SparkSession, predicate: str) -> Column:
    """The column that a predicate computes from one row; it asks no other table.

    Raises:
        InvalidRequest: It has a sub-query, or a function that does more than to compute.
        ParseException: It is no expression.
    """
    session = _Session(spark)
    parsed = session.parse_expression(predicate)
    if session.has_query(parsed):
        message = "one table only, without sub-queries: ask for more with sparkstore sql, and name"
        raise InvalidRequest(f"{message} the messages it finds by message_id")
    for kind, node in nodes(parsed):
        check_expression(kind, node)
    return session.column(parsed)


class _Session:
    """A clone of a session, in which typed SQL is parsed and analysed."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._clone: Any = spark._jsparkSession.cloneSession()  # noqa: SLF001
        self._clone.conf().set("spark.sql.variable.substitute", "false")
        state = self._clone.sessionState()
        _keep_permitted(state.functionRegistry(), permitted.OURS)
        _keep_permitted(state.tableFunctionRegistry(), permitted.OF_VIEWS)

    def parse(self, statement: str) -> Any:
        with self._parsing() as parser:
            return parser.parsePlan(statement)

    def parse_expression(self, text: str) -> Any:
        with self._parsing() as parser:
            return parser.parseExpression(text)

    @contextmanager
    def _parsing(self) -> Iterator[Any]:
        """The clone's parser, which takes its settings from the session of the thread."""
        sessions = self._jvm.org.apache.spark.sql.classic.SparkSession
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._clone)
        try:
            yield self._clone.sessionState().sqlParser()
        except Py4JJavaError as reason:  # what PySpark has no class for: a script, a stack overflow
            failure: Any = reason.java_exception
            raise InvalidRequest(str(failure.toString()).splitlines()[0]) from reason
        finally:
            sessions.clearActiveSession()
            if before.isDefined():
                sessions.setActiveSession(before.get())

    def has_query(self, expression: Any) -> bool:
        patterns = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        return bool(expression.containsPattern(patterns.PLAN_EXPRESSION()))

    def analyse(self, plan: Any) -> Any:
        """The plan with its names looked up; a statement does not run."""
        skip = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        return self._clone.sessionState().executePlan(plan, skip).analyzed()

    def column(self, expression: Any) -> Column:
        return Column(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))

    def run_here(self, plan: Any) -> DataFrame:
        return self._frame(self._clone, plan)

    def run_at_the_caller(self, plan: Any) -> DataFrame:
        """A frame of the caller's session, where it can be registered as a view or be joined."""
        return self._frame(self._spark._jsparkSession, plan)  # noqa: SLF001

    def _frame(self, session: Any, plan: Any) -> DataFrame:
        frame = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)
        return DataFrame(frame, self._spark)


def _keep_permitted(registry: Any, ours: Set[str]) -> None:
    """Drop all functions but the permitted ones; to list them is one call of the JVM."""
    identifiers = registry.listFunction()
    names = identifiers.mkString("\n").split("\n")
    for at, name in enumerate(names):
        if name not in ours and (name.rpartition("builtin.")[2] not in permitted.FUNCTIONS):
            registry.dropFunction(identifiers.apply(at))

"""What a query that somebody typed may do: ask the views of one root, and nothing else.

Whoever may only ask must not run a command on this machine, read another file, send a request, or
change a table, each of which has one committing engine. Refused are

- statements that are no query, by what Spark's parser makes of them: a look at the words would
  refuse good queries, and miss `WITH … INSERT`;
- programs: `TRANSFORM … USING`, and the functions that call Java (`reflect`), which are taken out
  of the session, so that no way of naming them is left;
- files: a relation is named by one word (a view, a common table expression) or is one of the
  root's own Delta tables; so neither ``text.`/etc/passwd` `` nor a table that a function reads.

Names are looked at before Spark looks them up, since to look up a path is to read it. What names
hide (an `IDENTIFIER` that is computed, a sub-query in a `WINDOW` clause) is found in the analysed
plan, before a row is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import normpath
from pathlib import Path
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from sparkstore.errors import InvalidRequest
from sparkstore.tables.root import Root

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_STATEMENTS = (_PLANS + "Command", _PLANS + "ParsedStatement")
_SCRIPTS = {"CompoundBody", "UnresolvedExecuteImmediate"}
_HARMLESS = ("Describe", "Explain", "Show")
_PROGRAMS = {"ScriptTransformation"}
_FORBIDDEN = {
    "reflect", "java_method", "try_reflect", "table_changes", "table_changes_by_path",
    "python_worker_logs",
}  # fmt: skip
_RELATIONS = {
    "UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView", "UnresolvedView",
}  # fmt: skip
_PATHS = "UnresolvedPathBased"
_NO_FILES = {
    "OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "CommandResult", "EmptyRelation",
    "UnionLoopRef",
}  # fmt: skip


def forget_programs(spark: SparkSession) -> None:
    """Take the functions that call Java, or read a table by its path, out of a session for good."""
    state = spark._jsparkSession.sessionState()  # noqa: SLF001
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        for identifier in _each(registry.listFunction()):
            if identifier.funcName() in _FORBIDDEN:
                registry.dropFunction(identifier)


def check_statement(spark: SparkSession, root: Root, statement: str) -> None:
    """Refuse a statement before anything that it names is looked up.

    Raises:
        InvalidRequest: It is not SQL, no query, or asks for more than the views.
    """
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)  # noqa: SLF001
    except ParseException as reason:  # its first line is empty
        raise InvalidRequest(str(reason).strip().splitlines()[0]) from reason
    for each in _plans(plan):
        _check_kind(each)
        _check_name(root, each)


def check_plan(root: Root, frame: DataFrame) -> None:
    """Refuse what Spark found behind the names of a query, before a row is read.

    Raises:
        InvalidRequest: It runs a program, or reads a file that is not one of the root's tables.
    """
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    if _is_statement(analysed):  # one that only shows: it has run
        return
    for plan in (analysed, *_each(analysed.subqueriesAll())):
        for each in _nodes(plan):
            if _kind(each) in _PROGRAMS:
                raise InvalidRequest(_NO_PROGRAMS)
            is_leaf = each.children().isEmpty()
            if is_leaf and _kind(each) not in _NO_FILES and not _is_of(root, each):
                raise InvalidRequest(_ASK_VIEWS)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for each in _each(plan.children()):
        yield from _nodes(each)


_NO_PROGRAMS = "a query runs no programs here: no TRANSFORM … USING"
_ASK_VIEWS = (
    "a query asks the views here (queues, queue_messages, …: sparkstore sql --help), or the"
    " root's own tables as delta.`PATH`: no other file or table"
)


def _check_kind(plan: Any) -> None:
    if _kind(plan) in _PROGRAMS:
        raise InvalidRequest(_NO_PROGRAMS)
    if (_is_statement(plan) or _kind(plan) in _SCRIPTS) and not _kind(plan).startswith(_HARMLESS):
        message = "only queries are answered here: SELECT, SHOW, DESCRIBE or EXPLAIN"
        raise InvalidRequest(message)


def _is_statement(plan: Any) -> bool:
    gateway = SparkContext._gateway  # noqa: SLF001  # is_instance_of asks for it
    return any(is_instance_of(gateway, plan, name) for name in _STATEMENTS)


def _check_name(root: Root, plan: Any) -> None:
    kind = _kind(plan)
    if kind.startswith(_PATHS):
        raise InvalidRequest(_ASK_VIEWS)
    if kind in _RELATIONS:
        parts = list(_each(plan.multipartIdentifier()))
        if len(parts) > 1 and not _is_a_table_of(root, parts):
            raise InvalidRequest(_ASK_VIEWS)


def _is_a_table_of(root: Root, parts: list[str]) -> bool:
    engine, *path = parts
    return engine.lower() == "delta" and len(path) == 1 and _is_below(root, path[0])


def _is_of(root: Root, leaf: Any) -> bool:
    """True for a relation of files that are all in the root."""
    gateway = SparkContext._gateway  # noqa: SLF001
    if _kind(leaf) != "LogicalRelation" or not is_instance_of(gateway, leaf.relation(), _FILES):
        return False
    paths = _each(leaf.relation().location().rootPaths())
    return all(_is_below(root, path.toUri().getPath()) for path in paths)


def _is_below(root: Root, path: str) -> bool:
    return Path(normpath(path)).is_relative_to(root.path) and ".." not in Path(path).parts


def _plans(plan: Any) -> Iterator[Any]:
    """A parsed plan and all in it: of common table expressions, sub-queries, what is explained."""
    yield plan
    kind = _kind(plan)
    inner = [*_each(plan.children()), *_each(plan.innerChildren()), *_each(plan.subqueries())]
    if kind == "RelationTimeTravel":
        inner.append(plan.relation())
    if kind == "ExplainCommand":
        inner.append(plan.logicalPlan())
    for each in inner:
        yield from _plans(each)


def _kind(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.size()))

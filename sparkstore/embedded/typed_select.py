"""A query that somebody typed may ask the views of one root in DuckDB, and do nothing else.

The same is kept out as with Spark (`sparkstore.views.typed_queries`): commands, other files,
requests, changes. What is let in is listed (functions in `FUNCTIONS`), so what DuckDB learns
tomorrow is refused until somebody lists it. Refused are

- what is not one SELECT (or EXPLAIN of one), by what DuckDB's own parser says;
- a relation that is neither a view of the root nor a common table expression that is visible
  where it is named (`_scoped`), and one that is named with a schema or a catalog: so neither a file
  nor the engine's own tables;
- a common table expression with the name of a table of the engine or of ours: should DuckDB ever
  see its scope otherwise than this check does, the name leads nowhere;
- a table function that is not in `_TABLE_FUNCTIONS`: many read files, one takes an address in
  memory;
- a function that is not DuckDB's own, or is not one of its arguments alone: a sequence, the
  engine's log, a pause. Random numbers are let in.

Behind this check the connection has no access to files, loads no extension, sees no variable of
Python and takes no setting (`duckdb_views.SETTINGS`): each alone refuses most of the attempts in
the tests.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import duckdb
from duckdb import StatementType

from sparkstore.embedded.arrow_functions import NAMES
from sparkstore.errors import InvalidRequest
from sparkstore.sql.dialect import MACROS

_EXPLAINED = re.compile(r"\s*EXPLAIN\b(\s+ANALYZE\b)?", re.IGNORECASE)
_PARTS = {
    "SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE",
    "EMPTY", "BASE_TABLE", "JOIN", "SUBQUERY", "TABLE_FUNCTION", "EXPRESSION_LIST", "SHOW_REF",
    "PIVOT",
}  # fmt: skip
"""What a query may be made of: its SELECTs, and what they stand on."""
_UNNAMED = {"STAR", "POSITIONAL_REFERENCE", "PIVOT"}
"""What reads columns that it does not name."""
_TABLE_FUNCTIONS = {"range", "generate_series", "unnest", "json_each", "json_tree"}
_NOT_OF_ARGUMENTS = {
    "combine", "finalize", "to_aggregate_state", "invoke", "getvariable", "current_setting",
    "json_serialize_plan", "parse_duckdb_log_message",
}  # fmt: skip
"""Said to be functions of their arguments, but of the engine's inside, or of its settings."""
_OPERATOR = re.compile(r"[^\w\s]+(__postfix)?")
_INSIDE = ("__", "pg_")
"""With these begin the engine's own helpers, and what it has for clients of another database."""
_OURS = "sparkstore_"
"""With this begin the tables that the views stand on."""
_COLUMN_WORDS = re.compile(r"""(?<![\w."'])(at|check|to)(?![\w"'])""", re.IGNORECASE)
"""Columns of views that are words of DuckDB's own: bare they are no SQL."""
_RANDOM = {"random", "uuid", "gen_random_uuid"}

FUNCTIONS = "conf/duckdb_functions"
"""File of the functions that may be called, made by `python -m broker_shim.generate`."""
NOT_A_QUERY = "only one SELECT is answered here (or EXPLAIN or DESCRIBE of one)"
BY_SPARK = "sparkstore sql ROOT --engine spark"
"""What answers more, also to who asked over HTTP."""
_ASK_SPARK = f"{BY_SPARK} answers more"


class Named(NamedTuple):
    """Names that a statement has, of views and of columns.

    Attributes:
        views: The views that it asks.
        columns: All columns that it may read, in small letters, and other names; None: any.
    """

    views: set[str]
    columns: set[str] | None


def check_statement(
    connection: duckdb.DuckDBPyConnection, statement: str, relations: Collection[str]
) -> Named:
    """Refuse a statement before anything that it names is looked up.

    Args:
        connection: Whose parser reads it.
        statement: What was typed.
        relations: What may be asked.

    Raises:
        InvalidRequest: It is not SQL, not one SELECT, or asks for more than the relations.
    """
    try:
        statement.encode()  # a command line may have other bytes
    except UnicodeEncodeError as reason:
        raise InvalidRequest("the query is not in UTF-8: write it anew") from reason
    tree = _parsed(connection, statement)
    taken = _engine_names(connection)
    named = set[str]()
    functions = _functions()
    for node, visible in _scoped(tree):
        _check_part(node)
        _check_expressions(node, taken)
        if "function_name" in node:
            _check_function(node, functions)
        elif node.get("type") == "BASE_TABLE":
            named |= _checked_name(node, visible, relations)
        elif node.get("type") == "SHOW_REF" and not node.get("query"):
            raise InvalidRequest(f"{NOT_A_QUERY}; the views: {', '.join(relations)}")
    return Named(named, _columns([node for node, _ in _scoped(tree)]))


def _columns(nodes: Collection[dict[str, Any]]) -> set[str] | None:
    """List the names of columns; None: some columns are read that no name tells.

    These are a star's, those that are named by their place or that two relations have in common,
    and those of a whole row, whose name is that of its relation.
    """
    names, rows, relations = set[str](), set[str](), set[str]()
    for node in nodes:
        by_place = str(node.get("type")) in _UNNAMED or node.get("column_name_alias")
        if by_place or node.get("ref_type") == "NATURAL":
            return None
        path = [_folded(name) for name in node.get("column_names", ())]
        rows.update(path[-1:])
        names.update(path, map(_folded, node.get("using_columns", ())))
        if "class" not in node:
            relations.update(_folded(node.get(name)) for name in ("alias", "table_name"))
    return names if rows.isdisjoint(relations) else None


def _parsed(connection: duckdb.DuckDBPyConnection, statement: str) -> Any:
    try:
        statements = connection.extract_statements(statement)
    except duckdb.Error as reason:
        words = sorted({word.lower() for word in _COLUMN_WORDS.findall(statement)})
        quoted = " or ".join(f'"{word}"' for word in words)
        hint = f"a column of that name is written {quoted};" if words else "in Spark's SQL?"
        raise InvalidRequest(f"{first_line(reason)}: {hint} {_ASK_SPARK}") from reason
    if len(statements) != 1 or "\0" in statement:  # the parser reads nothing behind a NUL
        raise InvalidRequest(NOT_A_QUERY)
    if statements[0].type == StatementType.EXPLAIN:
        inner = _EXPLAINED.sub("", statements[0].query, count=1)
        if inner == statements[0].query:  # what is before it is not looked at
            raise InvalidRequest(NOT_A_QUERY)
        return _parsed(connection, inner)
    if statements[0].type != StatementType.SELECT:
        raise InvalidRequest(NOT_A_QUERY)
    rows = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [statement]).fetchall()
    try:
        tree = json.loads(rows[0][0])
    except RecursionError as reason:
        raise InvalidRequest("the query is nested too deep") from reason
    if tree["error"]:
        raise InvalidRequest(NOT_A_QUERY)
    return tree


class _Sight(NamedTuple):
    """A step of the walk: a name begins to be visible, or ends to be.

    Attributes:
        name: Of a common table expression, folded.
        change: 1 or -1.
    """

    name: str
    change: int


def _scoped(tree: Any) -> Iterator[tuple[dict[str, Any], Counter[str]]]:
    """Yield every object of the parser's tree, with the names that are visible at that moment.

    An expression of a WITH sees those before it, what follows the WITH sees all of them, and
    nothing outside does. A recursive one is visible in its own second half alone. The stack holds
    what comes next at its end: no depth of a query is an error of Python's.
    """
    visible = Counter[str]()
    waiting = [tree]
    while waiting:
        step = waiting.pop()
        if isinstance(step, _Sight):
            visible[step.name] += step.change
        elif isinstance(step, dict):
            yield step, visible
            waiting += _steps(step)
        elif isinstance(step, list):
            waiting += step


def _steps(node: dict[str, Any]) -> list[Any]:
    """List what is in an object, and what becomes visible meanwhile, the first at the end."""
    parts = {name: part for name, part in node.items() if name != "cte_map"}
    half = []
    if node.get("type") == "RECURSIVE_CTE_NODE":
        name = _folded(parts["cte_name"])
        half = [_Sight(name, -1), parts.pop("right"), _Sight(name, 1)]
    expressions = _expressions(node)
    hidden = [_Sight(_folded(expression["key"]), -1) for expression in expressions]
    first = [
        step
        for expression in reversed(expressions)
        for step in (_Sight(_folded(expression["key"]), 1), expression["value"])
    ]
    return [*hidden, *half, *parts.values(), *first]


def _expressions(node: dict[str, Any]) -> list[dict[str, Any]]:
    """List the common table expressions that a node begins with."""
    ctes = node.get("cte_map")
    return list(ctes["map"]) if isinstance(ctes, dict) else []


def _folded(name: Any) -> str:
    """Write a name as DuckDB compares it: ASCII has no case, and a Kelvin sign is no k."""
    return "".join(c.lower() if c.isascii() else c for c in str(name))


def _check_expressions(node: dict[str, Any], taken: Collection[str]) -> None:
    for name in (str(expression["key"]) for expression in _expressions(node)):
        if name.lower() in taken or name.lower().startswith(_OURS):
            raise InvalidRequest(f"a WITH defines {name}, a name of the engine: choose another")


def _checked_name(node: dict[str, Any], visible: Counter[str], views: Collection[str]) -> set[str]:
    """Return the view that a relation is: none, if it is a common table expression."""
    path = [node[part] for part in ("catalog_name", "schema_name", "table_name") if node[part]]
    name = _folded(node["table_name"])
    if len(path) == 1 and visible[name]:
        return set()
    if len(path) != 1 or name not in views:
        message = f"there is no view {'.'.join(path)}: there are {', '.join(views)}"
        raise InvalidRequest(f"{message}; tables of the root by their path: {BY_SPARK}")
    return {name}


def _check_part(node: dict[str, Any]) -> None:
    """Refuse a part of the parsed tree that is not permitted."""
    kind = str(node.get("type", ""))
    is_part = kind.endswith("_NODE") or ("alias" in node and "type" in node)
    is_free = "class" in node or kind.endswith("_TYPE_INFO") or kind in _PARTS
    if is_part and not is_free:
        raise InvalidRequest(f"{NOT_A_QUERY}, and no {kind}")


def _check_function(node: dict[str, Any], functions: Collection[str]) -> None:
    name = str(node["function_name"]).lower()
    if name in _TABLE_FUNCTIONS or name in functions or _OPERATOR.fullmatch(name):
        return
    raise InvalidRequest(f"there is no function {name} here: {_ASK_SPARK}")


@cache
def _functions() -> frozenset[str]:
    """Return the functions that may be called: DuckDB's own that are listed, and ours."""
    listed = files("sparkstore").joinpath(FUNCTIONS).read_text(encoding="utf-8").split()
    macros = (macro.partition("(")[0] for macro in MACROS)
    return frozenset({*listed, *macros, *NAMES})


def own_functions(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """List DuckDB's functions that make a value of their arguments, for `FUNCTIONS`.

    Each question would take 25 ms of processor time for it, so it is asked when the list is made.
    """
    rows = connection.execute(
        "SELECT lower(function_name), bool_or(stability = 'VOLATILE') FROM duckdb_functions()"
        " WHERE function_type IN ('scalar', 'aggregate', 'window', 'macro') GROUP BY ALL"
    ).fetchall()
    names = {name for name, is_volatile in rows if not (is_volatile or name.startswith(_INSIDE))}
    return sorted((names | _RANDOM) - _NOT_OF_ARGUMENTS)


def _engine_names(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """List the relations that DuckDB has without a schema."""
    rows = connection.execute(
        "SELECT lower(view_name) FROM duckdb_views() WHERE schema_name IN ('main', 'pg_catalog')"
    ).fetchall()
    return {name for (name,) in rows}


def first_line(reason: BaseException) -> str:
    """Shorten an error of DuckDB to its first line."""
    lines = (line.strip() for line in str(reason).splitlines())
    return next(filter(None, lines), type(reason).__name__)

"""A query that somebody typed may ask the views of one root in DuckDB, and do nothing else.

The same is kept out as with Spark (`sparkstore.views.typed_queries`): commands, other files,
requests, changes. What is let in is listed, so what DuckDB learns tomorrow is refused until
somebody lists it. Refused are

- what is not one SELECT (or EXPLAIN of one), by what DuckDB's own parser says;
- a relation that is neither a view of the root nor a common table expression of the query, and one
  that is named with a schema or a catalog: so neither a file nor the engine's own tables;
- a table function that is not in `_TABLE_FUNCTIONS`: many read files, one takes an address in
  memory;
- a function that is not DuckDB's own, or is not one of its arguments alone: a sequence, the
  engine's log, a pause. Random numbers are let in.

Behind this gate the connection has no access to files, loads no extension, sees no variable of
Python and takes no setting (`duckdb_views.SETTINGS`): each alone refuses most of the attempts in
the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

import duckdb
from duckdb import StatementType

from sparkstore.errors import InvalidRequest

_EXPLAINED = re.compile(r"\s*EXPLAIN\b(\s+ANALYZE\b)?", re.IGNORECASE)
_PARTS = {
    "SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE",
    "EMPTY", "BASE_TABLE", "JOIN", "SUBQUERY", "TABLE_FUNCTION", "EXPRESSION_LIST", "SHOW_REF",
    "PIVOT",
}  # fmt: skip
"""What a query may be made of: its SELECTs, and what they stand on."""
_TABLE_FUNCTIONS = {"range", "generate_series", "unnest", "json_each", "json_tree"}
_NOT_OF_ARGUMENTS = {
    "combine", "finalize", "to_aggregate_state", "invoke", "getvariable", "current_setting",
    "json_serialize_plan", "parse_duckdb_log_message",
}  # fmt: skip
"""Said to be functions of their arguments, but of the engine's inside, or of its settings."""
_OPERATOR = re.compile(r"[^\w\s]+(__postfix)?")
_INSIDE = ("__", "pg_")
"""With these begin the engine's own helpers, and what it has for clients of another database."""
_RANDOM = {"random", "uuid", "gen_random_uuid"}

NOT_A_QUERY = "only one SELECT is answered here (or EXPLAIN or DESCRIBE of one)"
BY_SPARK = "sparkstore sql ROOT --engine spark"
"""What answers more, also to who asked over HTTP."""
_ASK_SPARK = f"{BY_SPARK} answers more"


def check_statement(
    connection: duckdb.DuckDBPyConnection, statement: str, relations: Collection[str]
) -> set[str]:
    """Refuse a statement before anything that it names is looked up.

    Args:
        connection: Whose parser reads it.
        statement: What was typed.
        relations: What may be asked.

    Returns:
        Which of the relations it names.

    Raises:
        InvalidRequest: It is not SQL, not one SELECT, or asks for more than the relations.
    """
    try:
        statement.encode()  # a command line may have other bytes
    except UnicodeEncodeError as reason:
        raise InvalidRequest("the query is not in UTF-8: write it anew") from reason
    tree = _parsed(connection, statement)
    own = {name.lower() for node in _nodes(tree) for name in _expressions_named(node)}
    named = set[str]()
    functions = _own_functions(connection)
    for node in _nodes(tree):
        _check_part(node)
        if "function_name" in node:
            _check_function(node, functions)
        elif node.get("type") == "BASE_TABLE":
            named.add(_checked_name(node, {*relations, *own}, relations))
        elif node.get("type") == "SHOW_REF" and not node.get("query"):
            raise InvalidRequest(f"{NOT_A_QUERY}; the views: {', '.join(relations)}")
    return named & set(relations)


def _parsed(connection: duckdb.DuckDBPyConnection, statement: str) -> Any:
    try:
        statements = connection.extract_statements(statement)
    except duckdb.Error as reason:
        raise InvalidRequest(f"{first_line(reason)}: in Spark's SQL? {_ASK_SPARK}") from reason
    if len(statements) != 1 or "\0" in statement:  # the parser reads nothing behind a NUL
        raise InvalidRequest(NOT_A_QUERY)
    if statements[0].type == StatementType.EXPLAIN:
        inner = _EXPLAINED.sub("", statements[0].query, count=1)
        if inner == statements[0].query:  # what is before it is not looked at
            raise InvalidRequest(NOT_A_QUERY)
        return _parsed(connection, inner)
    if statements[0].type != StatementType.SELECT:
        raise InvalidRequest(NOT_A_QUERY)
    told = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [statement]).fetchall()
    try:
        tree = json.loads(told[0][0])
    except RecursionError as reason:
        raise InvalidRequest("the query is nested too deep") from reason
    if tree["error"]:
        raise InvalidRequest(NOT_A_QUERY)
    return tree


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the parser's tree, whatever it stands in."""
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _expressions_named(node: dict[str, Any]) -> Iterator[str]:
    """Yield the names of common table expressions that a node begins with."""
    ctes = node.get("cte_map")
    return (str(each["key"]) for each in (ctes["map"] if isinstance(ctes, dict) else ()))


def _checked_name(node: dict[str, Any], allowed: Collection[str], views: Collection[str]) -> str:
    path = [node[part] for part in ("catalog_name", "schema_name", "table_name") if node[part]]
    name = str(node["table_name"]).lower()
    if len(path) != 1 or name not in allowed:
        message = f"there is no view {'.'.join(path)}: there are {', '.join(views)}"
        raise InvalidRequest(f"{message}; tables of the root by their path: {BY_SPARK}")
    return name


def _check_part(node: dict[str, Any]) -> None:
    """Expressions have a class, statements end in `_NODE`; relations have an alias, as types do."""
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


def _own_functions(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """List the functions that make a value of their arguments, our macros too."""
    rows = connection.execute(
        "SELECT lower(function_name), bool_or(stability = 'VOLATILE') FROM duckdb_functions()"
        " WHERE function_type IN ('scalar', 'aggregate', 'window', 'macro') GROUP BY ALL"
    ).fetchall()
    found = {name for name, is_volatile in rows if not (is_volatile or name.startswith(_INSIDE))}
    return (found | _RANDOM) - _NOT_OF_ARGUMENTS


def first_line(reason: BaseException) -> str:
    """Shorten an error of DuckDB to its first line."""
    lines = (line.strip() for line in str(reason).splitlines())
    return next(filter(None, lines), type(reason).__name__)

"""Check a typed query as it is written, before Spark looks up a name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from sparkstore.errors import InvalidRequest
from sparkstore.views import permitted_sql as permitted
from sparkstore.views.plan_trees import elements, nodes

_BUILT_IN: tuple[list[str], ...] = ([], ["builtin"], ["system", "builtin"])
_RELATION = "catalyst.analysis.UnresolvedRelation"
_FUNCTION_NAME = "catalyst.analysis.UnresolvedFunctionName"
_TABLE_FUNCTION = "catalyst.analysis.UnresolvedTableValuedFunction"
ASK_VIEWS = (
    "a query asks the views here (queues, queue_messages, …: sparkstore sql --help), or the"
    " root's own tables as delta.`PATH`: no other file or table"
)


class Relations(NamedTuple):
    """All that a query may read.

    Attributes:
        views: Names of views, in small letters.
        tables: Paths of Delta tables, with all links followed.
    """

    views: frozenset[str]
    tables: frozenset[str]

    def has_table(self, path: str) -> bool:
        """True for the path of a table, by whichever links.

        Two paths are refused that Hadoop reads otherwise than the system does: it takes `..` out
        before it follows a link, and what stands after two slashes for the name of a machine.
        """
        is_plain = not path.startswith("//") and ".." not in path.split("/")
        return is_plain and os.path.realpath(path) in self.tables


def check_written(relations: Relations, parsed: Any) -> None:
    """Refuse a statement by its text alone.

    Raises:
        InvalidRequest: Something in it is in none of the lists.
    """
    tree = list(nodes(parsed))
    defined = {name for kind, node in tree for name in _defined(kind, node)}
    known = Relations(relations.views | defined, relations.tables)
    is_statement = tree[0][0] in {*permitted.STATEMENTS, *permitted.QUERY_OF}
    for kind, node in tree[is_statement:]:
        if kind in permitted.NAMES:
            _check_name(known, kind, node)
        elif kind == _FUNCTION_NAME:
            _check_function(_texts(node.multipartIdentifier()))
        elif kind not in permitted.PARSED:
            check_expression(kind, node)
        elif kind == _TABLE_FUNCTION:
            _check_function(_texts(node.name()))


def _defined(kind: str, node: Any) -> Iterator[str]:
    """Names that a WITH gives to its queries."""
    if kind == "catalyst.plans.logical.UnresolvedWith":
        for named in elements(node.cteRelations()):
            yield named.productElement(0).lower()


def _check_name(known: Relations, kind: str, node: Any) -> None:
    if kind == _RELATION and (node.isStreaming() or len(node.options())):
        raise InvalidRequest(ASK_VIEWS)
    match _texts(node.multipartIdentifier()):
        case [name] if name.lower() in known.views:
            return
        case [engine, path] if engine.lower() == "delta" and known.has_table(path):
            return
    raise InvalidRequest(ASK_VIEWS)


def check_expression(kind: str, node: Any) -> None:
    """Refuse an expression that is neither an operator nor one of the functions that pass.

    Raises:
        InvalidRequest: It is none, or no expression at all.
    """
    if kind.startswith(permitted.OPERATORS):
        return
    if kind.endswith("WithUnresolvedIdentifier"):
        raise InvalidRequest("a name is written here, not computed: no IDENTIFIER(…)")
    if kind not in permitted.PARSED_EXPRESSIONS:
        what = kind.rpartition(".")[2]
        message = f"only queries are answered here: SELECT, SHOW, DESCRIBE or EXPLAIN, no {what}"
        raise InvalidRequest(message)
    if kind == "catalyst.analysis.UnresolvedFunction":
        _check_function(_texts(node.nameParts()))
    elif kind == "catalyst.analysis.UnresolvedGenerator":
        database = node.name().database()
        _check_function([*_texts(database.toList()), node.name().funcName()])


def _check_function(parts: list[str]) -> None:
    *place, name = (part.lower() for part in parts)
    if not place and f"system.session.{name}" in permitted.OURS:
        return
    if place not in _BUILT_IN or name not in permitted.FUNCTIONS:
        message = f"the function {'.'.join(parts)} is not here: only those of Spark that compute"
        raise InvalidRequest(f"{message} (SHOW FUNCTIONS), none that calls Java or reads a file")


def _texts(sequence: Any) -> list[str]:
    return list(elements(sequence))

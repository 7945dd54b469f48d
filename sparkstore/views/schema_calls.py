"""Calls of `body_as` and `queue_schema` in typed SQL, written as what Spark computes.

A function whose type depends on a text that it is given is none that a session can register. So
the text of a statement is written anew before it is checked:

    body_as(protocol, message_type, body, 'n BIGINT')
        → from_json(body_json(protocol, message_type, body, 'n BIGINT'), 'n BIGINT')
    body_as(protocol, message_type, body, '{"type": "record", …}')
        → from_json(body_json(protocol, message_type, body, '{…}'), 'n BIGINT')
    queue_schema('orders')
        → the schema, as a literal

Where a call stands is what Spark's own parser says, so a literal or a comment that looks like one
is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sparkstore.content.binary_schemas import BinarySchema, ddl_of, is_avro
from sparkstore.content.body_schemas import BODY_AS, QUEUE_SCHEMA, first_bodies, inferred, type_of
from sparkstore.errors import InvalidRequest
from sparkstore.views.plan_trees import elements, is_a, nodes

_FUNCTION = "catalyst.analysis.UnresolvedFunction"
_HEAD = re.compile(rf"{BODY_AS}\s*\((.*),\s*", re.IGNORECASE | re.DOTALL)
_HOW = {
    BODY_AS: "body_as(protocol, message_type, body, 'number BIGINT, items ARRAY<STRING>')",
    QUEUE_SCHEMA: "queue_schema('orders')",
}


def without_schema_calls(
    statement: str,
    parse: Callable[[str], Any],
    texts: Callable[[str], list[str | None]],
) -> str:
    """Replace the calls, the last in the text first, so those in arguments before what has them.

    Args:
        statement: As somebody typed it.
        parse: Turns a statement into Spark's tree of it.
        texts: Answers a query for bodies (`first_bodies`).

    Raises:
        InvalidRequest: A call has other arguments; no schema can be inferred.
        ParseException: It is not SQL.
    """
    for name in (QUEUE_SCHEMA, BODY_AS):
        while name in statement.lower() and (call := _last_call(parse(statement), name)):
            start, stop, literal, literal_at = call
            if name == QUEUE_SCHEMA:
                schema = inferred(texts(first_bodies(_quoted(literal))), literal)
                statement = f"{statement[:start]}{_quoted(schema)}{statement[stop:]}"
            else:
                head = _HEAD.fullmatch(statement[start:literal_at])
                if head is None:
                    raise InvalidRequest(f"write it so: {_HOW[BODY_AS]}")
                rest = statement[literal_at:]
                if is_avro(literal):
                    rest = f"{_quoted(ddl_of(BinarySchema(literal)))}{statement[stop - 1 :]}"
                else:
                    type_of(literal)
                text = f"body_json({head[1]}, {_quoted(literal)})"
                statement = f"{statement[:start]}from_json({text}, {rest}"
    return statement


def _last_call(tree: Any, name: str) -> tuple[int, int, str, int] | None:
    """The last call: its first character, the one after it, its last argument, and where that is.

    Raises:
        InvalidRequest: Its last argument is no literal of text.
    """
    calls = [
        node
        for kind, node in nodes(tree)
        if kind == _FUNCTION and node.nameParts().mkString(".").lower() == name
    ]
    if not calls:
        return None
    call = max(calls, key=_start)
    arguments = list(elements(call.arguments()))
    literal = arguments[-1] if arguments else None
    if literal is None or not is_a(literal, "catalyst.expressions.Literal"):
        raise InvalidRequest(f"the last argument of {name} is a text: {_HOW[name]}")
    return _start(call), call.origin().stopIndex().get() + 1, str(literal.value()), _start(literal)


def _start(node: Any) -> int:
    return int(node.origin().startIndex().get())


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

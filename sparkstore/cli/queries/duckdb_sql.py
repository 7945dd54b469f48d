"""Answers of the embedded engine as rows to print, for `sparkstore sql`."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from sparkstore.cli.queries.query_result import QueryResult, distinct
from sparkstore.embedded import answers
from sparkstore.errors import InvalidRequest
from sparkstore.tables.root import Root


def answer(root: Root, statement: str, limit: int = 0, as_of: str | None = None) -> QueryResult:
    """Return the rows that a query over the views finds; limit 0 means all of them.

    Raises:
        InvalidRequest: The query is wrong, or asks for more than the views; `as_of` is in the
            future, or before history.
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """
    reply = answers.answer(root, statement, limit, as_of)
    schema, columns = reply.table.schema, distinct(reply.table.schema.names)
    try:
        values = [column.to_pylist() for column in reply.table.columns]
    except (ValueError, OverflowError) as reason:
        message = f"a value of the answer has no form here ({reason}): make it a string"
        raise InvalidRequest(message) from reason
    rows = [
        dict(zip(columns, map(_plain, row, schema.types), strict=True))
        for row in zip(*values, strict=True)
    ]
    return QueryResult(columns, rows, reply.is_cut, [str(kind) for kind in schema.types])


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value as JSON or a table can hold it: exact."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(_plain(k, kind.key_type)): _plain(v, kind.item_type) for k, v in value}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no number for it
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value

"""Describe a queue by the columns that REST has of it, as `sparkstore.queue_columns` declares them.

The queue itself is called `name` there, as each thing that has an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct

from broker_shim.broker.virtual_host import Broker
from broker_shim.serve.http.bodies import QueueArguments
from sparkstore.queue_columns import QueueColumn, Road, columns_of, row_of

_TYPES: dict[str, Any] = {
    "bigint": int,
    "double": float,
    "string": str,
    "arguments": QueueArguments,
    "sources": dict[str, dict[str, Any]],
}


def _field(column: QueueColumn) -> tuple[str, Any]:
    kind = Literal[column.words] if column.words else _TYPES[column.kind]
    unit = {"x-unit": column.unit} if column.unit else {}
    described = Meta(description=column.text, extra_json_schema=unit)
    name = "name" if column.name == "queue" else column.name
    return name, Annotated[kind | None if column.may_be_null else kind, described]


if TYPE_CHECKING:
    QueueRow = Struct
else:
    QueueRow = defstruct(
        "QueueRow",
        [_field(column) for column in columns_of(Road.HTTP)],
        kw_only=True,
        module=__name__,
        namespace={"__doc__": "A queue and its figures now."},
    )


def queue_fields(broker: Broker, name: str, at_us: int) -> dict[str, Any]:
    """Return the fields of `QueueRow` of a queue that is served."""
    row = row_of(Road.HTTP, broker.queries.facts(name, at_us))
    return {"name": row.pop("queue"), **row}

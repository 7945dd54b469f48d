"""Requests for definitions: all that is defined as a document, and what a document defines.

An import is judged as a whole by what the tables have, and the user's rights to each of its orders
are looked at, before the first of them is given. So one that is half wrong does nothing.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from broker_shim.errors import StoreError
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import OrderModel
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import ADMIN, API, MONITOR, Endpoint
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.request_models import MOST_LONG_BODY_BYTES
from broker_shim.serve.http.table_reads import flushed, read_tables
from sparkstore.operations.administration import Order
from sparkstore.operations.definitions.document import document_of
from sparkstore.operations.definitions.drafts import Definitions
from sparkstore.operations.definitions.formats import definitions_of
from sparkstore.operations.definitions.judgement import Judgement, judge, unfinished
from sparkstore.tables.root import Root

_TOLD_ERRORS = 20


class DefinitionsAnswer(Struct, kw_only=True):
    """The definitions of a broker; `left_out`: queues of links, and what ends with the broker."""

    document: dict[str, Any]
    left_out: list[str]


class DefinitionsImport(OrderModel, kw_only=True):
    """Definitions to be made: ours or RabbitMQ's as an object, or as text; Artemis' as text.

    `vhost`: the virtual host of RabbitMQ's that is meant.
    """

    document: dict[str, Any] | str
    vhost: str | None = None


class LeftOut(Struct, kw_only=True):
    """A part of a document that has no counterpart here, and why."""

    left_out: str
    reason: str


class DefinitionsOutcome(Struct, kw_only=True):
    """The answer to each order that a document comes to; `changed` is false if it was so before."""

    dry_run: bool
    changes: int
    orders: list[dict[str, Any]]
    left_out: list[LeftOut]


async def export_definitions(call: Call) -> DefinitionsAnswer:
    """Write the queues, exchanges, bindings and policies that are defined as a document."""
    root = await flushed(call)

    def read() -> DefinitionsAnswer:
        from sparkstore.recovery.recovered_state import recovered_state  # noqa: PLC0415

        document, left = document_of(recovered_state(root))
        return DefinitionsAnswer(document=document, left_out=left)

    return await read_tables(call, read)


async def import_definitions(call: Call) -> DefinitionsOutcome:
    """Make what a document defines, or nothing of it."""
    body, root = call.body, await flushed(call)
    definitions, judged = await read_tables(call, lambda: _judged(root, body))
    errors = [*definitions.errors, *judged.errors]
    if errors:
        texts = "; ".join(f"{place}: {text}" for place, text in errors[:_TOLD_ERRORS])
        raise HttpRefusal(400, f"{len(errors)} errors, so nothing is done: {texts}")
    for order in judged.changes:
        await call.check_order(order)
    if not body.dry_run:
        await _give(call, judged.changes)
    return DefinitionsOutcome(
        dry_run=body.dry_run,
        changes=len(judged.changes),
        orders=judged.answers,
        left_out=[LeftOut(left_out=place, reason=text) for place, text in definitions.unmapped],
    )


def _judged(root: Root, body: DefinitionsImport) -> tuple[Definitions, Judgement]:
    from sparkstore.recovery.recovered_state import recovered_state  # noqa: PLC0415  # deltalake

    document = body.document
    text = document if isinstance(document, str) else json.dumps(document)
    definitions = definitions_of(text, body.vhost)
    return definitions, judge(definitions.orders, recovered_state(root))


async def _give(call: Call, orders: list[Order]) -> None:
    for number, order in enumerate(orders):
        try:
            await call.order(order)
        except StoreError as reason:
            raise unfinished(reason, number, len(orders)) from reason


ENDPOINTS = (
    Endpoint("GET", API + "/definitions", MONITOR, export_definitions, DefinitionsAnswer),
    Endpoint(
        "POST",
        API + "/definitions",
        ADMIN,
        import_definitions,
        DefinitionsOutcome,
        body=DefinitionsImport,
        target_acts=(
            Act.MAKE_QUEUE,
            Act.MAKE_EXCHANGE,
            Act.BIND_QUEUE,
            Act.BIND_TO_EXCHANGE,
            Act.SET_POLICY,
        ),
        most_body_bytes=MOST_LONG_BODY_BYTES,
    ),
)

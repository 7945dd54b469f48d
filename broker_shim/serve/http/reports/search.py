"""Find messages of a queue by their subject or a property, by the embedded engine.

A process with limits (`limited_answers`) reads the view `queue_messages`, so neither the loop nor a
consumer waits. The rows come from memory afterwards: what left the queue meanwhile is left out, and
`left_out` says so. One process runs at a time for all who look (`history_turn`).

Decision: it takes `read` on the queue and no more, as a browse does, although it is asked as SQL:
the statement is made here, and names one queue.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import Limit, Model
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import MONITOR, QUEUE, Endpoint
from broker_shim.serve.http.limited_answers import MOST_S, history_turn, limited_answer
from broker_shim.serve.http.port.exchange import Response
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.resources.messages import MessageRow, encoded_rows
from broker_shim.serve.http.table_reads import flushed
from sparkstore.cli.queries.limited_process import LimitedQuestion
from sparkstore.core.fold import Entry

Text = Annotated[str, Meta(max_length=1000)]


class SearchQuery(Model):
    """The messages that are looked for; where both are given, both have to fit.

    `subject` is a part of it, in letters of either case; `property` is `name=value`, and the whole
    value as text.
    """

    subject: Text = ""
    property: Text = ""
    limit: Limit = 100


class SearchAnswer(Struct, kw_only=True):
    """The first messages of a queue that fit, and how long the search took.

    `left_out` tells what fits and is not there, and why.
    """

    queue: str
    items: list[MessageRow]
    elapsed_ms: int
    left_out: list[str]


async def search_messages(call: Call) -> Response:
    """Find messages of a queue by subject or property, as a `SearchAnswer`."""
    name, asked, began_s = await call.named_queue(), call.query, time.monotonic()
    statement = _statement(name, asked)
    call.audit_read("search", name, subject=asked.subject or None, property=asked.property or None)
    async with history_turn(call):
        root = await flushed(call)
        question = LimitedQuestion(str(root.path.absolute()), statement, asked.limit, MOST_S)
        answer = json.loads(await limited_answer(question, call))
    ids = [row["message_id"] for row in answer["rows"]]

    def read() -> list[tuple[int, int, Entry]]:
        entry = call.broker.calls.entry
        rows = ((place, row_id, entry(name, row_id)) for place, row_id in enumerate(ids))
        return [(place, row_id, it) for place, row_id, it in rows if it is not None]

    rows, end = await asyncio.to_thread(encoded_rows, call.served.store, await call.read(read))
    left_out = [f"all beyond the first {len(ids)}"] if answer["is_cut"] else []
    if end is not None:
        left_out = [f"all beyond the first {len(rows)}, which are as large as an answer may be"]
    elif gone := len(ids) - len(rows):
        left_out.append(f"{gone} that have left the queue since")
    return Response(
        msgspec.json.encode(
            {
                "queue": name,
                "items": rows,
                "elapsed_ms": round((time.monotonic() - began_s) * 1000),
                "left_out": left_out,
            }
        )
    )


def _statement(queue: str, asked: SearchQuery) -> str:
    """Write the question in SQL. Raises HttpRefusal: nothing is looked for, or no property."""
    conditions = [f"queue = {_text(queue)}"]
    if asked.subject:
        conditions.append(f"contains(lower(subject), lower({_text(asked.subject)}))")
    if asked.property:
        name, sign, value = asked.property.partition("=")
        if not (name and sign):
            raise HttpRefusal(400, "query: property is name=value, and the whole value")
        conditions.append(f"properties[{_text(name)}] = {_text(value)}")
    if len(conditions) == 1:
        raise HttpRefusal(400, "query: give a subject or a property: else GET …/messages lists all")
    wanted = " AND ".join(conditions)
    order = f"ORDER BY position LIMIT {asked.limit + 1}"
    return f"SELECT message_id FROM queue_messages WHERE {wanted} {order}"  # noqa: S608  # quoted


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


ENDPOINTS = (
    Endpoint(
        "GET",
        QUEUE + "/search",
        MONITOR,
        search_messages,
        SearchAnswer,
        SearchQuery,
        acts=(Act.RECEIVE,),
    ),
)

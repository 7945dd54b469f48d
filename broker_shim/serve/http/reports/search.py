"""Find messages of a queue by their subject or a property, by the embedded engine.

A process with limits (`limited_answers`) reads which messages fit, wherever they are, and this one
knows which of them wait on the queue, and in which order (`sparkstore.embedded.message_search`). So
neither the loop nor a consumer waits. One process runs at a time for all who look (`history_turn`).

Decision: it takes `read` on the queue and no more, as a browse does: nothing of others is told.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any

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
from sparkstore.cli.queries.limited_process import SearchQuestion
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

    `left_out` tells what fits and is not there, or was not looked at, and why.
    """

    queue: str
    items: list[MessageRow]
    elapsed_ms: int
    left_out: list[str]


async def search_messages(call: Call) -> Response:
    """Find messages of a queue by subject or property, as a `SearchAnswer`."""
    name, asked, began_s = await call.named_queue(), call.query, time.monotonic()
    wanted = _wanted(asked)
    call.audit_read("search", name, subject=asked.subject or None, property=asked.property or None)
    root, waiting = await flushed(call), await call.message_ids(name)
    result: dict[str, list[Any]] = {"ids": [], "left_out": []}
    if waiting:
        terms = (*wanted, min(waiting), max(waiting))
        question = SearchQuestion(str(root.path.absolute()), terms, MOST_S)
        async with history_turn(call):
            result = json.loads(await limited_answer(question, call))
    fitting, left_out = {*result["ids"]}, result["left_out"]
    ids = [message_id for message_id in waiting if message_id in fitting]
    if len(ids) > asked.limit:
        left_out.append(
            f"{len(ids) - asked.limit} of {len(ids)} that fit: the limit is {asked.limit}"
        )
    rows, end = await _rows(call, name, ids[: asked.limit])
    if end is not None:
        left_out.append(f"all beyond the first {end}, which are as large as an answer may be")
    answer = {
        "queue": name,
        "items": rows,
        "elapsed_ms": round((time.monotonic() - began_s) * 1000),
        "left_out": left_out,
    }
    return Response(msgspec.json.encode(answer))


async def _rows(call: Call, queue: str, ids: list[int]) -> tuple[list[msgspec.Raw], int | None]:
    """Encode the rows of messages; those that left the queue meanwhile are left out."""

    def read() -> list[tuple[int, int, Entry]]:
        entry = call.broker.calls.entry
        rows = ((place, row_id, entry(queue, row_id)) for place, row_id in enumerate(ids))
        return [(place, row_id, it) for place, row_id, it in rows if it is not None]

    return await asyncio.to_thread(encoded_rows, call.served.store, await call.read(read))


def _wanted(asked: SearchQuery) -> tuple[str, str, str]:
    """Return subject, name and value. Raises HttpRefusal: nothing is looked for, or no property."""
    name, sign, value = asked.property.partition("=")
    if asked.property and not (name and sign):
        raise HttpRefusal(400, "query: property is name=value, and the whole value")
    if not (asked.subject or name):
        raise HttpRefusal(400, "query: give a subject or a property: else GET …/messages lists all")
    return asked.subject, name, value


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

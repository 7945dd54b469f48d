"""Requests that look at messages of a queue, and take none.

Content is read from the store on a thread of this port, so no consumer waits for it. A message that
leaves its queue meanwhile is left out.
"""

from __future__ import annotations

import asyncio
import base64
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec import Struct

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import MessageFates, Model, PageQuery
from broker_shim.serve.http.calls import Call, invalid, iso_time
from broker_shim.serve.http.endpoint import ADMIN, MONITOR, QUEUE, Endpoint
from broker_shim.serve.http.port.exchange import Response
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.request_models import MOST_LONG_BODY_BYTES
from broker_shim.sockets.authorization import impersonation_text, is_impersonation
from broker_shim.store.interface import BrokerStore, MessageHeader
from broker_shim.stored_values import body_of, properties_of
from sparkstore.core.annotations import DEATH, annotations_of
from sparkstore.core.fold import Entry
from sparkstore.operations.bulk import Answer
from sparkstore.operations.wire import draft_of

MOST_BODY_BYTES = 256 << 10
"""A larger body is not shown: `sparkstore export` has it."""
MOST_PAGE_BYTES = 8 << 20
"""Rows that have more together are on several pages, though a lone one may have more."""
_READ_AT_ONCE = 100


class MessageRow(Struct, kw_only=True):
    """A message on a queue, without its body; times are ISO 8601, UTC."""

    id: int
    enqueued_at: str
    acquired_by: str | None
    delivery_count: int
    priority: int
    expires_at: str | None
    bytes: int
    durable: bool | None
    subject: str | None
    content_type: str | None
    user_id: str | None
    amqp_message_id: str | None
    correlation_id: str | None
    properties: dict[str, str]
    traceparent: str | None
    death: dict[str, str]


class MessageList(Struct, kw_only=True):
    """A page of a queue's messages in its order, of which `total` are on it.

    A page ends at 8 MiB, too: `next_offset` is that of the next one, null after the last.
    """

    queue: str
    total: int
    offset: int
    next_offset: int | None
    items: list[MessageRow]


class MessageDetails(MessageRow, kw_only=True):
    """A message with its body, and its properties' types in the words of AMQP 1.0.

    `body_form` is `json` (a value, as JSON), `text`, `base64`, or `omitted`: it is too large.
    """

    annotations: dict[str, str]
    property_types: dict[str, str]
    body: str
    body_form: Literal["json", "text", "base64", "omitted"]
    body_bytes: int


class NewMessages(Model, kw_only=True):
    """Messages to put on a queue, all or none, each under a new id.

    `header` has the fields of a stored header that differ from their defaults; bytes are base64.
    """

    messages: list[dict[str, Any]]


async def browse(call: Call) -> Response:
    """List a page of a queue's messages, without their bodies, as a `MessageList`.

    Few pages are made at a time, as each is in memory whole; none for who is gone meanwhile.
    """
    name, page = await call.named_queue(), call.query
    call.audit_read("browse", name, offset=page.offset or None)

    def read() -> tuple[int, list[tuple[int, int, Entry]]]:
        calls = call.broker.calls
        message_ids = calls.message_ids(name)  # a skipped id costs less than its entry
        part = islice(message_ids, page.offset, page.offset + page.limit)
        rows = ((place, row_id, calls.entry(name, row_id)) for place, row_id in enumerate(part))
        return len(message_ids), [
            (place, row_id, entry) for place, row_id, entry in rows if entry is not None
        ]

    async with call.served.calls.pages:
        if await call.is_gone():
            raise HttpRefusal(400, "whoever asked is gone")
        total, part = await call.read(read)
        return await asyncio.to_thread(_page, call.served.store, name, total, page, part)


def _page(
    store: BrokerStore, name: str, total: int, page: Any, part: list[tuple[int, int, Entry]]
) -> Response:
    rows, end = encoded_rows(store, part)
    after = page.offset + (page.limit if end is None else end)
    answer = {
        "queue": name,
        "total": total,
        "offset": page.offset,
        "next_offset": after if after < total else None,
        "items": rows,
    }
    return Response(msgspec.json.encode(answer))


def encoded_rows(
    store: BrokerStore, part: list[tuple[int, int, Entry]]
) -> tuple[list[msgspec.Raw], int | None]:
    """Encode rows until they have a page's bytes; also the place of the first that is left out."""
    rows, page_bytes = list[msgspec.Raw](), 0
    for start in range(0, len(part), _READ_AT_ONCE):
        some = part[start : start + _READ_AT_ONCE]
        headers = store.headers([message_id for _, message_id, _ in some])
        for (place, message_id, entry), header in zip(some, headers, strict=True):
            if header is None:
                continue
            row = msgspec.json.encode(MessageRow(**_row(message_id, entry, header)))
            page_bytes += len(row)
            if rows and page_bytes > MOST_PAGE_BYTES:
                return rows, place
            rows.append(msgspec.Raw(row))
    return rows, None


async def show_message(call: Call) -> MessageDetails:
    """Show a message with its body, decoded as far as its type tells."""
    name = await call.named_queue()
    gone = HttpRefusal(404, "there is no such message on this queue now: browse it again")
    message_id = message_named(call)
    call.audit_read("show-message", name, message=message_id)
    entry = await call.read(lambda: call.broker.calls.entry(name, message_id))
    if entry is None:
        raise gone
    header = (await asyncio.to_thread(call.served.store.headers, [message_id]))[0]
    if header is None:
        raise gone
    content: dict[str, Any] = {"body": "", "body_form": "omitted"}
    if header.body_bytes <= MOST_BODY_BYTES:
        try:
            stored = await asyncio.to_thread(call.served.store.load, message_id)
        except InvalidRequest as reason:
            raise gone from reason
        content = _decoded(header, stored.body)
    annotations = {key: text for key, (_, text) in annotations_of(entry.detail).items()}
    types = properties_of(header.protocol or "", header.header or b"")
    return MessageDetails(
        **_row(message_id, entry, header),
        **content,
        body_bytes=header.body_bytes,
        annotations=annotations,
        property_types={property_name: kind for property_name, (kind, _) in types.items()},
    )


async def put_messages(call: Call) -> MessageFates:
    """Put new messages on a queue, all or none."""
    name, drafts = await call.named_queue(), call.body.messages
    try:
        messages = [draft_of(draft) for draft in drafts]
    except (KeyError, TypeError, ValueError) as reason:
        raise invalid(400, f"messages to put cannot be read: {reason!r}") from reason
    for message in messages:
        if is_impersonation(call.caller, message.header):
            text = impersonation_text(call.caller, message.header.user_id or "")
            raise HttpRefusal(403, text)
    answer: Answer = await call.send(call.orders.put(name, messages))
    return MessageFates(queue=name, **answer._asdict())


def message_named(call: Call) -> int:
    """Return the message that the path names. Raises HttpRefusal."""
    text = call.names["message"]
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise HttpRefusal(400, "a message is named by its id, a number: browse the queue")
    return int(text)


def _row(message_id: int, entry: Entry, header: MessageHeader) -> dict[str, Any]:
    annotations = annotations_of(entry.detail)
    expires = entry.expires_at
    return {
        "id": message_id,
        "enqueued_at": iso_time(entry.at),
        "acquired_by": entry.acquired_by,
        "delivery_count": entry.delivery_count,
        "priority": entry.priority,
        "expires_at": None if expires is None else iso_time(expires),
        "bytes": entry.message_bytes,
        "durable": header.durable,
        "subject": header.subject,
        "content_type": header.content_type,
        "user_id": header.user_id,
        "amqp_message_id": header.amqp_message_id,
        "correlation_id": header.correlation_id,
        "properties": dict(header.properties),
        "traceparent": dict(header.properties).get("traceparent"),
        "death": {
            key.removeprefix(DEATH): text
            for key, (_kind, text) in annotations.items()
            if key.startswith(DEATH)
        },
    }


def _decoded(header: MessageHeader, body: bytes) -> dict[str, Any]:
    value = body_of(header.protocol or "", header.message_type, body)
    if value is not None:
        return {"body": value, "body_form": "json"}
    try:
        return {"body": body.decode(), "body_form": "text"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode("ascii"), "body_form": "base64"}


ENDPOINTS = (
    Endpoint(
        "GET", QUEUE + "/messages", MONITOR, browse, MessageList, PageQuery, acts=(Act.RECEIVE,)
    ),
    Endpoint(
        "GET",
        QUEUE + "/messages/{message}",
        MONITOR,
        show_message,
        MessageDetails,
        acts=(Act.RECEIVE,),
    ),
    Endpoint(
        "POST",
        QUEUE + "/messages",
        ADMIN,
        put_messages,
        MessageFates,
        body=NewMessages,
        acts=(Act.SEND,),
        most_body_bytes=MOST_LONG_BODY_BYTES,
    ),
)

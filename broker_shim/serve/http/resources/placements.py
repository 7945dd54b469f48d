"""Changes of place of single messages: a repaired one for another, and what an undo orders."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from msgspec import Struct, field, to_builtins

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import FateCounts, Model, OperationName, OrderModel
from broker_shim.serve.http.call_control import CallControl
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import ADMIN, API, OPERATOR, Endpoint
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.request_models import MOST_LONG_BODY_BYTES
from broker_shim.serve.http.resources.messages import message_named
from sparkstore.content.edits import MessageEdit, edited
from sparkstore.core.fold import Entry
from sparkstore.operations.bulk import Answer, MessageDraft
from sparkstore.operations.placement import check_resubmitted, place_of, resubmission, target_of
from sparkstore.operations.placement_wire import placements_of


class ResubmitOrder(OrderModel):
    """Changes of a message, and where the repaired one goes.

    `body` is text and `body_base64` bytes: one of them at most. `queue` says where the message is,
    if it is on several. A property keeps its type, and its value is said as text.
    """

    body: str | None = None
    body_base64: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    queue: str | None = None
    to: str | None = None


class ResubmitOutcome(Struct, kw_only=True):
    """The fate of a message; a dry run tells what the repaired one would be."""

    message: int
    queue: str
    to: str
    dry_run: bool
    done: int = 0
    operation: str | None = None
    properties: dict[str, str] | None = None
    body: str | None = None
    body_base64: str | None = None


class PlacementOrder(Model, kw_only=True):
    """Changes of place: all of those that are possible, or none."""

    placements: list[dict[str, Any]]
    operation: OperationName
    undoes: OperationName | None = None


async def resubmit_message(call: Call) -> ResubmitOutcome:
    """Put a repaired message in the place of another: a dead letter where it came from."""
    message_id, body = message_named(call), call.body
    edit = _edit(body)
    named = None if body.queue is None else await call.queue(body.queue)
    queue, entry = await call.read(lambda: place_of(message_id, _entries(call, message_id), named))
    for act in (Act.RECEIVE, Act.PURGE):
        await call.queue(queue, act)
    to = await call.read(lambda: target_of(entry, queue, body.to, call.broker.queues))
    target = await call.queue(to, Act.SEND)
    try:
        stored = await asyncio.to_thread(call.served.store.load, message_id)
    except InvalidRequest as reason:
        raise HttpRefusal(404, "there is no such message now: browse its queue again") from reason
    draft = MessageDraft(*edited(stored.header, stored.body, edit))
    outcome = ResubmitOutcome(message=message_id, queue=queue, to=target, dry_run=body.dry_run)
    if body.dry_run:
        call.audit_read("resubmit", queue, message=message_id, dry_run=True)
        return _shown(outcome, draft)
    request = resubmission(message_id, queue, target, draft)
    answer = await asyncio.to_thread(CallControl(call).place, request)
    check_resubmitted(message_id, queue, answer)
    outcome.done, outcome.operation = answer.done, request.operation
    return outcome


async def place_messages(call: Call) -> FateCounts:
    """Carry out changes of place, all of those that are possible or none."""
    request = placements_of(to_builtins(call.body))
    for place in request.placements:
        if place.source:
            await call.check_recorded(Act.PURGE, [place.source])
        if place.target:
            await call.check_recorded(Act.SEND, [place.target])
    answer: Answer = await call.send(call.orders.place(request))
    return FateCounts(**answer._asdict())


def _entries(call: Call, message_id: int) -> dict[str, Entry]:
    """Find a message's entries on queues. On the loop's thread."""
    broker = call.broker
    names = [name for name, queue in broker.queues.items() if message_id in queue]
    entries = ((name, broker.calls.entry(name, message_id)) for name in names)
    return {name: entry for name, entry in entries if entry is not None}


def _edit(body: ResubmitOrder) -> MessageEdit:
    if body.body is not None and body.body_base64 is not None:
        raise HttpRefusal(400, "body and body_base64: say one of them")
    if twice := body.properties.keys() & {*body.unset}:
        raise HttpRefusal(400, f"properties and unset have {min(twice)!r:.80}: say one of them")
    content = None if body.body is None else body.body.encode()
    if body.body_base64 is not None:
        try:
            content = base64.b64decode(body.body_base64, validate=True)
        except ValueError as reason:  # binascii.Error is one; a character beyond ASCII another
            raise HttpRefusal(400, f"body_base64 is no base64: {reason}") from reason
    return MessageEdit(content, body.properties, frozenset(body.unset))


def _shown(outcome: ResubmitOutcome, draft: MessageDraft) -> ResubmitOutcome:
    outcome.properties = dict(draft.header.properties)
    try:
        outcome.body = draft.body.decode()
    except UnicodeDecodeError:
        outcome.body_base64 = base64.b64encode(draft.body).decode("ascii")
    return outcome


ENDPOINTS = (
    Endpoint(
        "POST",
        API + "/messages/{message}/resubmit",
        OPERATOR,
        resubmit_message,
        ResubmitOutcome,
        body=ResubmitOrder,
        acts=(Act.RECEIVE, Act.PURGE),
        target_acts=(Act.SEND,),
        conflict=409,
    ),
    Endpoint(
        "POST",
        API + "/placements",
        ADMIN,
        place_messages,
        FateCounts,
        body=PlacementOrder,
        target_acts=(Act.PURGE, Act.SEND),
        most_body_bytes=MOST_LONG_BODY_BYTES,
    ),
)

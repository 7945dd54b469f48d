"""Requests to send one message to a queue or an exchange; a dry run tells which queues it reaches.

The message is one of AMQP 1.0, durable, with a text or bytes as its body. A queue that is full
refuses it. Each queue gets a message of its own, so where one refuses it others may have it.
"""

from __future__ import annotations

import base64
from typing import Annotated

from msgspec import Meta, Struct, field

from broker_shim.amqp_1_0.composites import Header, Properties
from broker_shim.amqp_1_0.definitions import (
    AMQP_VALUE_SECTION,
    APPLICATION_PROPERTIES_SECTION,
    DATA_SECTION,
)
from broker_shim.broker.wiring.address import ExchangeNode, Node
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.encoder import described, write
from broker_shim.protocol_1_0.codec.errors import DecodeError, InvalidCommand
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import OrderModel
from broker_shim.serve.http.calls import Call, now_us
from broker_shim.serve.http.endpoint import API, OPERATOR, Endpoint
from broker_shim.serve.http.refusals import HttpRefusal
from sparkstore.core.queue_names import shown
from sparkstore.operations.bulk import MessageDraft

_Named = Annotated[str, Meta(min_length=1)]


class PublishOrder(OrderModel, kw_only=True):
    """A message and where it goes: to `queue`, or to `exchange` with a `key`.

    `body` is text, `body_base64` bytes: one of them at most.
    """

    queue: _Named | None = None
    exchange: _Named | None = None
    key: str = ""
    body: str | None = None
    body_base64: str | None = None
    subject: str | None = None
    content_type: str | None = None
    properties: dict[str, str | int | float | bool] = field(default_factory=dict)


class PublishOutcome(Struct, kw_only=True):
    """The queues that a message reaches; `done` tells how many have it durably."""

    queues: list[str]
    dry_run: bool
    done: int = 0


async def publish(call: Call) -> PublishOutcome:
    """Send a message to a queue or an exchange; a dry run tells which queues it would reach."""
    body: PublishOrder = call.body
    node, header_of = await _node(call, body), _message(body)
    header, content = header_of
    broker = call.broker

    def route() -> list[str]:
        return sorted(broker.destinations.queues_for(node, header, body.properties.get))

    queues = await call.read(route)
    outcome = PublishOutcome(queues=queues, dry_run=body.dry_run)
    if body.dry_run:
        return outcome
    if not queues:
        text = f"no queue gets this message of {shown(body.exchange or '')}: bind one"
        raise HttpRefusal(409, text)
    for queue in queues:
        put = call.orders.put(queue, [MessageDraft(header, content)])
        outcome.done += (await call.send(put)).done
    return outcome


async def _node(call: Call, body: PublishOrder) -> Node:
    """Return where a message goes, if the user may send there."""
    if (body.queue is None) is (body.exchange is None):
        raise HttpRefusal(400, "queue and exchange: say one of them")
    if body.queue is not None:
        name = await call.queue(body.queue, Act.SEND)
        return await call.read(lambda: call.meant(name))
    exchange = body.exchange or ""

    def find() -> Node:
        node = ExchangeNode(exchange, body.key)
        call.check(Act.SEND, node, exchange)
        if exchange not in call.broker.router:
            text = f"there is no exchange {shown(exchange)}: GET /api/v1/exchanges lists them"
            raise HttpRefusal(404, text)
        return node

    return await call.read(find)


def _message(body: PublishOrder) -> MessageDraft:
    """Write the message as a client of AMQP 1.0 would, and read it as the broker does."""
    if body.body is not None and body.body_base64 is not None:
        raise HttpRefusal(400, "body and body_base64: say one of them")
    if body.body_base64 is None:
        content = described(AMQP_VALUE_SECTION, write(body.body or ""))
    else:
        try:
            decoded = base64.b64decode(body.body_base64, validate=True)
        except ValueError as reason:
            raise HttpRefusal(400, f"body_base64 is no base64: {reason}") from reason
        content = described(DATA_SECTION, write(decoded))
    named = Properties(subject=body.subject, content_type=body.content_type)
    try:
        sections = [
            encoded_composite(Header(durable=True)),
            encoded_composite(named),
            described(APPLICATION_PROPERTIES_SECTION, write(dict(body.properties))),
            content,
        ]
        return MessageDraft(*parse(b"".join(sections), now_us=now_us()))
    except (DecodeError, InvalidCommand) as reason:
        raise HttpRefusal(400, f"this is no message: {reason}") from reason


ENDPOINTS = (
    Endpoint(
        "POST",
        API + "/messages",
        OPERATOR,
        publish,
        PublishOutcome,
        body=PublishOrder,
        acts=(Act.SEND,),
    ),
)

"""Requests about queues: what there is, and orders to make, alter, empty and delete them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from itertools import islice
from typing import Any

import msgspec

from broker_shim.broker.routing import Router
from broker_shim.errors import StoreError
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import (
    BindingRow,
    DeadLetterList,
    DeadLetterRow,
    MessageFates,
    OrderOutcome,
    QueueDetails,
    QueueList,
)
from broker_shim.serve.http.calls import LINES, Call, now_us
from broker_shim.serve.http.figures.queue_rows import QueueRow, queue_fields
from broker_shim.serve.http.port.exchange import Response
from broker_shim.serve.http.refusals import HttpRefusal, refused_by
from broker_shim.store.interface import ExchangeBindingKey
from sparkstore.core.queue_arguments import QueueTerms, terms_of
from sparkstore.core.state_machine.definitions import detail_of
from sparkstore.operations.administration import DURABILITIES, AdminAction, Order
from sparkstore.operations.bulk import TURN_IDS, Action, Answer, check_target, new_operation
from sparkstore.queue_columns import Road, row_of

_SHOWN_SOURCES = 10


async def list_queues(call: Call) -> QueueList:
    """List a page of the queues with their figures."""
    broker, page = call.house.broker, call.query

    def read() -> QueueList:
        names = sorted(broker.queues)
        if page.match:
            names = [name for name in names if page.match in name]
        shown = names[page.offset : page.offset + page.limit]
        at_us = now_us()
        items = [QueueRow(**queue_fields(broker, name, at_us)) for name in shown]
        return QueueList(total=len(names), offset=page.offset, items=items)

    return await call.read(read)


async def list_dead_letters(call: Call) -> DeadLetterList:
    """List a page of the queues that get the dead letters of others."""
    broker, page = call.house.broker, call.query

    def read() -> DeadLetterList:
        sources: dict[str, list[str]] = {}
        for name, queue in broker.queues.items():
            target = queue.arguments.dead_letter_queue
            if target is not None and target in broker.queues:
                sources.setdefault(target, []).append(name)
        shown, at_us = sorted(sources)[page.offset : page.offset + page.limit], now_us()
        items = []
        for name in shown:
            row = row_of(Road.HTTP, broker.queries.facts(name, at_us))
            items.append(
                DeadLetterRow(
                    name=name,
                    depth=row["depth"],
                    oldest_age_s=row["oldest_age_s"],
                    sources=sorted(sources[name])[:_SHOWN_SOURCES],
                    source_count=len(sources[name]),
                )
            )
        return DeadLetterList(total=len(sources), offset=page.offset, items=items)

    return await call.read(read)


async def show_queue(call: Call) -> QueueDetails:
    """Show one queue with its arguments and bindings."""
    broker, name = call.house.broker, await call.queue(call.names["queue"])

    def read() -> QueueDetails:
        keys = sorted(key for key in broker.router.bindings() if key.queue == name)
        return QueueDetails(
            **queue_fields(broker, name, now_us()),
            bindings=[binding_row(broker.router, key) for key in keys],
        )

    return await call.read(read)


async def create_queue(call: Call) -> OrderOutcome:
    """Create a queue; one that is there as asked for is no change."""
    body = call.body
    durability = DURABILITIES.index(body.durability)
    return done(
        await call.order(
            Order(
                AdminAction.CREATE_QUEUE,
                call.names["queue"],
                arguments=body.arguments,
                durability=durability,
            ),
            dry_run=body.dry_run,
        )
    )


async def alter_queue(call: Call) -> OrderOutcome:
    """Alter some arguments of a queue."""
    await call.queue(call.names["queue"])
    changes = {**call.body.set, **dict.fromkeys(call.body.unset)}
    order = Order(AdminAction.ALTER_QUEUE, call.names["queue"], arguments=changes)
    return done(await call.order(order, dry_run=call.body.dry_run))


async def delete_queue(call: Call) -> OrderOutcome:
    """Delete a queue; by force with its messages."""
    name, limits = await call.queue(call.names["queue"]), call.query
    order = Order(AdminAction.DELETE_QUEUE, name, force=limits.force)
    order = order._replace(if_unused=limits.if_unused, if_empty=limits.if_empty)
    return done(await call.order(order, dry_run=limits.dry_run))


async def release_messages(call: Call) -> MessageFates:
    """Make messages available that a holder has who is gone."""
    name, body = await call.queue(call.names["queue"], Act.USE_ANOTHERS), call.body
    request = {"action": Action.RELEASE, "queue": name}
    return await _bulk(call, request, body.ids, body.operation)


async def dead_letter_messages(call: Call) -> MessageFates:
    """Send those messages to the dead letters whose time or attempts are over."""
    name, body = await call.queue(call.names["queue"], Act.PURGE), call.body
    request = {"action": Action.DEAD_LETTER, "queue": name}
    return await _bulk(call, request, body.ids, body.operation)


async def purge_queue(call: Call) -> MessageFates | Response:
    """Take messages off a queue: all that nobody holds, or those named.

    Who takes lines is told how far it is, and that it is over if they go away.
    """
    name, body = await call.queue(call.names["queue"], Act.PURGE), call.body
    if body.dry_run:
        return await would_take(call, name, body.ids)
    operation = body.operation or new_operation()
    if body.ids is not None:
        return await _bulk(call, {"action": Action.PURGE, "queue": name}, body.ids, operation)
    answers = call.answers({"purge": name, "operation": operation})
    if call.takes_lines:
        return Response(kind=LINES, parts=_lines(answers, name, operation))
    return [_fates(name, operation, Answer(**_known(answer))) async for answer in answers][-1]


async def _lines(
    answers: AsyncIterator[dict[str, Any]], name: str, operation: str
) -> AsyncGenerator[bytes, None]:
    """Write how far a purge is, a line each, and last what came of it."""
    try:
        async for answer in answers:
            content: Any = answer
            if "so_far" not in answer:
                content = _fates(name, operation, Answer(**_known(answer)))
            yield msgspec.json.encode(content) + b"\n"
    except StoreError as reason:
        yield msgspec.json.encode(refused_by(reason).content) + b"\n"
    except HttpRefusal as refusal:
        yield msgspec.json.encode(refusal.content) + b"\n"


async def move_messages(call: Call) -> MessageFates:
    """Move messages to another queue: all that nobody holds, or those named."""
    name, body = await call.queue(call.names["queue"], Act.PURGE), call.body
    target = await call.queue(body.to, Act.SEND, advice="create it first")
    await check_move(call, name, target)
    if body.dry_run:
        return await would_take(call, name, body.ids)
    ids = body.ids
    if ids is None:
        ids = await call.message_ids(name)
    request = {"action": Action.MOVE, "queue": name, "to": target}
    return await _bulk(call, request, ids, body.operation or new_operation())


async def check_move(call: Call, name: str, target: str) -> None:
    """Refuse a target that messages cannot move to, also where the move is only tried.

    Raises:
        InvalidRequest: It is the queue itself, is gone, or keeps no messages.
    """
    definitions = call.house.broker.definitions

    def terms(queue: str) -> QueueTerms | None:
        return terms_of(detail_of(definitions[queue])) if queue in definitions else None

    await call.read(lambda: check_target(name, target, terms))


async def would_take(call: Call, name: str, ids: list[int] | None) -> MessageFates:
    """Count what an order would find now, and change nothing."""

    def count() -> MessageFates:
        queue = call.house.broker.queues[name]
        if ids is None:
            left = queue.held_count
            return MessageFates(queue=name, would=len(queue) - left, left=left)
        there = [each for each in ids if each in queue]
        entry = call.house.broker.calls.entry
        left = sum(1 for each in there if (e := entry(name, each)) and e.acquired_by is not None)
        return MessageFates(
            queue=name, would=len(there) - left, left=left, gone=len(ids) - len(there)
        )

    return await call.read(count)


async def _bulk(
    call: Call, request: dict[str, Any], message_ids: Iterable[int], operation: str | None
) -> MessageFates:
    """Have something done with messages, some at a time; each part is done whole, or not at all."""
    total = await bulk_answer(call, {**request, "operation": operation}, message_ids)
    return _fates(request["queue"], operation, total)


def _fates(queue: str, operation: str | None, answer: Answer) -> MessageFates:
    return MessageFates(queue=queue, operation=answer.named(operation), **answer._asdict())


async def bulk_answer(call: Call, request: dict[str, Any], message_ids: Iterable[int]) -> Answer:
    """Sum the answers to a request that goes in parts; what is full ends it, as in `bulk_run`."""
    total, left = Answer(), iter(message_ids)
    while part := [*islice(left, TURN_IDS)]:
        answer = Answer(**_known(await call.send({**request, "ids": part})))
        total = total.plus(answer)
        if answer.full:  # what comes next would overtake those that stay
            return total.plus(Answer(full=sum(1 for _ in left)))
    return total


def _known(answer: dict[str, Any]) -> dict[str, int]:
    return {name: answer[name] for name in Answer._fields if name in answer}


def binding_row(router: Router, key: ExchangeBindingKey) -> BindingRow:
    """Describe a binding that is there."""
    return BindingRow(
        exchange=key.exchange,
        key=key.binding_key,
        queue=key.queue,
        arguments=dict(router.arguments_of(key)),
    )


def done(told: dict[str, Any]) -> OrderOutcome:
    """Tell what came of an order."""
    ours = ("act", "changed", "dry_run")
    details = {name: value for name, value in told.items() if name not in ours}
    return OrderOutcome(details=details, **{name: told[name] for name in ours if name in told})

"""Orders about many messages of a queue: purge, move, requeue, redrive, and what mends a queue."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.errors import StoreError
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import (
    MessageFates,
    MessageId,
    Name,
    OperationName,
    OrderModel,
)
from broker_shim.serve.http.calls import LINES, Call
from broker_shim.serve.http.endpoint import ADMIN, OPERATOR, QUEUE, Endpoint
from broker_shim.serve.http.loop_calls import SoFar
from broker_shim.serve.http.port.exchange import Response
from broker_shim.serve.http.refusals import HttpRefusal, refused_by
from sparkstore.core.entries import Entries
from sparkstore.core.fold import QueueState
from sparkstore.core.queue_arguments import QueueTerms, terms_of
from sparkstore.core.state_machine.definitions import detail_of
from sparkstore.operations.bulk import (
    Action,
    Answer,
    Request,
    check_target,
    new_operation,
)
from sparkstore.operations.redrive import RedrivePlan


class BulkOrder(OrderModel):
    """Messages that something is done with; `operation` names it in history, by default anew."""

    operation: OperationName | None = None


class PurgeOrder(BulkOrder):
    """Messages to take off a queue; without `ids` all that are there and nobody holds."""

    ids: list[MessageId] | None = None


class MoveOrder(BulkOrder, kw_only=True):
    """Messages to move to another queue; without `ids` all that are there and nobody holds."""

    to: Name
    ids: list[MessageId] | None = None


class MessagesOrder(BulkOrder, kw_only=True):
    """The messages that are meant."""

    ids: list[MessageId]


class RequeueOrder(BulkOrder):
    """Messages to put at the end of their queue; without `ids` all that nobody holds."""

    ids: list[MessageId] | None = None


class RedriveOrder(BulkOrder):
    """Dead letters to put back where they came from, or on `to`; without `ids` all, in order."""

    to: str | None = None
    ids: list[MessageId] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None


class RedriveOutcome(Struct, kw_only=True):
    """The fate of dead letters.

    `to`: how many go to each queue, or went. `full`: how many wait for room there. `origin_gone`:
    how many stay, as the queue that they came from is gone. `no_origin` are no dead letters.
    """

    queue: str
    dry_run: bool
    to: dict[str, int]
    full: dict[str, int]
    origin_gone: dict[str, int]
    no_origin: int
    done: int = 0
    left: int = 0
    gone: int = 0
    operation: str | None = None


async def purge_queue(call: Call) -> MessageFates | Response:
    """Take messages off a queue: all that nobody holds, or those named.

    Who takes lines is told how far it is, and that it is over if they go away.
    """
    name, body = await call.named_queue(), call.body
    if body.dry_run:
        return await would_take(call, name, body.ids)
    operation = body.operation or new_operation()
    if body.ids is not None:
        return await _bulk(call, Request(Action.PURGE, name, (), None, operation), body.ids)
    answers = call.answers(call.orders.purge(name, operation))
    if call.takes_lines:
        return Response(kind=LINES, parts=_lines(answers, name, operation))
    return _fates(name, operation, [answer async for answer in answers][-1])


async def _lines(
    answers: AsyncIterator[Answer], name: str, operation: str
) -> AsyncGenerator[bytes, None]:
    """Write how far a purge is, a line each, and last what came of it."""
    try:
        async for answer in answers:
            content: Any = _fates(name, operation, answer)
            if isinstance(answer, SoFar):
                content = {"so_far": answer._asdict()}
            yield msgspec.json.encode(content) + b"\n"
    except StoreError as reason:
        yield msgspec.json.encode(refused_by(reason).content) + b"\n"
    except HttpRefusal as refusal:
        yield msgspec.json.encode(refusal.content) + b"\n"


async def move_messages(call: Call) -> MessageFates:
    """Move messages to another queue: all that nobody holds, or those named."""
    name, body = await call.named_queue(), call.body
    target = await call.queue(body.to, Act.SEND, advice="create it first")
    await check_move(call, name, target)
    return await _moved(call, Action.MOVE, name, target)


async def requeue_messages(call: Call) -> MessageFates:
    """Put messages at the end of their queue, with delivery count 0."""
    return await _moved(call, Action.REQUEUE, await call.named_queue())


async def _moved(call: Call, action: Action, name: str, to: str | None = None) -> MessageFates:
    """Change the place of all messages that nobody holds, or of those named, or try it."""
    body = call.body
    if body.dry_run:
        return await would_take(call, name, body.ids)
    operation = body.operation or new_operation()
    return await _bulk(call, Request(action, name, (), to, operation), body.ids)


async def redrive_messages(call: Call) -> RedriveOutcome:
    """Put dead letters back on the queues that they came from, as far as there is room."""
    name, body = await call.named_queue(), call.body
    to = None if body.to is None else await call.queue(body.to, Act.SEND, advice="create it first")
    if to is not None:
        await check_move(call, name, to)
    ids = body.ids if body.ids is not None else await call.message_ids(name, body.limit)
    plan, queues = RedrivePlan(), _BrokerQueues(call.broker)
    await call.in_turns(ids[: body.limit], lambda part: plan.extend(queues, name, part, to))
    for target in {**plan.portions, **plan.full}:
        await call.queue(target, Act.SEND)
    outcome = RedriveOutcome(
        queue=name,
        dry_run=body.dry_run,
        to=_counts(plan.portions),
        full=_counts(plan.full),
        origin_gone=_counts(plan.lost),
        no_origin=len(plan.strays),
    )
    if body.dry_run:
        return outcome
    return await _redriven(call, plan, outcome, body.operation or new_operation())


async def _redriven(
    call: Call, plan: RedrivePlan, outcome: RedriveOutcome, operation: str
) -> RedriveOutcome:
    """Ask for one origin after the other; what was full is asked for once more, last."""
    total = Answer()
    for target in {**plan.full, **plan.portions}:
        ids = [*plan.portions.get(target, ()), *plan.full.get(target, ())]
        request = Request(Action.REDRIVE, outcome.queue, (), target, operation)
        answer = await _bulk_answer(call, request, ids)
        outcome.to[target], total = answer.done, total.plus(answer)
        outcome.full[target] = answer.full
    outcome.full = {target: count for target, count in outcome.full.items() if count}
    outcome.done, outcome.left, outcome.gone = total.done, total.left, total.gone
    outcome.operation = total.named(operation)
    return outcome


async def release_messages(call: Call) -> MessageFates:
    """Make messages available that a holder has who is gone."""
    name, body = await call.named_queue(), call.body
    return await _bulk(call, Request(Action.RELEASE, name, (), None, body.operation), body.ids)


async def dead_letter_messages(call: Call) -> MessageFates:
    """Send those messages to the dead letters whose time or attempts are over."""
    name, body = await call.named_queue(), call.body
    request = Request(Action.DEAD_LETTER, name, (), None, body.operation)
    return await _bulk(call, request, body.ids)


async def check_move(call: Call, name: str, target: str) -> None:
    """Refuse a target that messages cannot move to, also where the move is only tried.

    Raises:
        InvalidRequest: It is the queue itself, is gone, or keeps no messages.
    """
    definitions = call.broker.definitions

    def terms(queue: str) -> QueueTerms | None:
        return terms_of(detail_of(definitions[queue])) if queue in definitions else None

    await call.read(lambda: check_target(name, target, terms))


async def would_take(call: Call, name: str, ids: list[int] | None) -> MessageFates:
    """Count what an order would find now, and change nothing."""

    def count() -> MessageFates:
        queue = call.broker.queues[name]
        if ids is None:
            left = queue.held_count
            return MessageFates(queue=name, would=len(queue) - left, left=left)
        present = [message_id for message_id in ids if message_id in queue]
        entry = call.broker.calls.entry
        entries = (entry(name, message_id) for message_id in present)
        left = sum(1 for e in entries if e is not None and e.acquired_by is not None)
        return MessageFates(
            queue=name, would=len(present) - left, left=left, gone=len(ids) - len(present)
        )

    return await call.read(count)


async def _bulk(call: Call, request: Request, message_ids: list[int] | None) -> MessageFates:
    """Have something done with messages, some at a time; each part is done whole, or not at all."""
    answer = await _bulk_answer(call, request, message_ids)
    return _fates(request.queue, request.operation, answer)


def _fates(queue: str, operation: str | None, answer: Answer) -> MessageFates:
    return MessageFates(queue=queue, operation=answer.named(operation), **answer._asdict())


async def _bulk_answer(call: Call, request: Request, message_ids: list[int] | None) -> Answer:
    """Have it done with all messages that nobody holds, or with those named."""
    named = None if message_ids is None else [*dict.fromkeys(message_ids)]
    answer: Answer = await call.send(call.orders.bulk(request, named))
    return answer


class _BrokerQueues(Mapping[str, QueueState]):
    """The queues of a broker as a plan knows them, each made when it is asked for."""

    def __init__(self, broker: ServedQueues) -> None:
        self._broker = broker

    def __getitem__(self, name: str) -> QueueState:
        entries = self._broker.calls.entries(name)
        detail = detail_of(self._broker.definitions[name])
        return QueueState(detail, 0, entries if isinstance(entries, Entries) else Entries())

    def __iter__(self) -> Iterator[str]:
        return iter(self._broker.definitions)

    def __len__(self) -> int:
        return len(self._broker.definitions)


def _counts(portions: Mapping[str, list[int]]) -> dict[str, int]:
    return {target: len(ids) for target, ids in portions.items()}


ENDPOINTS = (
    Endpoint(
        "POST",
        QUEUE + "/purge",
        OPERATOR,
        purge_queue,
        MessageFates,
        body=PurgeOrder,
        acts=(Act.PURGE,),
    ),
    Endpoint(
        "POST",
        QUEUE + "/move",
        OPERATOR,
        move_messages,
        MessageFates,
        body=MoveOrder,
        acts=(Act.PURGE,),
        target_acts=(Act.SEND,),
    ),
    Endpoint(
        "POST",
        QUEUE + "/requeue",
        OPERATOR,
        requeue_messages,
        MessageFates,
        body=RequeueOrder,
        acts=(Act.PURGE, Act.SEND),
    ),
    Endpoint(
        "POST",
        QUEUE + "/redrive",
        OPERATOR,
        redrive_messages,
        RedriveOutcome,
        body=RedriveOrder,
        acts=(Act.PURGE,),
        target_acts=(Act.SEND,),
    ),
    Endpoint(
        "POST",
        QUEUE + "/release",
        ADMIN,
        release_messages,
        MessageFates,
        body=MessagesOrder,
        acts=(Act.USE_ANOTHERS,),
    ),
    Endpoint(
        "POST",
        QUEUE + "/dead-letter",
        OPERATOR,
        dead_letter_messages,
        MessageFates,
        body=MessagesOrder,
        acts=(Act.PURGE,),
    ),
)

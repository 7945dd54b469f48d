"""Requests to put messages at the end of their queue, or back where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker_shim.broker.virtual_host import Broker
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import MessageFates
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.operations.operation_bodies import RedriveOutcome
from broker_shim.serve.http.queue_requests import bulk_answer, check_move, would_take
from sparkstore.core.entries import Entries
from sparkstore.core.fold import QueueState
from sparkstore.core.state_machine.definitions import detail_of
from sparkstore.operations.bulk import Action, Answer, new_operation
from sparkstore.operations.redrive import RedrivePlan


async def requeue_messages(call: Call) -> MessageFates:
    """Put messages at the end of their queue, with delivery count 0."""
    name, body = await call.queue(call.names["queue"], Act.PURGE), call.body
    await call.queue(name, Act.SEND)
    if body.dry_run:
        return await would_take(call, name, body.ids)
    ids = body.ids
    if ids is None:
        ids = await call.message_ids(name)
    operation = body.operation or new_operation()
    request = {"action": Action.REQUEUE, "queue": name, "operation": operation}
    answer = await bulk_answer(call, request, ids)
    return MessageFates(queue=name, operation=answer.named(operation), **answer._asdict())


async def redrive_messages(call: Call) -> RedriveOutcome:
    """Put dead letters back on the queues that they came from, as far as there is room."""
    name, body = await call.queue(call.names["queue"], Act.PURGE), call.body
    to = None if body.to is None else await call.queue(body.to, Act.SEND, advice="create it first")
    if to is not None:
        await check_move(call, name, to)
    ids = body.ids if body.ids is not None else await call.message_ids(name, body.limit)
    plan, queues = RedrivePlan(), _BrokerQueues(call.house.broker)
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
        request = {"action": Action.REDRIVE, "queue": outcome.queue, "to": target}
        answer = await bulk_answer(call, {**request, "operation": operation}, ids)
        outcome.to[target], total = answer.done, total.plus(answer)
        outcome.full[target] = answer.full
    outcome.full = {target: count for target, count in outcome.full.items() if count}
    outcome.done, outcome.left, outcome.gone = total.done, total.left, total.gone
    outcome.operation = total.named(operation)
    return outcome


class _BrokerQueues(Mapping[str, QueueState]):
    """The queues of a broker as a plan knows them, each made when it is asked for."""

    def __init__(self, broker: Broker) -> None:
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

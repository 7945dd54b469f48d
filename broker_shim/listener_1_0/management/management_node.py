"""Answer requests to `$management`: what there is, and orders. On the loop's thread only.

A status is that of HTTP: 400 what was asked is wrong, 403 not allowed, 404 not there, 409 refused
as things stand (it is there otherwise, or would be missed), 429 one too many, 501 no such
operation, 503 not now. Rights are looked at before it is told whether something is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice

from broker_shim.broker.wiring.address import AmbiguousNode, Node, PatternNode, QueueNode
from broker_shim.errors import InvalidRequest, LimitReached, NotNow, StoreError
from broker_shim.listener_1_0.authorization import refusal_of_act
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.management.entities import (
    ATTRIBUTES,
    OPERATIONS,
    Entity,
    EntityKind,
    EntityName,
)
from broker_shim.listener_1_0.management.entity_view import EntityView, nodes_to_know
from broker_shim.listener_1_0.management.messages import ManagementAnswer, ManagementRequest
from broker_shim.listener_1_0.management.requests import (
    RequestRefused,
    entity_said,
    kind_said,
    order_to_alter,
    order_to_create,
    order_to_delete,
)
from broker_shim.security.rules.permissions import Permission
from broker_shim.security.rules.rights import Act
from broker_shim.sockets.authorization import denied, may_do_something
from broker_shim.sockets.client_orders import carry_out, needed_acts, purge, queue_meant
from sparkstore.core.queue_names import shown
from sparkstore.operations.administration import Order
from sparkstore.operations.bulk import Answer

MOST_RESULTS = 1000
"""Results of one query: a client asks on from `offset`."""

OnAnswer = Callable[[ManagementAnswer], None]
Operation = Callable[[ManagementRequest, OnAnswer], None]


class ManagementNode:
    """Answers the requests of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._broker = connection, connection.broker
        self._view = EntityView(connection)
        types: dict[EntityKind, tuple[str, ...]] = dict.fromkeys(EntityKind, ())
        self._operations: Mapping[str, Operation] = {
            "CREATE": self._create,
            "READ": self._read,
            "UPDATE": self._update,
            "DELETE": self._delete,
            "PURGE": self._purge,
            "QUERY": self._query,
            "GET-TYPES": partial(_by_type, types),
            "GET-ATTRIBUTES": partial(_by_type, ATTRIBUTES),
            "GET-OPERATIONS": partial(_by_type, OPERATIONS),
            "GET-MGMT-NODES": lambda _request, on_answer: on_answer(
                ManagementAnswer(200, "OK", [])
            ),
        }

    def answer(self, request: ManagementRequest, on_answer: OnAnswer) -> None:
        """Carry a request out, and tell what came of it: now, or when it is durable."""
        name = request.text("operation")
        operation = self._operations.get(name)
        if operation is None:
            text = f"operation {shown(name)}: say one of {', '.join(self._operations)}"
            on_answer(ManagementAnswer(501, text))
            return
        try:
            operation(request, on_answer)
        except RequestRefused as refusal:
            on_answer(refusal.answer)
        except InvalidRequest as refusal:
            on_answer(ManagementAnswer(400, str(refusal)))

    def _create(self, request: ManagementRequest, on_answer: OnAnswer) -> None:
        order, entity = self._allowed(order_to_create(request))
        is_there = self._view.find(entity) is not None

        def made(error: StoreError | None, outcome: Mapping[str, object]) -> None:
            if error is not None:
                on_answer(_failure(error, 409 if is_there else 400))
                return
            is_new = bool(outcome.get("changed"))
            text = "created" if is_new else "it is there already"
            answer = ManagementAnswer(201 if is_new else 200, text)
            self._view.read(entity, lambda _, body: on_answer(answer._replace(body=body or {})))

        carry_out(self._connection, order, made)

    def _update(self, request: ManagementRequest, on_answer: OnAnswer) -> None:
        order, entity = self._allowed(order_to_alter(request))
        self._check_there(entity)

        def altered(error: StoreError | None, _told: object) -> None:
            if error is None:
                self._view.read(entity, partial(_tell, entity, on_answer))
            else:
                on_answer(_failure(error, 400))

        carry_out(self._connection, order, altered)

    def _delete(self, request: ManagementRequest, on_answer: OnAnswer) -> None:
        order, entity = self._allowed(order_to_delete(request))
        self._check_there(entity)
        self._check_unclaimed(entity)

        def deleted(error: StoreError | None, _told: object) -> None:
            on_answer(ManagementAnswer(204, "deleted") if error is None else _failure(error, 409))

        carry_out(self._connection, order, deleted)

    def _purge(self, request: ManagementRequest, on_answer: OnAnswer) -> None:
        entity = entity_said(request)
        if entity.kind is not EntityKind.QUEUE:
            raise RequestRefused(501, f"a {entity.kind} cannot be purged: a queue can")
        node = queue_meant(self._broker, entity.queue)
        self._check(Act.PURGE, node, entity.queue)
        entity = _whole(entity, node)
        self._check_there(entity)
        self._check_unclaimed(entity)

        def purged(error: StoreError | None, total: Answer) -> None:
            answer = ManagementAnswer(200, "purged", {"purged": total.done})
            on_answer(answer if error is None else _failure(error, 409))

        purge(self._connection, entity.queue, purged)

    def _read(self, request: ManagementRequest, on_answer: OnAnswer) -> None:
        entity = entity_said(request)
        if entity.queue:
            entity = _whole(entity, queue_meant(self._broker, entity.queue))
        self._check_known(entity)
        self._view.read(entity, partial(_tell, entity, on_answer))

    def _query(self, request: ManagementRequest, on_answer: OnAnswer) -> None:
        kinds = [*EntityKind]
        if request.text("entityType"):
            kinds = [kind_said(request, "entityType")]
        known = list(dict.fromkeys(name for kind in kinds for name in ATTRIBUTES[kind]))
        wanted = request.body.get("attributeNames") or known
        if not isinstance(wanted, list):
            raise RequestRefused(400, "attributeNames is a list")
        names = [str(name) for name in wanted]
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            raise RequestRefused(400, f"attribute {shown(unknown)}: say of {', '.join(known)}")
        first = request.number("offset", 0)
        count = min(request.number("count", MOST_RESULTS), MOST_RESULTS)
        entities = (entity for kind in kinds for entity in self._view.known(kind))
        results = [
            [entity.get(name) for name in names]
            for entity in islice(entities, first, first + count)
        ]
        body = {"attributeNames": names, "results": results}
        on_answer(ManagementAnswer(200, "OK", body, {"count": len(results)}))

    def _allowed(self, order: Order) -> tuple[Order, EntityName]:
        """Check the rights that an order needs; return it with the whole name of its queue.

        Raises:
            RequestRefused: The client has not all of them, or the name is that of several queues.
        """
        node = queue_meant(self._broker, order.queue) if order.queue else None
        for needed in needed_acts(order, self._broker.policies, node):
            self._check(*needed)
        if isinstance(node, QueueNode):
            order = order._replace(queue=node.queue)
        if order.queue and order.exchange:
            return order, EntityName(EntityKind.BINDING, (order.exchange, order.queue, order.key))
        kind = EntityKind.QUEUE if order.queue else EntityKind.EXCHANGE
        return order, EntityName(kind, (order.queue or order.exchange,))

    def _check(self, act: Act, node: Node | PatternNode, name: str) -> None:
        refusal = refusal_of_act(self._connection, act, node, name)
        if refusal is not None:
            raise RequestRefused(403, refusal.description)
        if isinstance(node, AmbiguousNode):
            raise RequestRefused(
                409, f"{shown(name)} is the name of several queues: say address::queue"
            )

    def _check_known(self, entity: EntityName) -> None:
        """Check that the client may do something at all that an entity names."""
        connection = self._connection
        access, principal = connection.access, connection.login.principal
        for node in nodes_to_know(entity):
            if not may_do_something(connection, node):
                denial = denied(connection, Permission.READ, node)
                assert denial is not None, "what names nothing is denied to nobody"
                access.guard.refused(access.remote, principal, *denial)
                name = shown(entity.identity.partition("/")[2])
                raise RequestRefused(
                    403, f"{shown(principal.name)} has no permission to read {name}"
                )

    def _check_there(self, entity: EntityName) -> None:
        if self._view.find(entity) is None:
            raise RequestRefused(404, _missing(entity))

    def _check_unclaimed(self, entity: EntityName) -> None:
        """Check that no session of AMQP 0-10 has the queue to itself, as that protocol does."""
        if entity.queue and self._broker.claims.is_claimed(entity.queue):
            raise RequestRefused(409, f"queue {shown(entity.queue)} is exclusive to a session")


def _whole(entity: EntityName, node: Node) -> EntityName:
    """Name an entity by the whole name of the queue that was meant."""
    if not isinstance(node, QueueNode):
        return entity
    at = entity.names.index(entity.queue, 1 if entity.kind is EntityKind.BINDING else 0)
    return entity._replace(names=(*entity.names[:at], node.queue, *entity.names[at + 1 :]))


def _tell(
    entity: EntityName, on_answer: OnAnswer, error: StoreError | None, attributes: Entity | None
) -> None:
    if error is not None:
        on_answer(_failure(error, 400))
    elif attributes is None:
        on_answer(ManagementAnswer(404, _missing(entity)))
    else:
        on_answer(ManagementAnswer(200, "OK", attributes))


def _missing(entity: EntityName) -> str:
    return f"there is no {entity.kind} {shown(entity.identity.partition('/')[2])}"


def _failure(error: StoreError, refused: int) -> ManagementAnswer:
    """Make the answer for an order that the broker did not carry out.

    Args:
        error: The reason why the broker did not carry it out.
        refused: The status if the order itself is refused.
    """
    if isinstance(error, LimitReached):
        return ManagementAnswer(429, str(error))
    if isinstance(error, InvalidRequest):
        return ManagementAnswer(refused, str(error))
    return ManagementAnswer(503 if isinstance(error, NotNow) else 500, str(error))


def _by_type(
    of_kinds: Mapping[EntityKind, tuple[str, ...]], request: ManagementRequest, on_answer: OnAnswer
) -> None:
    """Answer with what there is of each type, or of one."""
    kinds = [kind_said(request, "entityType")] if request.text("entityType") else [*EntityKind]
    on_answer(ManagementAnswer(200, "OK", {kind.type: [*of_kinds[kind]] for kind in kinds}))

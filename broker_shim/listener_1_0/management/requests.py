"""Read what a request to `$management` is about: an entity, an order, a page. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_shim.listener_1_0.management.entities import (
    COLUMNS,
    EntityKind,
    EntityName,
    entity_named,
    kind_of,
)
from broker_shim.listener_1_0.management.messages import ManagementAnswer, ManagementRequest
from broker_shim.sockets.client_orders import plain_arguments
from sparkstore.core.queue_names import shown
from sparkstore.operations.administration import DURABILITIES, AdminAction, Order
from sparkstore.settings_file import check_names

_BINDING_ATTRIBUTES = ("exchange", "queue", "key", "arguments")
_WHICH = "say which: name and type, or identity, as READ and QUERY tell them"


class RequestRefused(Exception):
    """A request that is not carried out: its status is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer = ManagementAnswer(status, text)


def kind_said(request: ManagementRequest, name: str) -> EntityKind:
    """Read the kind that an application property names.

    Raises:
        RequestRefused: It is none.
    """
    kind = kind_of(request.text(name))
    if kind is None:
        known = ", ".join(entity_kind.type for entity_kind in EntityKind)
        raise RequestRefused(400, f"{name} {shown(request.text(name))}: say one of {known}")
    return kind


def entity_said(request: ManagementRequest) -> EntityName:
    """Read which entity a request names: by its identity, or by its type and name.

    Raises:
        RequestRefused: It names none.
    """
    identity = request.text("identity")
    if identity:
        entity = entity_named(identity)
    else:
        kind, name = kind_said(request, "type"), request.text("name")
        is_binding = kind is EntityKind.BINDING
        entity = entity_named(f"{kind}/{name}") if is_binding else EntityName(kind, (name,))
    if entity is None or not entity.names[0]:
        raise RequestRefused(400, _WHICH)
    return entity


def order_to_create(request: ManagementRequest) -> Order:
    """Make the order that a request to create is: its body has the attributes.

    Raises:
        InvalidRequest: An argument is of a type that the store does not keep.
        RequestRefused: It is no order.
    """
    kind = kind_said(request, "type")
    if kind is EntityKind.BINDING:
        return _order_to_bind(request)
    name, given = request.text("name"), dict(request.body)
    if not name:
        raise RequestRefused(400, f"a {kind} needs a name")
    durability = given.pop("durability", DURABILITIES[-1])
    if durability not in DURABILITIES:
        raise RequestRefused(
            400, f"durability {durability!r:.80}: say one of {', '.join(DURABILITIES)}"
        )
    number = DURABILITIES.index(durability)
    if kind is EntityKind.QUEUE:
        arguments = plain_arguments(given)
        return Order(AdminAction.CREATE_QUEUE, name, arguments=arguments, durability=number)
    exchange_type = str(given.pop("exchange_type", ""))
    return Order(
        AdminAction.CREATE_EXCHANGE,
        exchange=name,
        type=exchange_type,
        arguments=plain_arguments(given),
        durability=number,
    )


def _order_to_bind(request: ManagementRequest) -> Order:
    given: dict[str, Any] = {str(name): value for name, value in request.body.items()}
    check_names(given, _BINDING_ATTRIBUTES, "attribute", "of a binding")
    if request.text("name"):
        named = entity_said(request).names
        given = dict(zip(_BINDING_ATTRIBUTES, named, strict=False)) | given
    exchange, queue, key = (given.get(name, "") for name in _BINDING_ATTRIBUTES[:3])
    arguments = given.get("arguments") or {}
    texts = isinstance(exchange, str) and isinstance(queue, str) and isinstance(key, str)
    if not (texts and isinstance(arguments, Mapping)):
        raise RequestRefused(
            400, "exchange, queue and key of a binding are strings, arguments are a map"
        )
    kept = plain_arguments(arguments)
    return Order(AdminAction.ADD_BINDING, queue, exchange, key, arguments=kept)


def order_to_alter(request: ManagementRequest) -> Order:
    """Make the order that an update is: its body has the arguments that change; null ends one.

    What a client has read, it may send back: name, identity and type that are the queue's own.

    Raises:
        InvalidRequest: As of `order_to_create`.
        RequestRefused: It is no order about a queue.
    """
    entity = entity_said(request)
    if entity.kind is not EntityKind.QUEUE:
        raise RequestRefused(501, f"a {entity.kind} is not altered: delete it, and create it anew")
    given = {str(name): value for name, value in request.body.items()}
    own = {"name": entity.names[0], "identity": entity.identity, "type": entity.kind.type}
    given = {name: value for name, value in given.items() if value != own.get(name, NotImplemented)}
    fixed = sorted({*own, *COLUMNS} & given.keys())
    if fixed:
        raise RequestRefused(400, f"{fixed[0]} of a queue cannot be altered: leave it out")
    return Order(AdminAction.ALTER_QUEUE, entity.names[0], arguments=plain_arguments(given))


def order_to_delete(request: ManagementRequest) -> Order:
    """Make the order that a request to delete is.

    Raises:
        RequestRefused: It names nothing.
    """
    entity = entity_said(request)
    if entity.kind is EntityKind.BINDING:
        exchange, queue, key = entity.names
        return Order(AdminAction.REMOVE_BINDING, queue, exchange, key)
    is_queue = entity.kind is EntityKind.QUEUE
    return Order(
        AdminAction.DELETE_QUEUE if is_queue else AdminAction.DELETE_EXCHANGE,
        queue=entity.queue,
        exchange=entity.exchange,
        force=request.is_set("force"),
        if_unused=request.is_set("if_unused"),
        if_empty=request.is_set("if_empty"),
    )

"""The endpoints of the HTTP port: all that may be asked, and by whom. What is not here is refused.

A path is that of a request as it is sent: a name in it is percent-encoded as a whole, `/` too, so
no queue's name leads to another endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from broker_shim.serve.http import (
    bodies,
    connection_requests,
    message_requests,
    probe_requests,
    queue_requests,
    wiring_requests,
)
from broker_shim.serve.http.bodies import Model
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.operations import (
    event_stream,
    history_requests,
    operation_bodies,
    redrive_requests,
    sql_requests,
    upkeep_requests,
)
from broker_shim.serve.http.request_models import MOST_BODY_BYTES
from broker_shim.serve.http.roles import HttpRole

API = "/api/v1"
QUEUE = API + "/queues/{queue}"


class Endpoint(NamedTuple):
    """An endpoint: what may be asked, by whom, and what does it.

    Attributes:
        method: The HTTP method.
        path: With a name in braces for each segment that names something.
        role: The role that is needed; None: no login is.
        run: Answers a call, by a value of `answer` or by a response of its own.
        answer: The model of its answer; None: a text.
        query: The model of what stands after the question mark; None: nothing may.
        body: The model of its body; None: it has none.
        conflict: The status of an order that cannot be carried out as things are.
        most_body_bytes: The longest body that is read; `MOST_LONG_BODY_BYTES`, or as long as
            messages may be where the owner of the root asks.
        needs_broker: A broker has to decide from now on; else none needs to be there.
    """

    method: str
    path: str
    role: HttpRole | None
    run: Callable[[Call], Awaitable[Any]]
    answer: type | None = None
    query: type[Model] | None = None
    body: type[Model] | None = None
    conflict: int = 400
    most_body_bytes: int = MOST_BODY_BYTES
    needs_broker: bool = True


_CONNECTION = API + "/connections/{connection}"
_EXCHANGE = API + "/exchanges/{exchange}"
_POLICY = API + "/policies/{policy}"
_MONITOR, _OPERATOR, _ADMIN = HttpRole.MONITOR, HttpRole.OPERATOR, HttpRole.ADMIN

ENDPOINTS = (
    Endpoint("GET", "/healthz", None, probe_requests.show_health),
    Endpoint("GET", "/readyz", None, probe_requests.show_readiness),
    Endpoint("GET", "/metrics", _MONITOR, probe_requests.show_metrics, needs_broker=False),
    Endpoint(
        "GET",
        API + "/self",
        _MONITOR,
        connection_requests.show_self,
        bodies.UserAnswer,
        needs_broker=False,
    ),
    Endpoint(
        "GET",
        API + "/queues",
        _MONITOR,
        queue_requests.list_queues,
        bodies.QueueList,
        bodies.QueueQuery,
    ),
    Endpoint(
        "GET",
        API + "/dead-letters",
        _MONITOR,
        queue_requests.list_dead_letters,
        bodies.DeadLetterList,
        bodies.PageQuery,
    ),
    Endpoint("GET", QUEUE, _MONITOR, queue_requests.show_queue, bodies.QueueDetails),
    Endpoint(
        "PUT",
        QUEUE,
        _ADMIN,
        queue_requests.create_queue,
        bodies.OrderOutcome,
        body=bodies.QueueCreation,
    ),
    Endpoint(
        "PATCH",
        QUEUE,
        _ADMIN,
        queue_requests.alter_queue,
        bodies.OrderOutcome,
        body=bodies.QueueAlterationOrder,
    ),
    Endpoint(
        "DELETE",
        QUEUE,
        _ADMIN,
        queue_requests.delete_queue,
        bodies.OrderOutcome,
        bodies.QueueDeletionLimits,
        conflict=409,
    ),
    Endpoint(
        "POST",
        QUEUE + "/purge",
        _OPERATOR,
        queue_requests.purge_queue,
        bodies.MessageFates,
        body=bodies.PurgeOrder,
    ),
    Endpoint(
        "POST",
        QUEUE + "/move",
        _OPERATOR,
        queue_requests.move_messages,
        bodies.MessageFates,
        body=bodies.MoveOrder,
    ),
    Endpoint(
        "POST",
        QUEUE + "/requeue",
        _OPERATOR,
        redrive_requests.requeue_messages,
        bodies.MessageFates,
        body=operation_bodies.RequeueOrder,
    ),
    Endpoint(
        "POST",
        QUEUE + "/redrive",
        _OPERATOR,
        redrive_requests.redrive_messages,
        operation_bodies.RedriveOutcome,
        body=operation_bodies.RedriveOrder,
    ),
    Endpoint(
        "GET",
        API + "/operations",
        _MONITOR,
        history_requests.list_operations,
        operation_bodies.OperationList,
        operation_bodies.OperationQuery,
    ),
    Endpoint(
        "POST",
        API + "/operations/{operation}/undo",
        _OPERATOR,
        history_requests.undo_operation,
        operation_bodies.UndoOutcome,
        body=operation_bodies.UndoOrder,
        conflict=409,
    ),
    Endpoint(
        "GET",
        API + "/upkeep",
        _MONITOR,
        upkeep_requests.show_upkeep,
        operation_bodies.UpkeepAnswer,
        operation_bodies.UpkeepQuery,
    ),
    Endpoint(
        "POST",
        API + "/sql",
        _OPERATOR,
        sql_requests.ask_views,
        operation_bodies.SqlAnswer,
        body=operation_bodies.SqlQuestion,
    ),
    Endpoint(
        "GET",
        API + "/events",
        _MONITOR,
        event_stream.stream_events,
        query=operation_bodies.EventQuery,
    ),
    Endpoint(
        "GET",
        API + "/messages/{message}/history",
        _MONITOR,
        history_requests.show_history,
        operation_bodies.MessageHistory,
        operation_bodies.HistoryQuery,
    ),
    Endpoint(
        "GET",
        QUEUE + "/messages",
        _MONITOR,
        message_requests.browse,
        bodies.MessageList,
        bodies.PageQuery,
    ),
    Endpoint(
        "GET",
        QUEUE + "/messages/{message}",
        _MONITOR,
        message_requests.show_message,
        bodies.MessageDetails,
    ),
    Endpoint(
        "GET",
        API + "/exchanges",
        _MONITOR,
        wiring_requests.list_exchanges,
        bodies.ExchangeList,
        bodies.PageQuery,
    ),
    Endpoint(
        "PUT",
        _EXCHANGE,
        _ADMIN,
        wiring_requests.create_exchange,
        bodies.OrderOutcome,
        body=bodies.ExchangeCreation,
    ),
    Endpoint(
        "DELETE",
        _EXCHANGE,
        _ADMIN,
        wiring_requests.delete_exchange,
        bodies.OrderOutcome,
        bodies.ExchangeDeletionLimits,
        conflict=409,
    ),
    Endpoint(
        "GET",
        API + "/policies",
        _MONITOR,
        wiring_requests.list_policies,
        bodies.PolicyList,
        bodies.PageQuery,
    ),
    Endpoint(
        "PUT",
        _POLICY,
        _ADMIN,
        wiring_requests.set_policy,
        bodies.OrderOutcome,
        body=bodies.PolicyCreation,
    ),
    Endpoint(
        "DELETE",
        _POLICY,
        _ADMIN,
        wiring_requests.delete_policy,
        bodies.OrderOutcome,
        bodies.OrderModel,
        conflict=409,
    ),
    Endpoint(
        "GET",
        API + "/bindings",
        _MONITOR,
        wiring_requests.list_bindings,
        bodies.BindingList,
        bodies.BindingQuery,
    ),
    Endpoint(
        "POST",
        API + "/bindings",
        _ADMIN,
        wiring_requests.add_binding,
        bodies.OrderOutcome,
        body=bodies.BindingCreation,
    ),
    Endpoint(
        "DELETE",
        API + "/bindings",
        _ADMIN,
        wiring_requests.remove_binding,
        bodies.OrderOutcome,
        bodies.BindingToRemove,
        conflict=409,
    ),
    Endpoint(
        "GET",
        API + "/connections",
        _MONITOR,
        connection_requests.list_connections,
        bodies.ConnectionList,
        bodies.PageQuery,
        needs_broker=False,
    ),
    Endpoint(
        "DELETE",
        _CONNECTION,
        _OPERATOR,
        connection_requests.close_connection,
        bodies.OrderOutcome,
        bodies.ConnectionPlace,
        conflict=404,
        needs_broker=False,
    ),
)

"""The bodies of requests and answers of the HTTP port, as models of msgspec. Data only.

`openapi` describes the endpoints by them, so a field here is a promise to whoever has a script. No
row has content or history of messages: a list of queues costs the same whatever is on them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from broker_shim.serve.http.figures.queue_rows import QueueRow
from sparkstore.core.queue_arguments import ARGUMENTS

Plain = str | int | float | bool | None
_SCHEMAS = {name: argument.schema for name, argument in ARGUMENTS.items()}
_QueueArguments = Annotated[dict[str, Plain], Meta(extra_json_schema={"properties": _SCHEMAS})]
Count = Annotated[int, Meta(ge=0)]
_Limit = Annotated[int, Meta(ge=1, le=1000)]
_Name = Annotated[str, Meta(min_length=1)]
MessageId = Annotated[int, Meta(ge=1)]
OperationName = Annotated[str, Meta(pattern="^[0-9A-Za-z]{8,32}$")]
Durability = Literal["none", "configuration", "unsettled-state"]
ExchangeKind = Literal["direct", "fanout", "topic", "headers"]


class Model(Struct, forbid_unknown_fields=True, kw_only=True):
    """A body or a query that somebody sends: a name that is not known is refused."""


class PageQuery(Model):
    """The part of a list that is asked for."""

    offset: Count = 0
    limit: _Limit = 100


class QueueQuery(PageQuery):
    """The part of the list of queues that is asked for; `match`: a part of their names."""

    match: str = ""


class QueueList(Struct, kw_only=True):
    """A page of queues in the order of their names; `total` are there."""

    total: int
    offset: int
    items: list[QueueRow]


class DeadLetterRow(Struct, kw_only=True):
    """A queue that gets dead letters, and of which queues: the first ten by name."""

    name: str
    depth: int
    oldest_age_s: float | None
    sources: list[str]
    source_count: int


class DeadLetterList(Struct, kw_only=True):
    """A page of the queues that get dead letters, in the order of their names."""

    total: int
    offset: int
    items: list[DeadLetterRow]


class BindingRow(Struct, kw_only=True):
    """A binding of a queue to an exchange."""

    exchange: str
    key: str
    queue: str
    arguments: dict[str, Any]


class QueueDetails(QueueRow, kw_only=True):
    """A queue with its bindings."""

    bindings: list[BindingRow]


class OrderModel(Model):
    """An order that can be tried: a dry run tells what it would change, and changes nothing."""

    dry_run: bool = False


class QueueCreation(OrderModel):
    """A queue that is to be there."""

    arguments: _QueueArguments = field(default_factory=dict)
    durability: Durability = "unsettled-state"


class QueueAlterationOrder(OrderModel):
    """Arguments of a queue that change: `set` gives them values, `unset` takes them away."""

    set: _QueueArguments = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)


class QueueDeletionLimits(OrderModel):
    """Limits of a deletion; `force`: with what is on it."""

    force: bool = False
    if_unused: bool = False
    if_empty: bool = False


class ExchangeDeletionLimits(OrderModel):
    """Limits of the deletion of an exchange; `force`: with its bindings."""

    force: bool = False
    if_unused: bool = False


class BulkOrder(OrderModel):
    """Messages that something is done with; `operation` names it in history, by default anew."""

    operation: OperationName | None = None


class PurgeOrder(BulkOrder):
    """Messages to take off a queue; without `ids` all that are there and nobody holds."""

    ids: list[MessageId] | None = None


class MoveOrder(BulkOrder, kw_only=True):
    """Messages to move to another queue; without `ids` all that are there and nobody holds."""

    to: _Name
    ids: list[MessageId] | None = None


class MessagesOrder(BulkOrder, kw_only=True):
    """The messages that are meant."""

    ids: list[MessageId]


class FateCounts(Struct, kw_only=True):
    """The fate of messages: done, left alone, gone before, and left as there is no room."""

    done: int = 0
    left: int = 0
    gone: int = 0
    full: int = 0


class MessageFates(FateCounts, kw_only=True):
    """The fate of messages: done, left alone (somebody holds them), gone before.

    A dry run tells in `would` how many would be taken, and in `left` how many would stay. What was
    done has a name: `sparkstore undo ROOT OPERATION` takes it back; where nothing was, it has none.
    """

    queue: str
    operation: str | None = None
    would: int | None = None


class NewMessages(Model, kw_only=True):
    """Messages to put on a queue, all or none, each under a new id.

    `header` has the fields of a stored header that differ from their defaults; bytes are base64.
    """

    messages: list[dict[str, Any]]


class PlacementOrder(Model, kw_only=True):
    """Changes of place: all of those that are possible, or none."""

    placements: list[dict[str, Any]]
    operation: OperationName
    undoes: OperationName | None = None


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
    """A message with its body.

    `body_form` is `json` (a value, as JSON), `text`, `base64`, or `omitted`: it is too large.
    """

    annotations: dict[str, str]
    body: str
    body_form: Literal["json", "text", "base64", "omitted"]
    body_bytes: int


class ExchangeRow(Struct, kw_only=True):
    """An exchange, the broker's own ones too."""

    name: str
    type: str
    durability: Durability
    alternate_exchange: str | None


class ExchangeList(Struct, kw_only=True):
    """A page of exchanges in the order of their names."""

    total: int
    offset: int
    items: list[ExchangeRow]


class ExchangeCreation(OrderModel, kw_only=True):
    """An exchange that is to be there."""

    type: ExchangeKind
    arguments: dict[str, Plain] = field(default_factory=dict)


class PolicyRow(Struct, kw_only=True):
    """A policy, and how many queues it fits."""

    name: str
    match: str
    priority: int
    arguments: _QueueArguments
    queues: int


class PolicyList(Struct, kw_only=True):
    """A page of policies, those that count most first."""

    total: int
    offset: int
    items: list[PolicyRow]


class PolicyCreation(OrderModel, kw_only=True):
    """A policy that is to be there, in the place of one of its name."""

    match: str
    arguments: _QueueArguments
    priority: int = 0


class BindingQuery(PageQuery):
    """The part of the list of bindings that is asked for, of one queue or exchange."""

    queue: str | None = None
    exchange: str | None = None


class BindingList(Struct, kw_only=True):
    """A page of bindings in the order of exchange, queue and key."""

    total: int
    offset: int
    items: list[BindingRow]


class BindingCreation(OrderModel, kw_only=True):
    """A binding that is to be there."""

    exchange: _Name
    queue: _Name
    key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


class BindingToRemove(OrderModel, kw_only=True):
    """The binding that is to be taken away."""

    exchange: _Name
    queue: _Name
    key: str = ""


class ConnectionRow(Struct, kw_only=True):
    """A client that is connected; `member`: at this broker of the store service."""

    connection: int
    peer: str
    user: str
    tls: str | None
    container: str | None
    links: int
    connected_at: str
    open: bool
    member: str | None = None


class ConnectionList(Struct, kw_only=True):
    """A page of connections; `silent` are members that did not answer."""

    total: int
    offset: int
    items: list[ConnectionRow]
    silent: list[str]


class ConnectionPlace(Model):
    """The member at which a connection is to be closed; none: at this broker."""

    member: str | None = None


class HolderQuery(Model):
    """How many held messages are to be told."""

    limit: Annotated[int, Meta(ge=1)] = 1000


class HolderRow(Struct, kw_only=True):
    """A message that somebody holds; `since`: its holder is there, where that is known."""

    queue: str
    message: int
    holders: list[str]
    since: str | None


class HolderList(Struct, kw_only=True):
    """The messages that are held; `left_out` more are."""

    items: list[HolderRow]
    left_out: int


class FlushAnswer(Struct, kw_only=True):
    """All that was done before is in the tables."""

    flushed: bool = True


class UserAnswer(Struct, kw_only=True):
    """The user who asks, the highest of its roles, the release of the broker, and its root."""

    user: str
    role: str
    version: str
    has_history: bool
    root_id: str | None


class OrderOutcome(Struct, kw_only=True):
    """The result of an order; `changed` is false if it was so before.

    Of a dry run `changed` tells whether it would be another one.
    """

    act: str
    changed: bool
    details: dict[str, Any]
    dry_run: bool = False


class ProblemAnswer(Struct, kw_only=True):
    """An answer instead: why, and what to do; `kind` is the class of the store's error."""

    status: int
    error: str
    kind: str | None = None

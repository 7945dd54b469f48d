"""The bodies of requests and answers about operations and histories, as models of msgspec."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from broker_shim.serve.http.bodies import BulkOrder, Count, MessageId, Model, OrderModel

_Limit = Annotated[int, Meta(ge=1, le=1000)]


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


class UndoOrder(OrderModel):
    """An operation to take back; a dry run tells what would be."""


class UndoOutcome(Struct, kw_only=True):
    """The messages that an undo restores or removes by queue, and those it cannot, by reason."""

    undoes: str
    dry_run: bool
    restored: dict[str, int]
    removed: dict[str, int]
    shifted: dict[str, int]
    lost: dict[str, list[int]]
    queue: str | None = None
    not_bound_to: list[str] = field(default_factory=list)
    done: int = 0
    left: int = 0
    gone: int = 0
    operation: str | None = None


class OperationQuery(Model):
    """How many of the newest operations are asked for."""

    limit: _Limit = 100


class OperationRow(Struct, kw_only=True):
    """An operation that history has; `undone_by`: the operation that took it back."""

    operation: str
    action: str
    queue: str
    to: str | None
    at: str
    messages: int | None
    undoes: str | None
    undone_by: str | None


class OperationList(Struct, kw_only=True):
    """The newest operations, the newest last; history has `total`."""

    total: int
    items: list[OperationRow]


class EventQuery(Model):
    """The position after which events are asked for, by default now; of one queue, or of all."""

    after: Count | None = None
    queue: str | None = None


class UpkeepQuery(Model):
    """How many rows of each list are asked for."""

    limit: _Limit = 50


class ReplicaRow(Struct, kw_only=True):
    """A replica in a folder, and how many records it lacks; null: it cannot be read."""

    replica: str
    lag_records: int | None


class UpkeepAnswer(Struct, kw_only=True):
    """The state of a root's upkeep; rows are those of the views of these names."""

    replicas: list[ReplicaRow]
    members: list[dict[str, Any]]
    job_runs: list[dict[str, Any]]
    findings: list[dict[str, Any]]


class SqlQuestion(Model):
    """A SELECT over the views, in DuckDB's SQL; `as_of`: a time or `position=N`, by default now."""

    statement: Annotated[str, Meta(min_length=1, max_length=100_000)]
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    as_of: str | None = None


class SqlColumn(Struct, kw_only=True):
    """A column of an answer; `type` is that of Arrow."""

    name: str
    type: str


class SqlAnswer(Struct, kw_only=True):
    """The rows of a query, each with a value for each column; `is_cut`: there are more."""

    columns: list[SqlColumn]
    is_cut: bool
    rows: list[dict[str, Any]]


class HistoryQuery(Model):
    """The part of a message's history that is asked for."""

    offset: Count = 0
    limit: _Limit = 100


class HistoryRow(Struct, kw_only=True):
    """An event of a message; `detail` is the outcome, or the annotations."""

    position: int
    at: str
    kind: str
    queue: str | None
    message_id: int
    holder: str | None
    delivery_count: int | None
    detail: Any
    traceparent: str | None


class MessageHistory(Struct, kw_only=True):
    """The events of a message in their order, as far back as history goes."""

    message: int
    items: list[HistoryRow]

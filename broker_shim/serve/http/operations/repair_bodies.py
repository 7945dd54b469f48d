"""The bodies of requests about branches, single messages, copies and definitions, for msgspec."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from broker_shim.serve.http.bodies import Model, OrderModel


class BranchRow(Struct, kw_only=True):
    """A branch in doubt, or one that an operator decided; `holder`: who prepared or decided it."""

    xid: str
    state: str
    since: str
    holder: str | None
    operations: int


class BranchQuery(Model):
    """The name of who decides, where nobody logs in."""

    by: str | None = None


class BranchList(Struct, kw_only=True):
    """A page of branches, the oldest first."""

    total: int
    offset: int
    items: list[BranchRow]


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


class MessageChoice(Model):
    """Conditions that all hold for a chosen message; an age is such as `90s`, `2h` or `7d`.

    An empty list of `ids` is refused: who computed it does not mean all messages.
    """

    ids: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1)] | None = None
    older_than: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    subject: str | None = None


class ReplayOrder(MessageChoice):
    """Messages that left a queue, copies of which go to it again, or to `to`."""

    to: str | None = None
    dry_run: bool = False


class ReplayOutcome(Struct, kw_only=True):
    """How many copies were put on a queue; a dry run tells in `would` how many would be."""

    queue: str
    to: str
    dry_run: bool
    would: int | None = None
    done: int = 0


class ExportOrder(MessageChoice):
    """Messages to be told with their content; without conditions all that are on the queue."""


class DefinitionsAnswer(Struct, kw_only=True):
    """The definitions of a broker; `left_out`: queues of links, and what ends with the broker."""

    document: dict[str, Any]
    left_out: list[str]


class DefinitionsImport(OrderModel, kw_only=True):
    """Definitions to be made: ours or RabbitMQ's as an object, or as text; Artemis' as text.

    `vhost`: the virtual host of RabbitMQ's that is meant.
    """

    document: dict[str, Any] | str
    vhost: str | None = None


class LeftOut(Struct, kw_only=True):
    """A part of a document that has no counterpart here, and why."""

    left_out: str
    reason: str


class DefinitionsOutcome(Struct, kw_only=True):
    """The answer to each order that a document comes to; `changed` is false if it was so before."""

    dry_run: bool
    changes: int
    orders: list[dict[str, Any]]
    left_out: list[LeftOut]

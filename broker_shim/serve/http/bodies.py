"""The bodies of requests and answers of the HTTP port, as models of msgspec. Data only.

`openapi` describes the endpoints by them, so a field here is a promise to whoever has a script. No
row has content or history of messages: a list of queues costs the same whatever is on them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from sparkstore.core.queue_arguments import ARGUMENTS

_SCHEMAS = {name: argument.schema for name, argument in ARGUMENTS.items()}
QueueArguments = Annotated[dict[str, Any], Meta(extra_json_schema={"properties": _SCHEMAS})]
Count = Annotated[int, Meta(ge=0)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Name = Annotated[str, Meta(min_length=1)]
MessageId = Annotated[int, Meta(ge=1)]
OperationName = Annotated[str, Meta(pattern="^[0-9A-Za-z]{8,32}$")]
Durability = Literal["none", "configuration", "unsettled-state"]


class Model(Struct, forbid_unknown_fields=True, kw_only=True):
    """A body or a query that somebody sends: a name that is not known is refused."""


class PageQuery(Model):
    """The part of a list that is asked for."""

    offset: Count = 0
    limit: Limit = 100


class OrderModel(Model):
    """An order that can be tried: a dry run tells what it would change, and changes nothing."""

    dry_run: bool = False


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


def done(answer: dict[str, Any]) -> OrderOutcome:
    """Tell what came of an order."""
    ours = ("act", "changed", "dry_run")
    details = {name: value for name, value in answer.items() if name not in ours}
    return OrderOutcome(details=details, **{name: answer[name] for name in ours if name in answer})

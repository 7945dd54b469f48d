"""Choose the messages of a bulk command: by Spark and a predicate, or by simple conditions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkstore.cli.output import time_of
from sparkstore.cli.parsing import add_for_root, add_progress, at_least_1
from sparkstore.errors import InvalidRequest
from sparkstore.extras import check_spark
from sparkstore.operations.choice import Choice, choice_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkstore.content.reader import ContentReader
    from sparkstore.control.message_choice import Chosen
    from sparkstore.core.entries import Entry
    from sparkstore.core.fold import State
    from sparkstore.core.records import MessageHeader
    from sparkstore.recovery.departed_messages import DepartedMessage
    from sparkstore.tables.root import Root


class ChosenMessages(NamedTuple):
    """Messages that were chosen, by whoever can: each is called once at most."""

    ids: Callable[[], Iterator[int]]
    total: Callable[[], int]
    sample: Callable[[int], list[dict[str, Any]]]


def add_choice(parser: ArgumentParser, *, by_conditions: bool) -> None:
    """Say which messages are meant: by a predicate, or by conditions that need no Java.

    Args:
        parser: The parser of the command.
        by_conditions: A broker at a URL knows them, too; else it has all messages, or some by id.
    """
    parser.add_argument("queue", metavar="QUEUE", help="the queue of the messages")
    add_for_root(parser, "--where", metavar="PREDICATE", help="which messages, in SQL")
    again: dict[str, Any] = {"action": "append", "default": []}
    what = "this message; may be given again (with a URL and without it: all that nobody holds)"
    parser.add_argument("--id", type=at_least_1, metavar="N", dest="ids", help=what, **again)
    add = partial(ArgumentParser.add_argument if by_conditions else add_for_root, parser)
    add("--older-than", metavar="AGE", help="on the queue for at least so long: 90s, 15m, 2h, 7d")
    what = "with this application property; may be given again"
    add("--property", metavar="NAME=VALUE", dest="properties", help=what, **again)
    add("--subject", metavar="TEXT", help="with this subject")
    add_progress(parser)


Find = Callable[["Root", "State"], AbstractContextManager[ChosenMessages]]


def waiting(arguments: Namespace) -> Find:
    """Choose messages that wait on the queue: by Spark with a predicate, without it else.

    Raises:
        InvalidRequest: Neither is said, or both, or a condition is not well written.
    """
    return _by_either(arguments, _waiting_by_conditions, _waiting_by_spark)


def departed(arguments: Namespace) -> Find:
    """Choose messages that left the queue: by Spark with a predicate, without it else.

    Raises:
        InvalidRequest: Neither is given, or both, or a condition is not well written.
    """
    return _by_either(arguments, _departed_by_conditions, _departed_by_spark)


def _by_either(
    arguments: Namespace,
    by_conditions: Callable[..., AbstractContextManager[ChosenMessages]],
    by_spark: Callable[..., AbstractContextManager[ChosenMessages]],
) -> Find:
    plain = choice_of(arguments.ids, arguments.older_than, arguments.properties, arguments.subject)
    if arguments.where is None:
        if plain == Choice():
            text = "say which messages: --where PREDICATE, --id, --older-than, --property or"
            raise InvalidRequest(f"{text} --subject; --where true means all of them")
        return partial(by_conditions, arguments, plain)
    check_spark("--where", "use --id, --older-than, --property or --subject")
    if plain != Choice():
        text = "--where says all that is wanted: add to it what the other conditions say"
        raise InvalidRequest(text)
    return partial(by_spark, arguments)


@contextmanager
def _departed_by_spark(arguments: Namespace, root: Root, _state: State) -> Iterator[ChosenMessages]:
    from sparkstore.views import message_choice

    with _session() as spark:
        message_choice.condition(spark, arguments.where)
        queue, to = arguments.queue, arguments.to
        yield _by_spark(message_choice.departed(spark, root, queue, arguments.where, to=to))


@contextmanager
def _departed_by_conditions(
    arguments: Namespace, choice: Choice, root: Root, state: State
) -> Iterator[ChosenMessages]:
    from sparkstore.content.reader import ContentReader
    from sparkstore.control.message_choice import departed

    reader, queue = ContentReader(root), arguments.queue
    find = partial(departed, root, state, reader, queue, arguments.to, choice)
    yield ChosenMessages(
        lambda: (message.message_id for message, _header in find()),
        lambda: sum(1 for _ in find()),
        lambda limit: [_departed_row(*message) for message in islice(find(), limit)],
    )


@contextmanager
def _waiting_by_spark(arguments: Namespace, root: Root, _state: State) -> Iterator[ChosenMessages]:
    from sparkstore.views import message_choice

    with _session() as spark:
        message_choice.condition(spark, arguments.where)
        chosen = message_choice.waiting(spark, root, arguments.queue, arguments.where)
        yield _by_spark(chosen)


@contextmanager
def _waiting_by_conditions(
    arguments: Namespace, choice: Choice, root: Root, state: State
) -> Iterator[ChosenMessages]:
    from sparkstore.content.reader import ContentReader
    from sparkstore.control.message_choice import chosen

    reader = ContentReader(root)
    find = partial(chosen, state, reader, arguments.queue, choice)
    yield ChosenMessages(
        lambda: (message_id for message_id, *_ in find()),
        lambda: sum(1 for _ in find()),
        lambda limit: _sample([*islice(find(), limit)], reader),
    )


def _by_spark(chosen: DataFrame) -> ChosenMessages:
    from sparkstore.views import message_choice

    return ChosenMessages(
        partial(message_choice.ids, chosen),
        partial(message_choice.count, chosen),
        partial(message_choice.sample, chosen),
    )


@contextmanager
def _session() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession as Session

    from sparkstore.session import local_session

    is_ours = Session.getActiveSession() is None
    spark = local_session("sparkstore bulk")
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def _departed_row(message: DepartedMessage, header: MessageHeader) -> dict[str, Any]:
    """A row of a message that left, for people, as a choice by Spark shows it."""
    return {
        "message_id": message.message_id,
        "dequeued_at": time_of(message.dequeued_at),
        "outcome": message.outcome,
        "message_bytes": header.header_bytes + header.body_bytes,
        "subject": header.subject,
        "properties": dict(header.properties),
    }


def _sample(messages: Sequence[Chosen], reader: ContentReader) -> list[dict[str, Any]]:
    """Rows of some messages for people, as a choice by Spark shows them."""
    headers = reader.headers([message_id for message_id, *_ in messages])
    return [_row(message_id, entry, headers.get(message_id)) for message_id, entry, _ in messages]


def _row(message_id: int, entry: Entry, header: MessageHeader | None) -> dict[str, Any]:
    return {
        "message_id": message_id,
        "enqueued_at": time_of(entry.at),
        "acquired_by": entry.acquired_by,
        "delivery_count": entry.delivery_count,
        "priority": entry.priority,
        "message_bytes": entry.message_bytes,
        "subject": None if header is None else header.subject,
        "properties": {} if header is None else dict(header.properties),
    }

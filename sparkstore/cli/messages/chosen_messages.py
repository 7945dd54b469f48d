"""Choose the messages of a bulk command: Spark by a predicate, or simple conditions."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkstore.errors import InvalidRequest
from sparkstore.extras import check_spark
from sparkstore.operations.choice import Choice, choice_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkstore.core.fold import State
    from sparkstore.tables.root import Root


class ChosenMessages(NamedTuple):
    """Messages that were chosen, by whoever can: each is called once at most."""

    ids: Callable[[], Iterator[int]]
    total: Callable[[], int]
    sample: Callable[[int], list[dict[str, Any]]]


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
    from sparkstore.cli.messages.plain_choice import departed_row
    from sparkstore.content.reader import ContentReader
    from sparkstore.control.message_choice import departed

    reader, queue = ContentReader(root), arguments.queue
    find = partial(departed, root, state, reader, queue, arguments.to, choice)
    yield ChosenMessages(
        lambda: (each.message_id for each, _header in find()),
        lambda: sum(1 for _ in find()),
        lambda limit: [departed_row(*each) for each in islice(find(), limit)],
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
    from sparkstore.cli.messages.plain_choice import sample
    from sparkstore.content.reader import ContentReader
    from sparkstore.control.message_choice import chosen

    reader = ContentReader(root)
    find = partial(chosen, state, reader, arguments.queue, choice)
    yield ChosenMessages(
        lambda: (message_id for message_id, *_ in find()),
        lambda: sum(1 for _ in find()),
        lambda limit: sample([*islice(find(), limit)], reader),
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

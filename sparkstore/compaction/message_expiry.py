"""Ends messages that stayed too long or failed too often: to their queue's dead letters, or off it.

Runs after a compaction, when the answer is cheap, and not under its lease: what it changes goes
through the store like every other change (`control`). SQL only proposes; the store looks at each
message again. So one that was consumed, acquired or requeued meanwhile is left alone, and a run
that is cut off or repeated does no harm.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from pyspark.sql import SparkSession

from sparkstore.config import StoreConfig
from sparkstore.control.client import AdminClient, open_control
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.operations.bulk import TURN_IDS, Action, Answer, Request
from sparkstore.tables.root import Root
from sparkstore.views import message_choice

_log = logging.getLogger(__name__)


def end_messages(
    spark: SparkSession,
    root: Root,
    config: StoreConfig | None = None,
    audit_file: Path | None = None,
    uri: str = "",
) -> Answer:
    """Dead-letter what its queue's arguments say; nothing is opened if there is nothing to do.

    Args:
        spark: A session with Delta.
        root: A primary; on a replica nothing is done.
        config: Settings of the store, for when no broker runs.
        audit_file: Gets the audit lines while no broker runs; None: `audit.log` in the root.
        uri: The URI of a root in a bucket, whose copy `root` is.

    Raises:
        StoreError: The tables cannot be read, or nobody can change the queues now: run it again.
    """
    if root.identity.role != "primary" and not uri:
        return Answer()
    messages = message_choice.ended(spark, root)
    first = next(messages, None)
    if first is None:
        return Answer()
    control = open_control(uri or root, config, audit_file)
    try:
        return _end(control, chain([first], messages))
    finally:
        control.close()


def try_to_end_messages(
    spark: SparkSession,
    root: Root,
    config: StoreConfig | None = None,
    audit_file: Path | None = None,
    uri: str = "",
) -> Answer:
    """End messages after another job: a failure is a warning, and the next run tries again."""
    try:
        answer = end_messages(spark, root, config, audit_file, uri)
    except StoreError as reason:
        _log.warning("expired messages stay until the next run: %s", reason)
        return Answer()
    if answer != Answer():
        _log.info("%d messages ended, %d left alone", answer.done, answer.left)
    return answer


def _end(control: AdminClient, messages: Iterable[tuple[str, int]]) -> Answer:
    total = Answer()
    for queue, message_ids in _batches(messages):
        try:
            total = total.plus(control.run(Request(Action.DEAD_LETTER, queue, message_ids)))
        except InvalidRequest as reason:  # the queue was destroyed meanwhile
            _log.warning("%d messages of %r stay: %s", len(message_ids), queue, reason)
            total = total.plus(Answer(left=len(message_ids)))
    return total


def _batches(messages: Iterable[tuple[str, int]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    waiting: dict[str, list[int]] = defaultdict(list)
    for queue, message_id in messages:
        waiting[queue].append(message_id)
        if len(waiting[queue]) == TURN_IDS:
            yield queue, tuple(waiting.pop(queue))
    for queue, message_ids in waiting.items():
        yield queue, tuple(message_ids)

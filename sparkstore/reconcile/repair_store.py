"""Have the store repair what it owns: through the running broker, or under its lock.

Each request is one transaction of the store; who is killed in between has done some of them, and
the next run does the rest (`control`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import groupby, islice
from pathlib import Path

from pyspark.sql import DataFrame

from sparkstore.config import StoreConfig
from sparkstore.control.client import open_control
from sparkstore.operations.bulk import MAX_IDS, Action, Answer, Request
from sparkstore.reconcile.inspection import Look
from sparkstore.tables.root import Root

_ENTRIES = ("queue", "message_id")


def release_held(
    seen: Look, where: Root | str, config: StoreConfig, audit_file: Path | None = None
) -> Answer:
    """Give back what no live holder has: of a running broker, what it does not know as a holder.

    Args:
        seen: The root, or a copy of it.
        where: The root that is changed, or its URI.
        config: Settings of its store, if no broker runs.
        audit_file: Gets the audit lines then; None: the default.

    Raises:
        StoreError: As `open_control` and `AdminClient.run`.
    """
    return _ask(where, Action.RELEASE, seen.held(), config, audit_file)


def purge_lost(
    seen: Look, where: Root | str, config: StoreConfig, audit_file: Path | None = None
) -> Answer:
    """Drop entries whose content is nowhere; those that somebody holds are left.

    For the arguments see `release_held`.

    Raises:
        StoreError: As `open_control` and `AdminClient.run`.
    """
    entries = seen.names.spark.table(seen.entries)
    lost = seen.lost_content().select("message_id")
    return _ask(
        where, Action.PURGE, entries.join(lost, "message_id", "left_semi"), config, audit_file
    )


def _ask(
    where: Root | str,
    action: Action,
    entries: DataFrame,
    config: StoreConfig,
    audit_file: Path | None,
) -> Answer:
    answer = Answer()
    requests = _requests(action, entries)
    first = next(requests, None)
    if first is None:
        return answer
    with closing(open_control(where, config, audit_file)) as control:
        answer = control.run(first)
        for request in requests:
            answer = answer.plus(control.run(request))
    return answer


def _requests(action: Action, entries: DataFrame) -> Iterator[Request]:
    """Make requests of so many ids of one queue; the rows come one partition at a time."""
    rows = entries.select(*_ENTRIES).orderBy(*_ENTRIES).toLocalIterator()
    for queue, group in groupby(rows, key=lambda row: row.queue):
        ids = (row.message_id for row in group)
        while part := tuple(islice(ids, MAX_IDS)):
            yield Request(action, queue, part)

"""Run each command: ask the module that knows the answer, and print it.

Modules are imported where they are used: `version` and `--help` answer at once, and only `sql`
loads Spark. The commands that run a job are in `cli.jobs`.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING

import sparkstore
from sparkstore.cli.notes import note, note_unreplayed
from sparkstore.cli.output import (
    Row,
    fields,
    json_lines,
    printable,
    table,
    time_of,
)
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.extras import check_spark

if TYPE_CHECKING:
    from sparkstore.cli.queries.query_result import QueryResult
    from sparkstore.core.fold import QueueState, State
    from sparkstore.recovery.point_in_time import PointInTime
    from sparkstore.tables.root import Root

_ENGINES = ("deltalake", "pyarrow", "pyspark", "delta-spark")
QUEUE_COLUMNS = (
    *("queue", "depth", "bytes", "acquired", "delayed", "oldest_age_s", "not_durable"),
    "arguments",
)  # fmt: skip
SQL_ROWS, _HELD = 1_000, 10_000
"""Rows and held messages that people see unless they ask for more."""
_WIDTH = 1_000
"""Characters of a cell of an answer: a table is as wide as its longest."""


def queues(arguments: Namespace) -> int:
    """Every queue, by name."""
    with opened_root(arguments.root) as root:
        return _queues(arguments, root)


@contextmanager
def opened_root(where: str, *, whole: bool = False, executors_at: str = "") -> Iterator[Root]:
    """The root that was named; of one in a bucket a copy, with every file only if `whole`.

    With `executors_at` Spark reads the tables there (`bucket.cluster_tables`).
    """
    from sparkstore.log.tuning import import_arrow_without
    from sparkstore.storage.objects import is_object_uri

    import_arrow_without("pandas")
    from sparkstore.tables.root import open_root

    if is_object_uri(where):
        from sparkstore.replication.bucket_download import local_copy

        with local_copy(where, whole=whole, executors_at=executors_at) as root:
            yield root
    else:
        yield open_root(where)


def _queues(arguments: Namespace, root: Root) -> int:
    from sparkstore.storage.objects import is_object_uri

    if arguments.holders:
        return _holders(arguments, root)
    if arguments.limit is not None:
        raise InvalidRequest("--limit is of --holders: every queue is shown")
    state = recovered(root)
    now_us = time.time_ns() // 1000
    in_memory = None if is_object_uri(arguments.root) else _not_durable(root)
    rows = [
        queue_row(name, state.queues.get(name), now_us, in_memory)
        for name in sorted({*state.queues, *(in_memory or ())})
    ]
    _show(arguments, rows, QUEUE_COLUMNS)
    tell_unreplayed(arguments, root)
    return 0


def _not_durable(root: Root) -> dict[str, int] | None:
    """Messages that only the broker that runs has; None if it does not tell us."""
    from sparkstore.control.client import connect

    try:
        served = connect(root)
    except StoreError:
        return None
    if served is None:
        return {}
    try:
        return served.not_durable()
    except StoreError:
        return None
    finally:
        served.close()


def _holders(arguments: Namespace, root: Root) -> int:
    """Show the holders of messages: by the running broker, or as they were when it ended."""
    from sparkstore.control.client import connect_to

    limit = row_limit(arguments, _HELD) or None
    served = connect_to(arguments.root)
    if served is not None:
        try:
            held = served.holders(limit)
        finally:
            served.close()
        rows: list[Row] = [
            _held_row(each.queue, each.message_id, each.holders, each.since_us)
            for each in held.shown
        ]
        left_out = held.left_out
    else:
        there = list(_held_at_rest(root))
        rows = there[:limit]
        left_out = len(there) - len(rows)
    _show(arguments, rows, ("queue", "message_id", "holders", "since"))
    if left_out:
        note(f"{left_out} more messages are held than are shown: --limit 0 shows all")
    if served is None:
        tell_unreplayed(arguments, root)
    return 0


def _held_at_rest(root: Root) -> Iterator[Row]:
    from sparkstore.core.holders import since_by_holder, since_of

    state = recovered(root)
    since = since_by_holder(state)
    for name, queue in state.queues.items():
        for message_id, entry in queue.entries.items():
            if (holder := entry.acquired_by) is not None:
                yield _held_row(name, message_id, [holder], since_of(holder, since))


def _held_row(queue: str, message_id: int, holders: list[str], since_us: int | None) -> Row:
    """`since`: when the member came, or the branch was prepared; empty for others."""
    return {
        "queue": queue,
        "message_id": message_id,
        "holders": holders,
        "since": time_of(since_us),
    }


def queue_row(
    name: str, queue: QueueState | None, now_us: int, in_memory: dict[str, int] | None
) -> Row:
    """Return a row of `sparkstore queues`; `in_memory` is the running broker's count by queue."""
    from sparkstore.core.queue_arguments import arguments_of, effective_arguments

    entries = () if queue is None else queue.entries.values()
    oldest_at = min((entry.at for entry in entries), default=None)
    return {
        "queue": name,
        "depth": len(entries),
        "bytes": sum(entry.message_bytes for entry in entries),
        "acquired": sum(entry.acquired_by is not None for entry in entries),
        "delayed": 0 if queue is None else queue.entries.delayed_count(now_us),
        "oldest_age_s": None if oldest_at is None else max(0, now_us - oldest_at) / 1_000_000,
        "not_durable": None if in_memory is None else in_memory.get(name, 0),
        "arguments": (queue and effective_arguments(arguments_of(queue.detail))) or None,
    }


def sql(arguments: Namespace) -> int:
    """The answer to a query."""
    from sparkstore.log.tuning import without

    absent = ("numpy", "pandas") if arguments.engine == "duckdb" else ()
    with without(*absent), opened_root(arguments.root, whole=True) as root:
        return _sql(arguments, root)  # the root is there, before seconds of starting a JVM


def _sql(arguments: Namespace, root: Root) -> int:
    limit = row_limit(arguments, SQL_ROWS)
    if arguments.as_of is not None:
        check_time(root, arguments.as_of)
    found = (_by_duckdb if arguments.engine == "duckdb" else _by_spark)(arguments, root, limit)
    print_answer(found, limit, "--limit 0 shows all", as_json=arguments.json)
    note_unreplayed(root)
    return 0


def print_answer(found: QueryResult, limit: int, for_more: str, *, as_json: bool) -> None:
    """Print the answer of a query, and note what is not shown of it and what shows more."""
    if as_json:
        print_lines(json_lines(found.rows))
    else:
        lines = list(table(found.rows, found.columns, width=_WIDTH))
        print_lines(lines)
        if any("…" in line for line in lines):
            note(f"a value longer than {_WIDTH} characters ends in …: --json shows it whole")
    if found.is_cut:
        note(f"the first {limit} rows are shown, there are more: {for_more}")


def check_time(root: Root, as_of: str) -> PointInTime:
    """Refuse a time of which there is no answer, before a JVM starts; say if UTC is assumed.

    Raises:
        InvalidRequest: It is none, is in the future, or before history.
    """
    from sparkstore.recovery.point_in_time import has_zone, point_in_time

    point = point_in_time(root, as_of)
    if not has_zone(as_of):
        note(f"{as_of} has no time zone: UTC is assumed")
    return point


def _by_spark(arguments: Namespace, root: Root, limit: int) -> QueryResult:
    check_spark("sql --engine spark", "--engine duckdb")
    from sparkstore.cli.queries.spark_sql import answer_once

    return answer_once(root, arguments.statement, limit, arguments.as_of)


def _by_duckdb(arguments: Namespace, root: Root, limit: int) -> QueryResult:
    from sparkstore.cli.queries.duckdb_sql import answer

    return answer(root, arguments.statement, limit, arguments.as_of)


def verify(arguments: Namespace) -> int:
    """Every invariant by name; 1 if one does not hold."""
    with opened_root(arguments.root, whole=True) as root:
        return _verify(arguments, root)


def _verify(arguments: Namespace, root: Root) -> int:
    from sparkstore.reconcile.invariants import check

    findings = check(root, deep=arguments.deep)
    if arguments.json:
        print_lines(json_lines(map(asdict, findings)))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            result = "ok    " if finding.holds else "BROKEN"
            print(f"{result}  {finding.name:{width}}  {printable(finding.evidence)}")
    note_unreplayed(root)
    return 0 if all(finding.holds for finding in findings) else 1


def version(arguments: Namespace) -> int:
    """Versions of sparkstore, Python and the engines; None for one that is not installed."""
    versions: dict[str, str | None] = {
        "sparkstore": sparkstore.__version__,
        "python": sys.version.split()[0],
    }
    for name in _ENGINES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    print_lines(json_lines([versions]) if arguments.json else fields(versions))
    return 0


def recovered(root: Root) -> State:
    """Return the fold of all that Delta has; see `recovered_state` for what it raises."""
    from sparkstore.recovery.recovered_state import recovered_state  # it loads deltalake

    return recovered_state(root)


def queue_named(arguments: Namespace, state: State) -> str:
    """Find the queue that the user names; a short name will do.

    Raises:
        InvalidRequest: There is none, or the name means several.
    """
    from sparkstore.core.queue_names import find

    queue = find(arguments.queue, state.queues)
    if queue not in state.queues:
        message = f"{arguments.root} has no queue {arguments.queue!r}: see sparkstore queues"
        raise InvalidRequest(message)
    return queue


def row_limit(arguments: Namespace, for_people: int) -> int:
    """Return the number of rows to show, 0: all; a machine gets all unless it says otherwise."""
    if arguments.limit is not None:
        return int(arguments.limit)
    return 0 if arguments.json else for_people


def tell_unreplayed(arguments: Namespace, root: Root) -> None:
    """Note that the answer is not complete.

    A machine gets this as a last object, whose name no row has.
    """
    found = note_unreplayed(root)
    if found and arguments.json:
        print_lines(json_lines([{"unreplayed": found}]))


def _show(arguments: Namespace, rows: Iterable[Row], columns: Sequence[str] = ()) -> None:
    print_lines(json_lines(rows) if arguments.json else table(list(rows), columns))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they come."""
    for line in lines:
        print(line)

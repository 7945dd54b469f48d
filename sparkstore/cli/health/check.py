"""The command `check`: is a root well, in the words of a monitoring system."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkstore.cli.notes import note
from sparkstore.cli.output import json_lines, one_line, print_lines
from sparkstore.cli.parsing import add_for_root, command
from sparkstore.cli.target import opened_broker, opened_root, recovered
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.operations.root_check import (
    CheckStatus,
    Figure,
    JudgedFigure,
    judge,
    nagios_line,
    threshold_of,
    worst,
)

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.core.fold import State
    from sparkstore.operations.root_check import Thresholds
    from sparkstore.tables.root import Root

_AGES = ("age", "compaction")
_WITNESS_S = 5.0
_OF_ROOT = ("lag", "compaction", "alone")
_OPTIONS = {
    "depth": "messages on a queue",
    "age": "age of a queue's oldest message",
    "dead": "messages on a queue of dead letters",
    "lag": "records that a replica lacks",
    "compaction": "time since the last compaction",
    "alone": "1 if no standby could take over, of a root with a witness; else 0",
}
_METRICS = {
    "depth": ("sparkstore_check_queue_messages", "queue", "Messages on a queue."),
    "age": ("sparkstore_check_queue_oldest_age_seconds", "queue", "Age of the oldest message."),
    "dead": ("sparkstore_check_dead_letters", "queue", "Messages on a queue of dead letters."),
    "lag": ("sparkstore_check_replica_lag_records", "replica", "Records that a replica lacks."),
    "alone": ("sparkstore_check_standby_alone", "", "1 if no standby could take over."),
    "compaction": (
        "sparkstore_check_last_compaction_age_seconds", "", "Time since the last compaction.",
    ),
}  # fmt: skip


def add(subparsers: Subparsers) -> None:
    """Add the command `check` to the command line."""
    parser = command(
        subparsers,
        check,
        "say whether a root is well, for Nagios, Icinga or Prometheus",
        "A LIMIT is WARN, WARN:CRIT or :CRIT, and QUEUE=LIMIT is for one queue; it may be given\n"
        "again. More than WARN is a warning, more than CRIT critical. Ages are 90s, 15m, 2h, 7d.\n"
        "nagios: one line with performance data; exit code 0 ok, 1 warning, 2 critical,\n"
        "3 unknown, also where the root cannot be read. prometheus: metrics for the textfile\n"
        "collector, with sparkstore_check_status; the same exit codes. Of a ROOT it reads the\n"
        "tables, and asks no broker: watch /readyz for that. By a URL it asks the broker.\n\n"
        "examples:\n"
        "  sparkstore check ROOT --depth 1000:5000 --depth audit=100000 --age 10m:1h\n"
        "  sparkstore check ROOT --dead 0:100 --compaction 2h:1d --lag 10000 --alone 0\n"
        "  sparkstore check ROOT --format prometheus > /var/lib/node_exporter/queues.prom",
        by_url=True,
    )
    for name, what in _OPTIONS.items():
        add = partial(add_for_root if name in _OF_ROOT else ArgumentParser.add_argument, parser)
        text = f"limits of: {what}"
        add(f"--{name}", action="append", default=[], metavar="LIMIT", help=text)
    parser.add_argument("--format", choices=("nagios", "prometheus"), default="nagios")


def check(arguments: Namespace) -> int:
    """Say whether all is well; the exit code is that of a monitoring plugin."""
    try:
        thresholds = dict(
            threshold_of(name, limit, is_age=name in _AGES)
            for name in _OPTIONS
            for limit in getattr(arguments, name)
        )
        figures = [*(_figures_at_rest if arguments.url is None else _figures_by_url)(arguments)]
        depths = {figure.of: figure.value or 0 for figure in figures if figure.name == "depth"}
        _check_queues(thresholds, depths)
    except (StoreError, OSError) as reason:
        return _unknown(arguments, reason)
    judged = judge(figures, thresholds)
    status = worst(judged)
    if arguments.json:
        print_lines(json_lines(map(_row, judged)))
        print_lines(json_lines([{"status": status.name}]))
    elif arguments.format == "prometheus":
        sys.stdout.write(_metrics(judged, status))
    else:
        summary = f"{sum(depths.values())} messages on {len(depths)} queues"
        print_lines([one_line(nagios_line(judged, summary))])
    return int(status)


def _check_queues(thresholds: Thresholds, queues: Collection[str]) -> None:
    for name, queue in thresholds:
        if queue and name in {"depth", "age", "dead"} and queue not in queues:
            raise InvalidRequest(f"--{name} {queue}=…: no queue has this name")


def _unknown(arguments: Namespace, reason: Exception) -> int:
    """Say that nobody knows: a monitoring system reads standard output, and the exit code."""
    if arguments.json:
        print_lines(json_lines([{"status": CheckStatus.UNKNOWN.name, "reason": str(reason)}]))
    elif arguments.format == "prometheus":
        sys.stdout.write(_metrics([], CheckStatus.UNKNOWN))
        note(one_line(str(reason)))
    else:
        print_lines([f"SPARKSTORE UNKNOWN - {one_line(str(reason)).replace('|', '/')}"])
    return int(CheckStatus.UNKNOWN)


def _figures_by_url(arguments: Namespace) -> Iterator[Figure]:
    with opened_broker(arguments) as broker:
        targets = {row["name"] for row in broker.pages("dead-letters")}
        for row in broker.pages("queues"):
            yield from _queue_figures(row["name"], row["depth"], row["oldest_age_s"] or 0, targets)


def _figures_at_rest(arguments: Namespace) -> Iterator[Figure]:
    with opened_root(arguments.root, whole=True) as root:
        yield from _figures(root, recovered(root))


def _queue_figures(
    name: str, depth: int, age: float, targets: Collection[str | None]
) -> Iterator[Figure]:
    """Yield the figures of a queue; `targets` get dead letters."""
    yield Figure("depth", name, depth)
    yield Figure("age", name, age, "s")
    if name in targets:
        yield Figure("dead", name, depth)


def _figures(root: Root, state: State) -> Iterator[Figure]:
    from sparkstore.core.queue_arguments import terms_of

    now_us = time.time_ns() // 1_000
    targets = {
        terms_of(queue.detail).arguments.dead_letter_queue for queue in state.queues.values()
    }
    for name, queue in state.queues.items():
        oldest = queue.entries.oldest()
        age = 0.0 if oldest is None else max(0, now_us - oldest.at) / 1_000_000
        yield from _queue_figures(name, len(queue.entries), age, targets)
    yield from _lags(root)
    yield Figure("compaction", "", _since_compaction(root, now_us), "s")
    if root.identity.witness:
        yield Figure("alone", "", _alone(root))


def _alone(root: Root) -> int | None:
    """1 if no standby could take over; None: the witness does not say."""
    from sparkstore.witness.place import witness_at
    from sparkstore.witness.turn import sight

    try:
        sighted = sight(witness_at(root.identity.witness, patience_s=_WITNESS_S))
    except (StoreError, OSError):
        return None
    return None if sighted is None else int(not sighted[0].in_step or sighted[0].is_paused)


def _lags(root: Root) -> Iterator[Figure]:
    """How many records each replica in a folder lacks; one that cannot be read is not known."""
    from sparkstore.recovery.replica_lag import replica_lags

    for folder, lag in replica_lags(root).items():
        yield Figure("lag", folder, lag)


def _since_compaction(root: Root, now_us: int) -> float | None:
    from sparkstore.jobs.job_runs import last_success

    ended_at = last_success(root, "compact")
    return None if ended_at is None else max(0.0, now_us / 1_000_000 - ended_at.timestamp())


def _row(judged: JudgedFigure) -> dict[str, Any]:
    figure, threshold, status = judged
    row = {"figure": figure.name, "of": figure.of or None, "value": figure.value}
    return {**row, **threshold._asdict(), "status": status.name}


def _metrics(judged: list[JudgedFigure], status: CheckStatus) -> str:
    from sparkstore.metrics.exposition import encoded, gauge

    text = "0: ok, 1: warning, 2: critical, 3: unknown."
    families = [gauge("sparkstore_check_status", text, [({}, int(status))])]
    for name, (metric, label, help_text) in _METRICS.items():
        values = [
            ({label: figure.of} if label else {}, figure.value)
            for figure, _threshold, _status in judged
            if figure.name == name and figure.value is not None
        ]
        if values:
            families.append(gauge(metric, help_text, values))
    return encoded(families).decode()

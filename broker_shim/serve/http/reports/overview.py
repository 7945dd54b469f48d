"""Requests for how the broker is: figures on one page, and sentences about what is wrong.

The sentences are those of `sparkstore doctor` (`sparkstore.cli.health.diagnosis`), of findings of
`reconcile`, and of jobs that failed. What takes reads of tables is kept for a minute.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker_shim.serve.http.calls import Call, ServedBroker, iso_time, now_us
from broker_shim.serve.http.endpoint import API, MONITOR, Endpoint
from broker_shim.serve.http.figures.figure_bodies import (
    AlarmRow,
    DiskRow,
    OverviewAnswer,
    StandbyRow,
    SwitchRow,
)
from broker_shim.serve.http.figures.recent_figures import RATE_S
from broker_shim.serve.http.figures.series_answers import RootUpkeep
from broker_shim.serve.http.table_reads import read_tables, root_of
from broker_shim.serve.stores import trouble_of
from broker_shim.store.delta import DeltaMessageStore
from sparkstore import __version__
from sparkstore.tables.root import Root

if TYPE_CHECKING:
    from sparkstore.cli.health.diagnosis import Diagnosis

HOUR_S, _LONGEST_SWITCH_S = 3600.0, 60.0
LATE_S = 2 * 86_400.0
"""A last compaction that is older is an alarm."""


class _LogFigures(NamedTuple):
    """The disks and the log of a root; a broker without one has nothing to tell."""

    disks: list[DiskRow]
    sync_p50_ms: float | None = None
    sync_p99_ms: float | None = None
    uncommitted_bytes: int | None = None


async def show_overview(call: Call) -> OverviewAnswer:
    """Show how the broker is, and what is wrong."""
    served, upkeep = call.served, await _upkeep(call)
    calls = served.calls
    connections = len((await calls.wait(calls.turns.connections.rows)).rows)
    figures = await call.read(lambda: _figures(call))
    store = getattr(served.store, "first", served.store)
    log = _log_figures(store) if isinstance(store, DeltaMessageStore) else _LogFigures([])
    compacted = upkeep.compacted_at
    return OverviewAnswer(
        version=__version__,
        connections=connections,
        memory_bytes=_memory_bytes(),
        last_compaction_at=None if compacted is None else compacted.isoformat(timespec="seconds"),
        replica_lags=upkeep.replica_lags,
        standby=_standby(call),
        last_switch=_last_switch(call),
        alarms=[*_trouble(served, store, log), *_alone(call), *upkeep.alarms],
        **log._asdict(),
        **figures,
    )


def _standby(call: Call) -> StandbyRow | None:
    if call.probes.pair is None:
        return None
    figures = call.probes.pair.figures
    return StandbyRow(
        in_step=figures.is_in_step,
        alone=figures.is_alone,
        lag_records=figures.lag_records,
        lag_bytes=figures.lag_bytes,
        lag_seconds=round(figures.lag_s, 3),
    )


def _last_switch(call: Call) -> SwitchRow | None:
    pair = call.probes.pair
    holder = None if pair is None else pair.last_known
    if holder is None or not holder.switched_us:
        return None
    after_s = (call.served.recent.started_us - holder.switched_us) / 1e6
    return SwitchRow(
        at=iso_time(holder.switched_us),
        why=holder.switched_why,
        served_after_s=round(after_s, 2) if after_s <= _LONGEST_SWITCH_S else None,
    )


def _alone(call: Call) -> Iterator[AlarmRow]:
    """Say that nobody could take over, in the words of the doctor."""
    from sparkstore.cli.health import diagnosis  # noqa: PLC0415  # for those who look

    if call.probes.is_alone:
        yield from _alarms(diagnosis.of_standby("", is_paused=False))


def _figures(call: Call) -> dict[str, Any]:
    """Sum the figures of all queues. On the loop's thread."""
    broker, recent, at_us = call.broker, call.served.recent, now_us()
    rows = [broker.queries.facts(name, at_us) for name in broker.queues]
    age_s, oldest = max(((row.oldest_age_s or 0.0, row.name) for row in rows), default=(0.0, ""))
    before, newest = recent.since(RATE_S)
    seconds = max(1e-6, (newest.at_us - before.at_us) / 1e6)
    died = recent.since(HOUR_S)
    return {
        "started_at": iso_time(recent.started_us),
        "uptime_s": (at_us - recent.started_us) // 1_000_000,
        "in_rate": (newest.enqueued - before.enqueued) / seconds,
        "out_rate": (newest.accepted - before.accepted) / seconds,
        "queues": len(rows),
        "messages": sum(map(len, broker.queues.values())),
        "acquired": sum(queue.held_count for queue in broker.queues.values()),
        "bytes": sum(row.entries.message_bytes for row in rows),
        "oldest_age_s": age_s,
        "oldest_queue": oldest if age_s else None,
        "dead_lettered_last_hour": died[1].dead_lettered - died[0].dead_lettered,
    }


def _log_figures(store: DeltaMessageStore) -> _LogFigures:
    sync, room = store.metrics.sync_duration_seconds, store.room
    disks = [
        DiskRow(
            folder=str(disk.folder),
            free_bytes=disk.free_bytes,
            total_bytes=disk.total_bytes,
            least_free_bytes=room.least_free(disk),
        )
        for disk in room.disks
    ]
    p50, p99 = (None if s is None else s * 1000 for s in map(sync.quantile, (0.5, 0.99)))
    return _LogFigures(disks, p50, p99, store.backlog.uncommitted_bytes)


def _trouble(served: ServedBroker, store: Any, log: _LogFigures) -> Iterator[AlarmRow]:
    """List what is wrong now: with the store, its disks, this process and the machine."""
    from sparkstore.cli.health import diagnosis  # noqa: PLC0415  # for those who look
    from sparkstore.cli.health.clock_health import of_clock  # noqa: PLC0415
    from sparkstore.cli.health.root_health import file_system_of  # noqa: PLC0415

    if (trouble := trouble_of(served.store)) is not None:
        yield AlarmRow(severity="fail", text=trouble)
    if isinstance(store, DeltaMessageStore) and (error := store.metrics.delta_error):
        text = f"commits to Delta fail: {error}: see the broker's log"
        yield AlarmRow(severity="fail", text=text)
    lines = [diagnosis.of_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]), of_clock()]
    for disk in log.disks:
        lines.append(diagnosis.of_room(disk.free_bytes, disk.total_bytes, disk.least_free_bytes))
        kind = file_system_of(Path(disk.folder))
        lines.append(diagnosis.of_file_system(kind, disk.folder))
    if log.sync_p50_ms is not None:
        lines.append(diagnosis.of_sync_time(log.sync_p50_ms))
    for line in lines:
        yield from _alarms(line)


def _alarms(line: Diagnosis) -> Iterator[AlarmRow]:
    if line.status != "ok":
        text = f"{line.name}: {line.found}: {line.advice}"
        yield AlarmRow(severity=line.status, text=text)


async def _upkeep(call: Call) -> RootUpkeep:
    root = root_of(call)
    if root is None:
        return RootUpkeep(None, {}, [])
    return await call.served.series.lately(
        "upkeep", lambda: read_tables(None, lambda: _upkeep_of(root))
    )


def _upkeep_of(root: Root) -> RootUpkeep:
    from sparkstore.jobs.job_runs import last_success  # noqa: PLC0415  # they load deltalake
    from sparkstore.recovery.replica_lag import replica_lags  # noqa: PLC0415

    compacted, lags = last_success(root, "compact"), replica_lags(root)
    alarms = [*_failed_jobs(root), *_findings(root)]
    if compacted is not None and (late_s := time.time() - compacted.timestamp()) > LATE_S:
        text = f"the last compaction ended {late_s / 86_400:.0f} days ago: sparkstore compact ROOT"
        alarms.append(AlarmRow(severity="warn", text=text))
    alarms += [
        AlarmRow(severity="fail", text=f"the replica {folder} cannot be read: look at it")
        for folder, lag in lags.items()
        if lag is None
    ]
    return RootUpkeep(compacted, lags, alarms)


def _failed_jobs(root: Root) -> Iterator[AlarmRow]:
    """List the jobs whose newest run failed."""
    query = "SELECT job, error FROM job_runs QUALIFY outcome = 'failed' AND"
    newest = "row_number() OVER (PARTITION BY job ORDER BY began_at DESC) = 1"
    for row in _rows(root, "job_runs", f"{query} {newest}"):
        text = f"the last run of {row['job']} failed: {row['error']}"
        yield AlarmRow(severity="fail", text=text)


def _findings(root: Root) -> Iterator[AlarmRow]:
    """List what the newest run of reconcile left."""
    query = "SELECT * FROM findings WHERE is_newest AND severity <> 'info' LIMIT 20"
    for row in _rows(root, "findings", query):
        text = f"{row['check']}: {row['subject']}: {row['advice']}"
        yield AlarmRow(severity="fail" if row["severity"] == "error" else "warn", text=text)


def _rows(root: Root, view: str, statement: str) -> list[dict[str, Any]]:
    from sparkstore.embedded.query import query  # noqa: PLC0415  # it loads duckdb

    if not (root.path / view / "_delta_log").is_dir():
        return []
    rows: list[dict[str, Any]] = query(root, statement).to_pylist()
    return rows


def _memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


ENDPOINTS = (Endpoint("GET", API + "/overview", MONITOR, show_overview, OverviewAnswer),)

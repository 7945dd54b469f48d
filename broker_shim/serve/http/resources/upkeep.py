"""Requests for the state of a root's upkeep: members, replicas, runs of jobs and findings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from broker_shim.serve.http.bodies import Limit, Model
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import API, MONITOR, OPERATOR, Endpoint
from broker_shim.serve.http.table_reads import flushed, read_tables
from sparkstore.tables.root import Root

_VIEWS = {"members": "member", "job_runs": "began_at DESC", "findings": "1"}
"""The views that are shown, and by what they are sorted; the tables of two come with a job."""
_OF_JOBS = ("job_runs", "findings")


class FlushAnswer(Struct, kw_only=True):
    """All that was done before is in the tables."""

    flushed: bool = True


class UpkeepQuery(Model):
    """How many rows of each list are asked for."""

    limit: Limit = 50


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


async def show_upkeep(call: Call) -> UpkeepAnswer:
    """Show members, replicas with their lag, the newest runs of jobs, and findings."""
    root, limit = await flushed(call), call.query.limit
    return await read_tables(call, lambda: _answer(root, limit))


async def flush_log(call: Call) -> FlushAnswer:
    """Put all that was done before into the tables."""
    await call.send(call.orders.flush())
    return FlushAnswer()


def _answer(root: Root, limit: int) -> UpkeepAnswer:
    from sparkstore.recovery.replica_lag import replica_lags  # noqa: PLC0415  # it loads deltalake

    lags = replica_lags(root)
    replicas = [ReplicaRow(replica=name, lag_records=lag) for name, lag in lags.items()]
    rows = {view: _rows(root, view, limit) for view in _VIEWS}
    return UpkeepAnswer(replicas=replicas, **rows)


def _rows(root: Root, view: str, limit: int) -> list[dict[str, Any]]:
    from sparkstore.embedded.query import query  # noqa: PLC0415  # it loads duckdb

    if view in _OF_JOBS and not (root.path / view / "_delta_log").is_dir():
        return []
    statement = f"SELECT * FROM {view} ORDER BY {_VIEWS[view]} LIMIT {limit}"  # noqa: S608  # ours
    rows = query(root, statement).to_pylist()
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return value if isinstance(value, str | int | float | bool | None) else str(value)


ENDPOINTS = (
    Endpoint("GET", API + "/upkeep", MONITOR, show_upkeep, UpkeepAnswer, UpkeepQuery),
    Endpoint("POST", API + "/flush", OPERATOR, flush_log, FlushAnswer),
)

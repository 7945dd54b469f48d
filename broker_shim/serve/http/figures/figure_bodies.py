"""The bodies of requests and answers about figures over time, as models of msgspec."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from broker_shim.serve.http.bodies import Model

MOST_STEPS = 2_000


class DiskRow(Struct, kw_only=True):
    """A disk of the root; below `least_free_bytes` senders are held back."""

    folder: str
    free_bytes: int
    total_bytes: int
    least_free_bytes: int


class AlarmRow(Struct, kw_only=True):
    """Something that is wrong, with what to do; `warn` costs speed, `fail` data or service."""

    severity: Literal["warn", "fail"]
    text: str


class StandbyRow(Struct, kw_only=True):
    """The standby of the machine that serves; the lag is what it lacks, since it was in step.

    `alone`: nothing that is confirmed need be there, so a lost disk loses it.
    """

    in_step: bool
    alone: bool
    lag_records: int
    lag_bytes: int
    lag_seconds: float


class SwitchRow(Struct, kw_only=True):
    """The last time that this root took the place of another: when, and why.

    `served_after_s`: so long after that the broker began to serve; null if it is over a minute, as
    the broker started once more since.
    """

    at: str
    why: str
    served_after_s: float | None


class OverviewAnswer(Struct, kw_only=True):
    """The state of a broker. Rates are those of the last minute; null: not known, or not there.

    `sync_p50_ms` and `sync_p99_ms` are of the log since the start, rounded up to a bound of the
    histogram. `uncommitted_bytes` wait for Delta. `standby` is null where none may come, and
    `last_switch` where there was none, or no witness.
    """

    version: str
    started_at: str
    uptime_s: int
    in_rate: float
    out_rate: float
    queues: int
    messages: int
    acquired: int
    bytes: int
    oldest_age_s: float
    oldest_queue: str | None
    dead_lettered_last_hour: int
    connections: int
    memory_bytes: int
    disks: list[DiskRow]
    sync_p50_ms: float | None
    sync_p99_ms: float | None
    uncommitted_bytes: int | None
    last_compaction_at: str | None
    replica_lags: dict[str, int | None]
    standby: StandbyRow | None
    last_switch: SwitchRow | None
    alarms: list[AlarmRow]


class SeriesQuery(Model):
    """The time that is asked for: by default the last 15 minutes, in some 200 steps.

    `from` and `to` are ISO 8601 with a zone; `step` is in seconds.
    """

    since: str | None = field(default=None, name="from")
    until: str | None = field(default=None, name="to")
    step: Annotated[int, Meta(ge=1)] | None = None
    format: Literal["json", "csv"] = "json"


class SeriesItem(Struct, kw_only=True):
    """A step, which ends `at`: depth and age then, and what happened in it.

    `departed` counts by outcome: `accepted`, `dead-lettered`, `moved`, …; memory tells of some,
    and of `other`. An age that is null is not known.
    """

    at: str
    depth: int
    oldest_age_s: float | None
    arrived: int
    departed: dict[str, int]
    redelivered: int


class SeriesMark(Struct, kw_only=True):
    """A moment when something happened to the broker or its root."""

    at: str
    what: str


class SeriesAnswer(Struct, kw_only=True):
    """Figures of a queue over time; `left_out` tells what is not there, and why."""

    queue: str
    step_s: int
    items: list[SeriesItem]
    marks: list[SeriesMark]
    left_out: list[str]

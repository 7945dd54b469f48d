"""The frame of every job: priority, session, progress, and what is left behind of each run.

    run("compact", root, work, settings)
        is the lease free?       else Locked, before a JVM is started
        low priority             of this process, and so of the JVM that it starts
        a Spark session          spark-submit's, or a local one with a fixed heap
        work(spark)              the job itself: it takes the jobs' lease
        a row in job_runs        and, if asked for, a file for Prometheus

A second start that finds the lease taken is no run: it leaves nothing behind. A run that is killed
leaves no row: what it did is in the tables, and the next run goes on from there.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from deltalake.exceptions import DeltaError

from sparkstore.errors import Locked, StoreError
from sparkstore.jobs import job_runs, textfile
from sparkstore.jobs.durations import Stopwatch
from sparkstore.jobs.job_runs import JobRun, first_line
from sparkstore.jobs.report import JobReport
from sparkstore.log_format import is_json, is_progress_shown
from sparkstore.storage.disk_room import make_room
from sparkstore.tables.lease import check_free
from sparkstore.tables.root import open_root, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_SPARKSTORE = logging.getLogger("sparkstore")


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings of how a job runs, whatever it does.

    Attributes:
        heap: Memory of the JVM that it starts, as Java writes it; spark-submit has its own.
        nice: Priority, 0 to 19; never raised above what the process has.
        textfile: Folder for Prometheus' textfile collector.
        progress: Whether to show what is being done; None: if standard error is a terminal.
        uri: Of a root in a bucket, whose copy is worked on: the name of the root in metrics. It has
            no `job_runs`, and the lease of its jobs is held before this frame begins.
        spark: Spark's settings beside our own, as for a catalog.
        began: When the command was started, on the clock of `time.monotonic`; None: now.
    """

    heap: str = "2g"
    nice: int = 19
    textfile: Path | None = None
    progress: bool | None = None
    uri: str = ""
    spark: Mapping[str, str] = field(default_factory=dict)
    began: float | None = None


def run(
    job: str,
    where: str | Path,
    work: Callable[[SparkSession], JobReport],
    settings: JobSettings,
) -> JobReport:
    """Run a job once.

    What is left behind (`job_runs`, the textfile) is written after the job has ended and can make
    it neither fail nor succeed: what cannot be written is a warning.

    Args:
        job: Name of the job, as `job_runs` and the metrics show it.
        where: The root that it changes; one that it may create need not be there.
        work: The job; it takes the lease of that root.
        settings: Memory and priority of the job, and what it shows or leaves beside its report.

    Raises:
        Locked: Another job has the lease; nothing was done.
        StoreError: As `work`; that Spark did not start.
    """
    path = path_of(where)
    check_free(path)
    make_room(path)
    shown = is_progress_shown(settings.progress)
    began = time.monotonic() if settings.began is None else settings.began
    began_at = datetime.now(UTC) - timedelta(seconds=time.monotonic() - began)
    watch = Stopwatch(began)

    def over(
        outcome: str, figures: Mapping[str, Any] | None = None, error: str | None = None
    ) -> JobRun:
        return JobRun(uuid4().hex, job, began_at, watch.seconds, outcome, figures or {}, error)

    with progress(job, is_shown=shown):
        try:
            report = replace(_worked(job, work, settings, watch), **asdict(watch.over()))
        except Locked:
            raise
        except BaseException as reason:
            _leave(over("failed", error=first_line(reason)), path, settings)
            raise
        _leave(over(report.outcome, report.figures()), path, settings)
    return report


def run_without_spark(
    job: str, root: str, work: Callable[[], JobReport], *, nice: int, folder: Path | None
) -> JobReport:
    """Run a job that needs no Spark and whose root is no folder: no lease, no row in `job_runs`.

    Args:
        job: Name of the job, as the metrics show it.
        root: Where the root is that it changes.
        work: The job; what it changes it changes by conditional puts.
        nice: Priority, 0 to 19; never raised above what the process has.
        folder: For Prometheus' textfile collector, as in `JobSettings`.

    Raises:
        StoreError: What `work` raised; the metrics say that it failed.
    """
    lower_priority(nice)
    began_at, began = datetime.now(UTC), time.monotonic()
    run = JobRun(uuid4().hex, job, began_at, 0.0, "failed", {})
    try:
        report = work()
        run = replace(run, outcome=report.outcome, figures=report.figures())
    finally:
        run = replace(run, seconds=round(time.monotonic() - began, 3))
        _leave_textfile(run, root, folder)
    return report


def _worked(
    job: str, work: Callable[[SparkSession], JobReport], settings: JobSettings, watch: Stopwatch
) -> JobReport:
    lower_priority(settings.nice)
    # Not before: what is wrong with the root is said without loading Spark.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from sparkstore.session import submitted_session  # noqa: PLC0415

    is_ours = SparkSession.getActiveSession() is None
    _log.info("starting Spark (heap %s, nice %d)", settings.heap, os.nice(0))
    spark = submitted_session(f"sparkstore {job}", heap=settings.heap, settings=settings.spark)
    _log.info("Spark is there")
    watch.session_started(spark)
    try:
        report = work(spark)
        watch.worked(spark)
        return report
    finally:
        if is_ours:
            spark.stop()


def _leave(run: JobRun, root: Path, settings: JobSettings) -> None:
    if run.outcome == "failed":
        _log.info("failed after %.1f s", run.seconds)
    else:
        _log.info("%s in %.1f s", run.outcome, run.seconds)
    try:
        if not settings.uri and (root / "root.json").is_file():
            job_runs.record(open_root(root), run)
    except (OSError, StoreError, DeltaError, pa.ArrowException) as reason:
        _log.warning("%s: no row in %s: %s", run.job, root / job_runs.NAME, first_line(reason))
    _leave_textfile(run, settings.uri or str(root), settings.textfile)


def _leave_textfile(run: JobRun, root: str, folder: Path | None) -> None:
    try:
        if folder is not None:
            textfile.write(folder, run, root)
    except OSError as reason:
        _log.warning(
            "%s: no metrics in %s: %s: name a folder that can be written",
            run.job,
            folder,
            reason.strerror,
        )


def lower_priority(nice: int) -> None:
    """Lower the priority of this process and of its JVM; never raise it.

    A JVM that is started later inherits it. One that started us (spark-submit) is our parent; on
    Linux priority belongs to a thread, so each of its threads is lowered, and those that come
    later inherit. Two rounds: a thread that came during the first is seen by the second.

    Args:
        nice: 0 (as it is) to 19 (least).
    """
    _lower(0, nice)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        for _ in range(2):
            for thread in _threads_of_the_jvm(os.getppid()):
                with suppress(OSError):  # it has ended, or is another user's
                    _lower(thread, nice)


def _lower(thread: int, nice: int) -> None:
    if nice > os.getpriority(os.PRIO_PROCESS, thread):
        os.setpriority(os.PRIO_PROCESS, thread, nice)


def _threads_of_the_jvm(process: int) -> list[int]:
    folder = Path(f"/proc/{process}")
    try:
        if (folder / "comm").read_text().strip() != "java":
            return []
        return [int(path.name) for path in (folder / "task").iterdir()]
    except OSError:
        return []


@contextmanager
def progress(job: str, *, is_shown: bool) -> Iterator[None]:
    """Show what the modules of sparkstore log, from INFO on, on standard error.

    A line for each step: what was done, how many records, seconds since the beginning. Without
    `is_shown` nothing changes: then only warnings are seen.

    Args:
        job: Stands before each line.
        is_shown: Whether anybody looks.
    """
    if not is_shown:
        yield
        return
    if is_json():
        yield  # `use` has set the level, and each line has its time
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Elapsed(job))
    level, propagate = _SPARKSTORE.level, _SPARKSTORE.propagate
    _SPARKSTORE.addHandler(handler)
    _SPARKSTORE.setLevel(logging.INFO)
    _SPARKSTORE.propagate = False
    try:
        yield
    finally:
        _SPARKSTORE.removeHandler(handler)
        _SPARKSTORE.setLevel(level)
        _SPARKSTORE.propagate = propagate


class _Elapsed(logging.Formatter):
    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job
        self._began_ms: float | None = None

    def format(self, record: logging.LogRecord) -> str:
        elapsed_ms = record.relativeCreated
        if self._began_ms is None:
            self._began_ms = elapsed_ms
        return f"{self._job} {(elapsed_ms - self._began_ms) / 1000:7.1f} s  {record.getMessage()}"

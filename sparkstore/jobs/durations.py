"""Measure where a job's time went, from the command's start, to explain its `seconds`.

    starting_seconds   until Spark was there: Python, its imports, the JVM
    task_seconds       Spark's tasks: their time, divided by the cores that run them
    planning_seconds   the rest: plans, commits, fsyncs, and what the driver does itself
    waiting_seconds    how long threads of the JVM were ready and had to wait for a core; several
                       wait at a time, and it lies within the others: a sign of load, no part of it

At nice 19 a job waits wherever a store or another process wants the core.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def process_began() -> float:
    """Return the start of this process on the clock of `time.monotonic`; now, if it is unknown."""
    now = time.monotonic()
    try:
        after_the_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(after_the_name[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return now
    return now - max(0.0, age_s)


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds that a job took, and the parts of them, as the module explains."""

    seconds: float
    starting_seconds: float
    task_seconds: float
    planning_seconds: float
    waiting_seconds: float


class Stopwatch:
    """Follows one run; it begins when the command did.

    Args:
        began: When the command was started, on the clock of `time.monotonic`.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._session_at = self._worked_at = began
        self._task_s = self._waited_s = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds since the command's start."""
        return round(time.monotonic() - self._began, 3)

    def session_started(self, spark: SparkSession) -> None:
        """Spark has started, or was there and has run other things."""
        self._session_at = time.monotonic()
        self._task_s = -_task_s(spark)

    def worked(self, spark: SparkSession) -> None:
        """Note that the work is done, while Spark is still there to be asked."""
        self._worked_at = time.monotonic()
        self._task_s += _task_s(spark)
        jvm = spark.sparkContext._jvm  # noqa: SLF001
        assert jvm is not None
        self._waited_s = waited_s(int(jvm.java.lang.ProcessHandle.current().pid()))

    def over(self) -> Durations:
        """Return the figures of a run that has ended."""
        planning_s = self._worked_at - self._session_at - self._task_s
        return Durations(
            self.seconds,
            round(self._session_at - self._began, 3),
            round(self._task_s, 3),
            round(max(0.0, planning_s), 3),
            round(self._waited_s, 3),
        )


def _task_s(spark: SparkSession) -> float:
    context = spark.sparkContext
    executors = context._jsc.sc().statusStore().executorList(False)  # noqa: FBT003, SLF001
    task_ms = sum(executors.apply(at).totalDuration() for at in range(executors.size()))
    return float(task_ms) / 1000 / max(1, context.defaultParallelism)


def waited_s(process: int) -> float:
    """Return how long a process's living threads were ready and waited for a core; 0: unknown."""
    waited_ns = 0
    for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # it has ended, or the kernel does not say
            waited_ns += int(thread.read_text().split()[1])
    return waited_ns / 1_000_000_000

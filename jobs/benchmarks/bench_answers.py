"""How long an answer takes: python -m jobs.benchmarks.bench_answers [--waiting N …] [--rounds R].

    duckdb     the whole command `sparkstore sql`, a new process each time
    Spark      the whole command with `--engine spark`
    planning   from the text of a query to its physical plan, in a session that has planned it once;
               of a view that is kept, and of one that is asked at once, as a command does

Seconds, medians of R; beside each the processor time. The messages of a root are in state. Spark is
asked about the smallest root alone. A table on standard output, each line as soon as it is known.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from jobs.benchmarks.bulk_journal import BulkJournal
from jobs.benchmarks.machine import BUILD, describe, median
from sparkstore.session import local_session
from sparkstore.session_effort import effort_for
from sparkstore.tables.root import Root, open_or_create_root
from sparkstore.views import views

QUEUES = "SELECT queue, depth FROM queues"
BY_PROPERTY = "SELECT properties['region'] AS region, count(*) FROM queue_messages GROUP BY 1"
PLANNED = ("queues", "queue_messages", "message_history")
_PR_SET_CHILD_SUBREAPER = 36
COMMAND = (sys.executable, "-m", "sparkstore")


def adopt_orphans() -> None:
    """Become the parent of each JVM whose command has ended, so that its use can be counted."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spent(*words: str, has_jvm: bool = False) -> tuple[float, float]:
    """Run a command; seconds waited, and processor seconds of it and of its JVM, if it ends one."""
    began = time.monotonic()
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words} ended with {process.returncode}")
    waited, processor = time.monotonic() - began, used.ru_utime + used.ru_stime
    with suppress(ChildProcessError):  # there is no child any more
        while has_jvm:
            _, _, used = os.wait4(-1, 0)
            processor += used.ru_utime + used.ru_stime
    return waited, processor


def jvm_seconds(spark: SparkSession) -> float:
    """Processor seconds of a session's JVM so far."""
    process = spark.sparkContext._gateway.proc.pid
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def say(what: str, rounds: list[tuple[float, float]]) -> None:
    """Print the medians of what was measured."""
    seconds, processor = (median(column) for column in zip(*rounds, strict=True))
    sys.stdout.write(f"| {what} | {seconds:.2f} s | {processor:.2f} s |\n")
    sys.stdout.flush()


def made(folder: Path, waiting: int) -> Root:
    """A root whose messages are all in state."""
    root = open_or_create_root(folder / str(waiting))
    BulkJournal(root).enqueue(waiting)
    spent("compact", str(root.path), has_jvm=True)
    return root


def planned(root: Root, rounds: int) -> None:
    """Time the plan of a query of each view."""
    effort = effort_for(root)
    spark = local_session(
        "bench-answers", java_options=effort.java_options, settings=effort.settings
    )
    for at_once, view in product((False, True), PLANNED):
        views.register(spark, root, (view,), at_once=at_once)
        times = []
        for _ in range(rounds + 1):
            began = time.monotonic(), jvm_seconds(spark)
            spark.sql(f"SELECT * FROM {view}")._jdf.queryExecution().executedPlan()
            times.append((time.monotonic() - began[0], jvm_seconds(spark) - began[1]))
        say(f"planning{', at once' if at_once else ''}, {view}", times[1:])
    spark.stop()


def main() -> None:
    """Run all and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[2_000, 200_000])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rounds = range(arguments.rounds)
    adopt_orphans()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second command finds it compiled
    sys.stdout.write(f"{describe()}\n\n| what | seconds | processor |\n| --- | --- | --- |\n")
    with TemporaryDirectory(dir=BUILD) as folder:
        roots = {count: made(Path(folder), count) for count in sorted(arguments.waiting)}
        for count, root in roots.items():
            for name, query in (("queues", QUEUES), ("by property", BY_PROPERTY)):
                asked = ("sql", str(root.path), query)
                say(f"duckdb, {count}, {name}", [spent(*asked) for _ in rounds])
        least = roots[min(roots)]
        asked = ("sql", "--engine", "spark", str(least.path), QUEUES)
        say("Spark, queues", [spent(*asked, has_jvm=True) for _ in rounds])
        planned(least, arguments.rounds)


if __name__ == "__main__":
    main()

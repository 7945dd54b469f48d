"""How long an answer takes: python -m jobs.benchmarks.bench_answers [--waiting N …] [--rounds R].

    duckdb     the whole command `sparkstore sql`, a new process each time
    floor      Spark alone: a process with a session, `SELECT 1`, and a count of a plain Delta table
               that has as many rows as the root has messages
    Spark      the whole command with `--engine spark`
    session    steps in a session that has answered `SELECT 1`, as a notebook takes them

Seconds, medians of R; beside each the processor time, and the ratio to its row of the floor. The
first root is as the demo leaves one: the messages of the smallest are in 200 files of the journal.
Those of the others are in state. A table on standard output, each line as soon as it is known.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from jobs.benchmarks.bulk_journal import BulkJournal
from jobs.benchmarks.machine import BUILD, describe, median
from sparkstore.session import local_session
from sparkstore.session_effort import effort_for
from sparkstore.tables.root import Root, open_or_create_root, open_root
from sparkstore.views import views

QUEUES = "SELECT queue, depth FROM queues"
BY_PROPERTY = "SELECT properties['region'] AS region, count(*) FROM queue_messages GROUP BY 1"
BODIES = "SELECT sum(length(body)), max(subject) FROM queue_messages"
DEMO_FILES = 200
LATER = 5
_PR_SET_CHILD_SUBREAPER = 36
COMMAND = (sys.executable, "-m", "sparkstore")
OURS = (sys.executable, "-m", "jobs.benchmarks.bench_answers")

Steps = Mapping[str, tuple[float, float]]
"""Seconds waited and processor seconds, by what was done."""


def adopt_orphans() -> None:
    """Become the parent of each JVM whose command has ended, so that its use can be counted."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spent(command: tuple[str, ...], *words: str) -> tuple[tuple[float, float], str]:
    """Run a command: seconds waited, processor seconds with those of its JVM, and its output."""
    began = time.monotonic()
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words} ended with {process.returncode}")
    waited, processor = time.monotonic() - began, used.ru_utime + used.ru_stime
    with suppress(ChildProcessError):  # there is no child any more
        while True:
            _, _, used = os.wait4(-1, 0)
            processor += used.ru_utime + used.ru_stime
    return (waited, processor), output


def jvm_seconds(spark: SparkSession) -> float:
    """Processor seconds of a session's JVM so far, and of this process."""
    process = spark.sparkContext._gateway.proc.pid
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def made(folder: Path, waiting: int, *, commits: int = 0) -> Root:
    """A root whose messages are all in state; with `commits` in so many files of the journal."""
    root = open_or_create_root(folder / f"{waiting}-{commits}")
    journal = BulkJournal(root)
    for _ in range(commits or 1):
        journal.enqueue(waiting // (commits or 1))
    if not commits:
        spent(COMMAND, "compact", str(root.path))
    write_deltalake(str(root.path / "plain"), pa.table({"number": range(waiting)}))
    return root


def steps_in_a_session(root: Root, what: str) -> Iterator[tuple[str, tuple[float, float]]]:
    """Take the steps of the floor, or those of a notebook over the views."""
    effort = effort_for(root)
    spark = local_session(
        "bench-answers", java_options=effort.java_options, settings=effort.settings
    )

    def timed(run: Callable[[], object]) -> tuple[float, float]:
        began = time.monotonic(), jvm_seconds(spark)
        run()
        return time.monotonic() - began[0], jvm_seconds(spark) - began[1]

    def asked(query: str) -> tuple[float, float]:
        return timed(lambda: spark.sql(query).collect())

    yield "SELECT 1", asked("SELECT 1")
    if what == "views":
        yield "register", timed(lambda: views.register(spark, root))
        queries = {"queues": QUEUES, "by property": BY_PROPERTY, "bodies": BODIES}
    else:
        queries = {"count": f"SELECT count(*) FROM delta.`{root.path}/plain` WHERE number >= 0"}
    for name, query in queries.items():
        yield f"first {name}", asked(query)
        later = [asked(query) for _ in range(LATER)]
        yield f"later {name}", tuple(map(median, zip(*later, strict=True)))  # type: ignore[misc]
    spark.stop()


def say(what: str, rounds: list[tuple[float, float]], floor: float | None = None) -> float:
    """Print the medians of what was measured; return the seconds."""
    seconds, processor = (median(column) for column in zip(*rounds, strict=True))
    ratio = f"{seconds / floor:.2f}" if floor else ""
    sys.stdout.write(f"| {what} | {seconds:.2f} s | {processor:.2f} s | {ratio} |\n")
    sys.stdout.flush()
    return seconds


def by_spark(name: str, root: Root, rounds: int) -> None:
    """Print the floor, and what Spark with the views takes beside it."""

    def run(what: str) -> tuple[list[tuple[float, float]], list[Steps]]:
        answers = [spent(OURS, "--steps", what, str(root.path)) for _ in range(rounds)]
        return [taken for taken, _ in answers], [json.loads(output) for _, output in answers]

    wholes, floors = run("floor")
    whole = say(f"{name}, Spark's own floor", wholes)
    floor = {step: say(f"  {step}", [taken[step] for taken in floors]) for step in floors[0]}
    asked = ("sql", "--engine", "spark", str(root.path), QUEUES)
    say(f"{name}, Spark, whole command", [spent(COMMAND, *asked)[0] for _ in range(rounds)], whole)
    _, steps = run("views")
    for step in steps[0]:
        beside = floor.get(f"{step.partition(' ')[0]} count")
        say(f"{name}, session, {step}", [taken[step] for taken in steps], beside)


def main() -> None:
    """Run all and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[2_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps:
        what, where = arguments.steps
        steps = dict(steps_in_a_session(open_root(where), what))
        sys.stdout.write(json.dumps(steps))
        return
    adopt_orphans()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second command finds it compiled
    header = "| what | seconds | processor | × floor |\n| --- | --- | --- | --- |"
    sys.stdout.write(f"{describe()}\n\n{header}\n")
    counts = sorted(arguments.waiting)
    with TemporaryDirectory(dir=BUILD) as folder:
        place = Path(folder).resolve()
        roots = {f"{counts[0]} as of the demo": made(place, counts[0], commits=DEMO_FILES)}
        roots |= {f"{count}": made(place, count) for count in counts}
        for name, root in roots.items():
            for query, text in (("queues", QUEUES), ("by property", BY_PROPERTY)):
                asked = ("sql", str(root.path), text)
                rounds = [spent(COMMAND, *asked)[0] for _ in range(arguments.rounds)]
                say(f"{name}, duckdb, {query}", rounds)
            by_spark(name, root, arguments.rounds)


if __name__ == "__main__":
    main()

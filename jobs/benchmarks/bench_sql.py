"""How fast SQL and compaction are: python -m jobs.benchmarks.bench_sql [--waiting N] [--tail N].

    compact       records a second, moving and folding `--waiting` new messages
    queues        seconds for `SELECT * FROM queues` over them and `--tail` records after P
    backlog       the same fold (one dequeue for each of half of `--tail` messages) on a backlog of
                  `--waiting` / 10 and of `--waiting`: oldest first, and at random
    start         seconds until a store is ready, with all of them in state as the job wrote it

The JVM is warmed on a small root first. A table on standard error, each line as soon as it is
known; JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from jobs.benchmarks.bench_jobs import Bench, timed
from jobs.benchmarks.bulk_journal import BulkJournal
from jobs.benchmarks.machine import BUILD, describe
from sparkstore.recovery.recovery import recover
from sparkstore.session import local_session
from sparkstore.views import views


def backlog(bench: Bench, name: str, waiting: int, taken: int) -> tuple[BulkJournal, list[float]]:
    """Compact `waiting` messages; then seconds of folds that take some: oldest first, at random."""
    journal = BulkJournal(bench.root(name))
    journal.enqueue(waiting)
    seconds = [bench.fold(journal)]
    journal.dequeue(range(1, taken + 1))
    seconds.append(bench.fold(journal))
    journal.dequeue(sorted(random.Random(7).sample(range(taken + 1, waiting + 1), taken)))
    seconds.append(bench.fold(journal))
    return journal, seconds


def main() -> None:
    """Run all and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--tail", type=int, default=100_000)
    arguments = parser.parse_args()
    waiting, tail = arguments.waiting, arguments.tail
    sys.stderr.write(describe() + "\n")
    spark = local_session("bench-sql", heap="2g")
    with TemporaryDirectory(dir=BUILD) as folder:
        bench = Bench(spark, Path(folder))
        backlog(bench, "warm", waiting // 10, tail // 10)
        _, small = backlog(bench, "small", waiting // 10, tail // 2)
        journal, large = backlog(bench, "large", waiting, tail // 2)
        bench.say(f"compact {waiting}, rows/s", round(waiting / large[0]))
        for index, order in ((1, "oldest first"), (2, "at random")):
            bench.say(f"fold {tail // 2} taken {order}, s", round(large[index], 2))
            bench.say("  10 x the backlog, ratio", round(large[index] / small[index], 2))
        bench.say("start with all in state, s", round(timed(lambda: recover(journal.root)), 2))
        journal.enqueue(tail)
        views.register(spark, journal.root)
        bench.say(f"queues, tail {tail}, s", round(bench.seconds("SELECT * FROM queues"), 2))
    sys.stdout.write(json.dumps(bench.found) + "\n")


if __name__ == "__main__":
    main()

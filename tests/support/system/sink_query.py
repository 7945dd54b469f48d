"""A query that writes batches to a sink and keeps a checkpoint, as Spark does, without a JVM.

`python -m tests.support.system.sink_query SOCKET CHECKPOINT BATCHES` runs from what the checkpoint
has to the last batch. Before each step it writes a line, so that it can be killed there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from broker_shim.spark_sink.writers import QueueStreamWriter
from tests.support.spark.sink_tasks import BODY, QUERY, run_tasks

PARTITIONS, ROWS = 3, 700


def rows_of(batch: int, partition: int) -> list[tuple[bytes]]:
    """The rows of a task: the same whenever the batch runs."""
    return [(f"{batch}.{partition}.{row}".encode(),) for row in range(ROWS)]


def all_rows(batches: int) -> list[bytes]:
    """The bodies of all rows, in their order."""
    parts = [rows_of(batch, number) for batch in range(batches) for number in range(PARTITIONS)]
    return [body for part in parts for (body,) in part]


def done_batches(checkpoint: Path) -> int:
    """Count the batches that a checkpoint has."""
    return len([*checkpoint.glob("*.commit")])


def run(socket: str, checkpoint: Path, batches: int) -> None:
    """Run what is left of the query."""
    options = {"target": "q", "socket": socket, "waitSeconds": "60"}
    for batch in range(done_batches(checkpoint), batches):
        messages = []
        for partition in range(PARTITIONS):
            say(f"stage {batch} {partition}")
            writer = QueueStreamWriter(BODY, options, overwrite=False)
            rows = [[]] * partition + [rows_of(batch, partition)]
            messages.append(run_tasks(writer, BODY, rows, QUERY, batch)[-1])
        say(f"publish {batch}")
        QueueStreamWriter(BODY, options, overwrite=False).commit(messages, batch)
        say(f"note {batch}")
        (checkpoint / f"{batch}.commit").touch()
    say("end")


def say(text: str) -> None:
    """Say what comes next."""
    print(text, flush=True)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))

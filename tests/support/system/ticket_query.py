"""A query that takes messages into files, driven as Spark drives it, without a JVM.

`python -m tests.support.system.ticket_query SOCKET FOLDER` goes on from the checkpoint in the
folder. After each step it writes a line, so that it can be killed there or while it does the next.
Offsets, batches of the sink, and the notes that a batch is done are files that get their name when
they are whole, as in Spark's checkpoint.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from broker_shim.spark_tickets import TicketStreamReader, ticket_settings
from broker_shim.spark_tickets.message_rows import ticket_schema

BATCH = 40


def taken(folder: Path) -> list[str]:
    """The bodies that the sink has, batch by batch."""
    files = sorted(folder.glob("*.sink"), key=lambda path: int(path.stem))
    return [body for path in files for body in json.loads(path.read_text())]


def write_once(path: Path, told: Any) -> None:
    """Write a file that is there whole or not at all; one that is there stays as it is."""
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(json.dumps(told))
        part.rename(path)


def run(socket: str, folder: Path) -> None:
    """Take messages until the process is killed."""
    options = {"settle": "true", "queue": "q", "socket": socket, "maxRecordsPerTrigger": str(BATCH)}
    settings = ticket_settings(options)
    schema = ticket_schema(settings)
    reader = TicketStreamReader(settings, schema)
    offsets = [
        json.loads(path.read_text())
        for path in sorted(folder.glob("*.offset"), key=lambda path: int(path.stem))
    ]
    first = reader.initialOffset()
    while True:
        number = len(offsets)
        start = offsets[-1] if offsets else first
        if number and not (folder / f"{number - 1}.done").exists():
            number -= 1
            start, end = offsets[-2] if number else first, offsets[-1]
        else:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            say("idle" if end == start else "planned")
            if end == start:
                continue
            write_once(folder / f"{number}.offset", end)
            offsets.append(end)
            say("logged")
        rows = [
            body.decode()
            for partition in reader.partitions(start, end)
            for batch in TicketStreamReader(settings, schema).read(partition)
            for body in batch["body"].to_pylist()
        ]
        say("read")
        write_once(folder / f"{number}.sink", rows)
        say("written")
        write_once(folder / f"{number}.done", {})
        say("done")


def say(text: str) -> None:
    """Say what was done."""
    print(text, flush=True)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))

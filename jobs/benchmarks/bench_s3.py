"""What a copy to a bucket costs: python -m jobs.benchmarks.bench_s3 [--messages N].

    first copy      of a store with `--messages` messages in its journal, beside one bare
                    conditional put of as many bytes, each a put of its own of at most 8 MiB
    next copy       of a tenth as many more
    nothing new     the same again; with the requests of each
    promote --into  the bucket out into a folder, recovered

The bucket is versitygw's on this machine, so the figures are of this program and its disk, and not
of a network. A table on standard error, JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from jobs.benchmarks.bulk_journal import BulkJournal
from jobs.benchmarks.machine import BUILD, describe
from sparkstore.replication.bucket_promote import promote_into
from sparkstore.storage.objects import ObjectStorage
from sparkstore.tables.root import open_or_create_root
from tests.support.objects import versitygw
from tests.support.objects.copies import copy

PUT_BYTES = 8 << 20


def bare(bucket: ObjectStorage, size: int) -> float:
    """Seconds that conditional puts of so many bytes take."""
    began = time.monotonic()
    for start in range(0, size, PUT_BYTES):
        content = os.urandom(min(PUT_BYTES, size - start))
        assert bucket.put_if_absent(f"bare/{uuid4().hex}", content)
    return time.monotonic() - began


def main() -> None:
    """Run all and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    count = parser.parse_args().messages
    sys.stderr.write(describe() + "\n")
    figures: dict[str, float] = {}

    def say(name: str, figure: float) -> None:
        figures[name] = round(figure, 3)
        sys.stderr.write(f"{name:36} {figures[name]:>14,}\n")

    with TemporaryDirectory(dir=BUILD) as name, pytest.MonkeyPatch.context() as environment:
        folder = Path(name)
        with versitygw.served(folder / "buckets", environment):
            bucket = ObjectStorage("s3://lake/queues")
            journal = BulkJournal(open_or_create_root(folder / "primary"))
            for title, more in (("first", count), ("next", count // 10), ("nothing new", 0)):
                if more:
                    journal.enqueue(more)
                report = copy(journal.root.path, bucket)
                say(f"{title} copy, s", report.seconds)
                say(f"{title} copy, bytes", report.bytes_copied)
                if report.bytes_copied:
                    say("  bare puts of as many bytes, s", bare(bucket, report.bytes_copied))
            began = time.monotonic()
            promote_into(bucket, folder / "new")
            say("promote --into, s", time.monotonic() - began)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

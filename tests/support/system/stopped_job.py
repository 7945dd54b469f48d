"""A job on a bucket that stops itself between its last look at its lease and a commit.

    python -m tests.support.system.stopped_job URI FOLDER TABLE

It compacts, says `commits` when it is about to commit to a table and stops by SIGSTOP. Whoever
lets it go on hears `refused`, or `committed`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sparkstore.bucket.job_copy import job_copy
from sparkstore.errors import Unavailable
from sparkstore.storage.objects import ObjectStorage
from tests.support.objects.copies import compact


class StoppingBucket(ObjectStorage):
    """Stops this process before it commits to one table."""

    table = ""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """See `Storage.put_if_absent`."""
        if self.table and name.startswith(f"{self.table}/_delta_log/"):
            print("commits", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().put_if_absent(name, content)


def main() -> None:
    """One job."""
    uri, folder, table = sys.argv[1:]
    bucket = StoppingBucket(uri)
    with job_copy(bucket, "compact", Path(folder)) as copy:
        compact(copy.root.path)
        bucket.table = table
        try:
            copy.publish()
        except Unavailable:
            print("refused", flush=True)
        else:
            print("committed", flush=True)


if __name__ == "__main__":
    main()

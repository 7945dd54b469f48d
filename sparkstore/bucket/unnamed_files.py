"""Data files of the journal that no version names any more leave the bucket, after a time.

They are of two kinds. The first are files that versions of this store removed, as merges and trims
do. The second lay there when it began, named by no version: merged or trimmed before, or left by a
store that was killed before its commit.

Why none goes that a version names, even if this store was fenced and does not know it yet: a name
is used once. The first kind was removed by a version that is in the bucket. The second was there
before this store's `opened` was; whoever had uploaded it and had not committed it by then finds the
next version taken, and begins anew with other names (`publisher`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from sparkstore.storage.storage import Storage


class UnnamedFiles:
    """Files that no version names any more.

    The committer's thread notes them, another thread removes them.
    """

    def __init__(self, bucket: Storage, grace_s: float) -> None:
        """Know of none yet.

        Args:
            bucket: Where they are.
            grace_s: How long each stays, for whoever reads an old version.
        """
        self._bucket, self._grace_s = bucket, grace_s
        self._noted: deque[tuple[float, str]] = deque()

    def note(self, names: Iterable[str]) -> None:
        """Let these go after the grace."""
        since_s = time.monotonic()
        self._noted.extend((since_s, name) for name in names)

    def remove(self) -> None:
        """Remove those whose time has come; on one thread at a time.

        Raises:
            StoreError: The bucket did not answer; the rest is left for the next time.
        """
        while self._noted and time.monotonic() - self._noted[0][0] >= self._grace_s:
            self._bucket.delete(self._noted[0][1])
            self._noted.popleft()

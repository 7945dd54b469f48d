"""The entries of a store as they are now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkstore.core import fold


class LiveEntries(Mapping[str, Mapping[int, fold.Entry]]):
    """Entries by queue and message id, read from the fold when they are asked for.

    Nothing is copied. Iterate it before the first call that changes something; a single entry may
    be looked up at any time on the thread that makes the calls.
    """

    def __init__(self, queues: Mapping[str, fold.QueueState]) -> None:
        self._queues = queues

    def __getitem__(self, queue: str) -> Mapping[int, fold.Entry]:
        """Entries of one queue, in its order."""
        return self._queues[queue].entries

    def __iter__(self) -> Iterator[str]:
        """Names of queues."""
        return iter(self._queues)

    def __len__(self) -> int:
        """Queues."""
        return len(self._queues)

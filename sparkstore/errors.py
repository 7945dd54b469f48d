"""Errors of a store, one class for each thing that a caller can do about it."""

from __future__ import annotations


class StoreError(Exception):
    """Root of every error that a store reports; never raised itself."""


class InvalidRequest(StoreError):
    """Fix the call: unknown queue, queue exists with other arguments, message not there."""


class NotAcquired(StoreError):
    """Leave the message alone: another holder has it."""


class Unavailable(StoreError):
    """Retry later: storage did not answer, or has no room. The outcome of the call is unknown."""


class Ended(StoreError):
    """Stop, and start anew: the disk failed. Whether the call was done is known after the start."""


class Fenced(StoreError):
    """Stop this writer: a newer writer epoch owns the root."""


class CorruptData(StoreError):
    """Call the operator: unreadable record, gap in positions, unknown schema version."""


class Closed(StoreError):
    """Open a new store: this one was closed."""


class Locked(StoreError):
    """Stop the other process first: it has the root, or the jobs' lease, open."""

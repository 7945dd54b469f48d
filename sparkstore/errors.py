"""Errors of a store, one class for each thing that a caller can do about it."""

from __future__ import annotations


class StoreError(Exception):
    """Root of every error that a store reports; never raised itself."""


class InvalidRequest(StoreError):
    """Fix the call: unknown queue, queue exists with other arguments, message not there."""


class LimitReached(InvalidRequest):
    """Ask for no more of these before some are gone: a user has as many as it may."""


class AlreadyPublished(InvalidRequest):
    """Go on: the batch that this is a part of is there as a whole (`publications`)."""


class NotAcquired(StoreError):
    """Leave the message alone: another holder has it."""


class NotNow(StoreError):
    """Retry later: root of both errors that pass by themselves; never raised itself."""


class Unavailable(NotNow):
    """Retry with the same number: storage did not answer. The outcome of the call is unknown."""


class Full(NotNow):
    """Retry when there is room, as a new call: a disk, the log or a queue is full.

    Nothing was done. A request that was refused so is decided: its number gets the same answer.
    """


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


class UnreplayedWarning(UserWarning):
    """The tables lack what a store acknowledged: its next start brings it in from its log."""


def error_of(kind: object, text: object) -> StoreError:
    """Return the error that another process told, of the same class if this one knows it."""
    named = globals().get(str(kind))
    if isinstance(named, type) and issubclass(named, StoreError):
        return named(str(text))
    return Unavailable(str(text))

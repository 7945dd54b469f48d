"""Probe whether a storage keeps the promise that all rests on, before anything is written."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.storage.storage import Storage

PROBE = "probe-"
"""The beginning of the name of a probe's file; one that was killed leaves it."""


def check_is_conditional(storage: Storage) -> None:
    """Try both conditional calls, with a file of its own that is removed again.

    It also finds out whether this user may put, read and delete there, before work is begun.

    Raises:
        InvalidRequest: A second put of one name succeeded, or a file was replaced that had changed;
            or this user may not do what is needed.
        Unavailable: The storage did not answer.
    """
    name = f"{PROBE}{uuid4().hex}"
    try:
        is_first = storage.put_if_absent(name, b"first")
        is_second = storage.put_if_absent(name, b"second")
        stored = storage.read(name)
        tag = stored.tag if stored is not None else ""
        is_replaced = storage.replace_if_unchanged(name, b"third", tag)
        is_stale = storage.replace_if_unchanged(name, b"fourth", tag)
    except StoreError:
        with suppress(StoreError):  # what went wrong first is told
            storage.delete(name)
        raise
    storage.delete(name)
    if not is_first or is_second or not is_replaced or is_stale:
        header = "If-None-Match" if is_second or not is_first else "If-Match"
        message = (
            f"{storage.location}: this store does not honour {header}, so two writers could both"
            " succeed: use one that does"
        )
        raise InvalidRequest(message)

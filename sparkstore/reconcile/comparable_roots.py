"""Check which roots may be compared, before a JVM is started. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sparkstore.replication.replicas import check
from sparkstore.tables.root import Root, open_root


class Roots(NamedTuple):
    """A root, and its replica if there is one to compare with."""

    root: Root
    replica: Root | None = None


def check_roots(where: str | Path, replica: str | Path | None = None) -> Roots:
    """The roots at two folders.

    Raises:
        InvalidRequest: There is no root; the second is no replica of the first, or is the first.
        Fenced: The first was superseded: reconcile its successor.
        CorruptData: A `root.json` cannot be read, or is from a newer schema version.
    """
    root = open_root(where)
    if replica is None:
        return Roots(root)
    other = open_root(replica)  # `check` lets a replica be absent that is about to be made
    check(root.path, other.path)
    return Roots(root, other)

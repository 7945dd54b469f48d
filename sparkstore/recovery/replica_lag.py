"""Measure how far the replicas of a root are behind it, in records."""

from __future__ import annotations

from sparkstore.errors import StoreError
from sparkstore.recovery.point_in_time import latest_position
from sparkstore.storage.objects import is_object_uri
from sparkstore.tables.root import Root, open_root


def replica_lags(root: Root) -> dict[str, int | None]:
    """Return the records that each replica in a folder lacks; None: it cannot be read."""
    folders = [replica for replica in root.identity.replicas if not is_object_uri(replica)]
    last = latest_position(root) if folders else 0
    lags: dict[str, int | None] = {}
    for folder in folders:
        try:
            lags[folder] = max(0, last - latest_position(open_root(folder)))
        except (StoreError, OSError):
            lags[folder] = None
    return lags

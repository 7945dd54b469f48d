"""Wait until nobody serves a root in a bucket, then keep others waiting: a lease beside its epochs.

    <prefix>/epoch/primary.json     who serves, of those that were started as one of several

What keeps two stores apart is the epoch (`sparkstore.bucket.epochs`): a second one that claims the
next ends the first, and nothing is lost. But two that a supervisor starts again would take the root
from one another for ever. So one that is started as a standby looks at this lease first, and claims
no epoch while it is renewed. Nobody's answer depends on it: where it lies, because two looked at
one moment or a machine was frozen, the epochs decide as ever, and the loser waits again.
"""

from __future__ import annotations

import threading

from sparkstore.errors import StoreError
from sparkstore.log.writer import Log
from sparkstore.shipping.steps import Sighting, seen_again
from sparkstore.storage.objects import ObjectStorage
from sparkstore.witness.lease import Witness, boottime_s
from sparkstore.witness.place import BucketPlace
from sparkstore.witness.turn import sight

_AGAIN_S = 0.5
_LOOKS = 12
"""Looks at the lease in its time."""


class BucketTurn:
    """A store that waits for its turn (`run`), and holds it while it serves (`hold`)."""

    def __init__(self, uri: str, lease_s: float) -> None:
        self._uri, self._lease_s = uri, lease_s
        storage = ObjectStorage(f"{uri.rstrip('/')}/epoch", patience_s=max(1.0, lease_s / 3))
        self._place = BucketPlace(storage)
        self._stopping = threading.Event()
        self._trouble = "it has not looked yet"

    @property
    def trouble(self) -> str:
        """Say how it stands, for whoever asks whether this machine serves."""
        return f"standby of {self._uri}: {self._trouble or 'another store serves'}"

    @property
    def is_live(self) -> bool:
        """Tell whether it sees the lease of another store."""
        return not self._trouble

    def stop(self) -> None:
        """Let `run` end soon; from any thread, or a signal's handler."""
        self._stopping.set()

    def run(self) -> bool:
        """Wait until no store renews the lease; False if it was stopped before.

        Raises:
            CorruptData: The lease cannot be read.
        """
        seen, wait_s = Sighting(), 0.0
        while not self._stopping.wait(wait_s):
            began_s = boottime_s()
            wait_s = _AGAIN_S
            try:
                sighted = sight(self._place)
            except (StoreError, OSError) as reason:
                self._trouble = f"the bucket does not answer: {reason}"
                continue
            self._trouble = ""
            if sighted is None or sighted[0].is_closed:
                return True
            holder, tag = sighted
            seen = seen_again(seen, tag, began_s, boottime_s(), holder.lease_s)
            if began_s - seen.since_s > holder.over_after_s:
                return True
            wait_s = min(1.0, holder.lease_s / _LOOKS)
        return False

    def hold(self, log: Log) -> Witness:
        """Keep others waiting from now on, until the lease that is returned is stopped.

        Raises:
            StoreError: The bucket did not answer; another store serves by now.
        """
        # Nobody is waited for: this store has the newest epoch.
        identity = log.root.identity
        lease = Witness(self._place, identity, self._uri, self._lease_s, wait=lambda _: None)
        lease.claim(is_new=True)
        lease.start()
        lease.serve(log.fail, lambda: log.synced_position)
        return lease

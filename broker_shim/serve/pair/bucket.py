"""Several machines for a root in a bucket: `--standby` waits for its turn, and then keeps it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker_shim.errors import InvalidRequest
from broker_shim.serve.stores import Stores
from sparkstore.config import StoreConfig
from sparkstore.errors import StoreError
from sparkstore.storage.objects import is_object_uri

if TYPE_CHECKING:
    from sparkstore.standby.bucket_turn import BucketTurn


def bucket_turn(options: argparse.Namespace, config: StoreConfig) -> BucketTurn | None:
    """Return what waits for this machine's turn; None without `--standby`.

    Raises:
        InvalidRequest: The root is in no bucket, or its log is on one machine.
    """
    if not options.standby:
        return None
    if not options.root or not is_object_uri(options.root):
        raise InvalidRequest("--standby is for a root in a bucket; for a folder say --standby-of")
    if config.ack == "wal":
        text = 'ack = "wal" keeps the log on one machine: leave it out'
        raise InvalidRequest(f"--standby serves on whichever machine is left, and {text}")
    from sparkstore.standby.bucket_turn import BucketTurn  # noqa: PLC0415

    return BucketTurn(options.root, config.witness_lease_s)


@contextmanager
def held(turn: BucketTurn | None, stores: Stores) -> Iterator[None]:
    """Keep other stores of a bucket waiting while the body runs.

    Raises:
        StoreError: The bucket did not answer, or another store serves; these are closed.
    """
    if turn is None:
        yield
        return
    try:
        lease = turn.hold(stores.messages.log)  # type: ignore[attr-defined]  # that of a root
    except StoreError:
        stores.close()
        raise
    try:
        yield
    finally:
        lease.stop()

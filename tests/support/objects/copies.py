"""Primaries for tests of replicas in buckets, changed without a JVM."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.recovery.recovery import recover
from sparkstore.replication.bucket_copy import BucketReplicateReport, replicate_to_bucket
from sparkstore.replication.bucket_replica import paired
from sparkstore.storage.storage import Storage
from sparkstore.tables.root import open_root
from tests.support.roots.roots import state_table
from tests.support.stores.stores import done


def enqueue(primary: Path | str, *bodies: bytes) -> None:
    """Open the store, put these on queue `q`, close it."""
    store = DeltaMessageStore(primary)
    if "q" not in {queue.name for queue in store.recover().queues}:
        done(store.create, Queue("q"))
    for body in bodies:
        done(store.enqueue, store.message(MessageHeader(), body), "q")
    store.close()


def bodies_in(primary: Path | str) -> list[bytes]:
    """What is on queue `q`, in order."""
    store = DeltaMessageStore(primary)
    found = [store.load(number).body for number in store.recover().entries["q"]]
    store.close()
    return found


def compact(primary: Path) -> None:
    """What a compaction leaves: the journal's records in history, too, and their state."""
    root = open_root(primary)
    found = recover(root)
    rows = DeltaTable(str(root.journal)).to_pyarrow_table()
    rows = rows.filter([each > found.history_position for each in rows["position"].to_pylist()])
    write_deltalake(str(root.history), rows, mode="append")
    table = state_table(found.state, segment=found.segment)
    write_deltalake(str(root.state), table, mode="overwrite")


def trim(primary: Path) -> None:
    """What a trim leaves: a journal without what history has."""
    root = open_root(primary)
    DeltaTable(str(root.journal)).delete(f"position <= {recover(root).history_position}")


def copy(primary: Path | str, replica: Storage) -> BucketReplicateReport:
    """Replicate once."""
    with paired(primary, replica) as pair:
        return replicate_to_bucket(pair)

"""Replicas for tests without a JVM: what a first replication leaves."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from deltalake import DeltaTable, write_deltalake

from sparkstore.tables.fencing import change_identity
from sparkstore.tables.root import Identity, Root, open_or_create_root, open_root


def replica_of(primary: Root, path: Path) -> Root:
    """A replica that has every record of the primary's journal in its history, and no state."""
    identity = primary.identity
    replica = open_or_create_root(
        path,
        Identity(
            uuid4().hex,
            role="replica",
            generation=identity.generation,
            primary_id=identity.root_id,
            primary=str(primary.path),
            witness=open_root(primary.path).identity.witness,
        ),
    )
    change_identity(primary, lambda known: {"replicas": [*known.replicas, str(path)]})
    rows = DeltaTable(str(primary.journal)).to_pyarrow_table()
    if rows.num_rows:
        write_deltalake(str(replica.history), rows, mode="append")
    return replica


def files_below(*folders: Path) -> dict[str, bytes]:
    """Every file below some folders."""
    return {str(f): f.read_bytes() for path in folders for f in path.rglob("*") if f.is_file()}


def role_of(path: Path) -> tuple[str, int]:
    """Role and generation that `root.json` says."""
    identity = open_root(path).identity
    return identity.role, identity.generation

"""A process killed around prepare and decision: the next one has the branch in doubt, or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker_shim.store.delta import DeltaMessageStore
from sparkstore.tables.root import open_root
from tests.support.roots.logs import unsynced_files, zero
from tests.support.stores.stores import done
from tests.support.system.killed_branch import COUNT, XID

pytestmark = pytest.mark.system

OLD = [*range(1, COUNT + 1)]
Content = tuple[list[int], list[int], set[bytes]]
BEFORE: Content = OLD, [], {b"old"}
AFTER: Content = (
    [*range(COUNT + 1, 2 * COUNT + 1)],
    OLD[: COUNT // 2],
    {b"old", *(b"%d" % number for number in range(COUNT))},
)


def what_is_there(store: DeltaMessageStore) -> Content:
    """Ids on both queues, whose messages nobody holds, and their contents."""
    entries = store.recover().entries
    q, other = entries["q"], entries["other"]
    assert {entry.acquired_by for entry in [*q.values(), *other.values()]} == {None}
    return [*q], [*other], {store.load(message_id).body for message_id in [*q, *other]}


@pytest.mark.parametrize(
    ("step", "committed"),
    [
        ("half prepared", True),
        ("prepared", True),
        ("prepared", False),
        ("half committed", True),
        ("committed", True),
        ("half undone", False),
        ("undone", True),
    ],
)
def test_a_branch_of_runs_whose_process_was_killed_is_decided_or_never_was(
    tmp_path: Path, step: str, committed: bool
) -> None:
    """Half a group is none; the power is cut, too, where a branch that is left is committed."""
    root = tmp_path / "root"
    command = [sys.executable, "-m", "tests.support.system.killed_branch", str(root), step]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    for path in unsynced_files(open_root(root)) if committed else ():
        zero(path)
    left = AFTER if step == "committed" else BEFORE
    store = DeltaMessageStore(root)
    try:
        if step in {"prepared", "half committed", "half undone"}:
            assert [branch.xid for branch in store.prepared()] == [XID]
            holders = {entry.acquired_by for entry in store.recover().entries["q"].values()}
            assert holders == {"xid:1:676c6f62616c:6272616e6368"}
            done(store.commit_prepared if committed else store.rollback_prepared, XID)
            left = AFTER if committed else BEFORE
        assert store.prepared() == []
        assert what_is_there(store) == left
    finally:
        store.close()
    store = DeltaMessageStore(root)
    try:
        assert store.prepared() == []
        assert what_is_there(store) == left
    finally:
        store.close()

"""A process killed between prepare and the decision: the next one has the branch in doubt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker_shim.store.branch_store import Xid
from broker_shim.store.delta import DeltaMessageStore
from tests.support.stores.stores import done

pytestmark = pytest.mark.system

XID = Xid(1, b"global", b"branch")
PROGRAM = """
import os, signal, sys
from broker_shim.store.branch_store import Xid
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from tests.support.stores.stores import done

store = DeltaMessageStore(sys.argv[1])
done(store.create, Queue("q"))
old = store.message(MessageHeader(), b"old")
done(store.enqueue, old, "q")
transaction = store.begin()
done(store.enqueue, store.message(MessageHeader(), b"new"), "q", transaction=transaction)
done(store.dequeue, old.message_id, "q", "c", transaction=transaction)
done(store.prepare, transaction, Xid(1, b"global", b"branch"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("committed", "left"), [(True, b"new"), (False, b"old")])
def test_a_branch_whose_process_was_killed_is_decided_by_the_next(
    tmp_path: Path, committed: bool, left: bytes
) -> None:
    root = tmp_path / "root"
    program = subprocess.run([sys.executable, "-c", PROGRAM, str(root)], check=False, timeout=60)
    assert program.returncode == -9
    store = DeltaMessageStore(root)
    try:
        assert [branch.xid for branch in store.prepared()] == [XID]
        assert [entry.acquired_by for entry in store.recover().entries["q"].values()] == [
            "xid:1:676c6f62616c:6272616e6368"
        ]
        done(store.commit_prepared if committed else store.rollback_prepared, XID)
    finally:
        store.close()
    store = DeltaMessageStore(root)
    try:
        assert store.prepared() == []
        assert [store.load(each).body for each in store.recover().entries["q"]] == [left]
    finally:
        store.close()

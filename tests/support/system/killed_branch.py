"""A process that kills itself around the prepare or the decision of a branch of runs: ROOT STEP.

The step is `prepared`, `committed` or `undone`: that group is in the log, and nobody was told. Or
the half of it is, as in `half prepared`.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from broker_shim.store.branch_store import Xid
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, NewMessageRun, Queue, StoredRun
from sparkstore.core.state_machine.call_values import EnqueueCall
from sparkstore.log.wal import Wal
from tests.support.stores.stores import done, outcomes

COUNT, XID = 40, Xid(1, b"global", b"branch")
_HEADER = MessageHeader()


def prepare_and_decide(root: Path, step: str) -> None:
    """Prepare a branch that moves one half of a queue, removes the other, and brings new ones."""
    store = DeltaMessageStore(root)
    for name in ("q", "other"):
        done(store.create, Queue(name))
    ids, _ = outcomes(store.enqueue_new, NewMessageRun((_HEADER,), (b"old",) * COUNT, "q"))
    within, half = store.begin(), COUNT // 2
    for queue, run in (
        *(("q", run) for run in store.messages((_HEADER,), [b"%d" % n for n in range(COUNT)])),
        ("other", StoredRun(ids[:half], [store.load(ids[0]).header])),
    ):
        done(store.call, EnqueueCall(run, queue), transaction=within)
    outcomes(partial(store.dequeue_each, transaction=within), ids, "q", None)
    if step.endswith("prepared"):
        _die(is_half=step.startswith("half"))
    done(store.prepare, within, XID)
    _die(is_half=step.startswith("half"))
    decide = store.commit_prepared if step.endswith("committed") else store.rollback_prepared
    done(decide, XID)


def _die(*, is_half: bool) -> None:
    """Have the process die by what is written to the log next."""
    written, append = os.pwritev, Wal.append

    def kill(*_: Any) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def write_half(descriptor: int, buffers: list[bytes], *args: Any) -> int:
        whole = b"".join(buffers[:2])  # without what fills it up
        written(descriptor, [whole[: len(whole) // 2]], *args)
        return kill()

    if is_half:
        os.pwritev = write_half  # type: ignore[assignment]
    else:
        Wal.append = lambda *args: kill(append(*args))  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    prepare_and_decide(Path(sys.argv[1]), sys.argv[2])

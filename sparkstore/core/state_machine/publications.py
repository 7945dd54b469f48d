"""Publish staged branches together, once for each batch of a stream. Pure.

A sink whose tasks run on many machines stages what they write as prepared branches (`branches`),
which nobody sees. One request then publishes the branches that its driver names. So all rows of a
batch are on their queues together, or none is.

Why a batch is published once, whatever is killed and however often it is run again: the xid of each
branch names the publication (a stream), the batch, and the attempt that staged it. The service
decides a publication under the store's lock, in one item of the log, and so in one group of the
WAL. That group has the effect of every named branch, and the number of the batch as a configured
object. A crash leaves all of it or nothing. Afterwards a batch up to that number is known to be
there: what a later attempt has staged for it is rolled back, and the caller is told success.

Why no attempt is left behind: a publication also rolls back every branch of its stream that is of
this batch or one before and that it does not name. From then on `check_attempt` refuses to prepare
another, as a task may do that Spark has given up and that still runs. What is left was staged for a
batch that nobody ever published. Each publication, of any stream, rolls back what was staged over
`ABANDONED_S` ago. A write that lasts longer finds its branches gone, and is refused as a whole.

Why a batch that is left out is the one that is there: a query runs only its last batch again. A
number below the last is therefore of a query whose checkpoint was lost or put back, and so is the
last number under another writer. Both have other rows, and are refused.

A batch without a number is published once by its request's number alone, and nothing is remembered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from sparkstore.core import fold, records
from sparkstore.core.holders import OWN_CATEGORY
from sparkstore.core.state_machine.call_values import RecordStep
from sparkstore.core.state_machine.heuristics import COMMITTED, heuristic_of
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.xids import Xid, check_xid, xid_of, xid_text
from sparkstore.errors import AlreadyPublished, InvalidRequest

CATEGORY = OWN_CATEGORY + "publication"
"""Of configured objects, one for each stream, by its name: the last batch that was published."""
FORMAT_ID = 0x53504B53
"""Marks the xid of a branch that stages a part of a batch ("SPKS")."""
UNNUMBERED = -1
"""Stands for the number of a batch that is published by itself, and never again."""
ABANDONED_S = 86_400
"""Age in seconds of an attempt that nobody publishes any more."""
MAX_NAME = 40
_MAX_BATCH = (1 << 63) - 1


class PublicationPlan(NamedTuple):
    """The branches that a publication decides.

    Attributes:
        committed: The branches whose messages go to their queues, in this order.
        rolled_back: The branches that end without effect.
        is_new: False if the batch was published before.
    """

    committed: list[Xid]
    rolled_back: list[Xid]
    is_new: bool


class Attempt(NamedTuple):
    """An attempt to stage a part of a batch, as the xid of its branch names it.

    Attributes:
        name: Name of the stream that the batch is of.
        batch: The number of the batch.
        since_s: When the attempt began, UTC seconds.
        part: The part that it stages, and which of the attempts it is: any text.
    """

    name: str
    batch: int
    since_s: int
    part: str

    @property
    def xid(self) -> Xid:
        """The xid of the attempt's branch."""
        branch_id = f"{self.since_s}/{self.part}".encode()
        return Xid(FORMAT_ID, f"{self.name}/{self.batch}".encode(), branch_id)


def attempt_of(xid: Xid) -> Attempt | None:
    """Read the attempt that an xid names; None for one of another coordinator."""
    if xid.format_id != FORMAT_ID:
        return None
    name, _, batch = xid.global_id.decode("ascii", "replace").rpartition("/")
    since_s, _, part = xid.branch_id.decode("ascii", "replace").partition("/")
    try:
        return Attempt(name, int(batch), int(since_s), part)
    except ValueError:
        return None


def published(state: fold.State, name: str) -> int:
    """Find the last batch of a stream that was published; -1 before the first."""
    return _last(state, name)[0]


def check_attempt(state: fold.State, xid: Xid) -> None:
    """Refuse to stage a part of a batch that is there. Raises AlreadyPublished if it is."""
    attempt = attempt_of(xid)
    if attempt is None or not UNNUMBERED < attempt.batch <= published(state, attempt.name):
        return
    message = f"batch {attempt.batch} of {attempt.name} is published already: this is too late"
    raise AlreadyPublished(message)


def plan(
    machine: StoreStateMachine,
    name: str,
    batch: int,
    xids: Sequence[Xid],
    writer: str | None = None,
) -> PublicationPlan:
    """Decide what a publication does; nothing is changed.

    Args:
        machine: Of the store.
        name: Name of the stream, 1 to 40 characters of ASCII without a slash.
        batch: Number of the batch, which rises within a stream; `UNNUMBERED`: it is not kept.
        xids: The branches, as `Attempt.xid` named them, in the order of the batch's messages.
        writer: The query whose batch it is; None: that is not known.

    Raises:
        InvalidRequest: It is no name or number, a branch is not of this batch, or one is gone; the
            stream is past this batch, or another writer has published it.
    """
    _check(name, batch)
    _check_number(machine.state, name, batch, writer)
    named = {xid_text(check_xid(xid)): xid for xid in xids}
    for key, xid in named.items():
        attempt = attempt_of(xid)
        if attempt is None or (attempt.name, attempt.batch) != (name, batch):
            message = f"branch {key} is not one of batch {batch} of {name}"
            raise InvalidRequest(message)
    others = [xid for xid in _ended(machine, name, batch) if xid_text(xid) not in named]
    if UNNUMBERED < batch <= published(machine.state, name):
        late = [xid for key, xid in named.items() if key in machine.branches]
        return PublicationPlan([], [*others, *late], is_new=False)
    for key in named:
        if key not in machine.branches and not _is_committed(machine, key):
            message = (
                f"branch {key}, a part of batch {batch} of {name}, was rolled back meanwhile:"
                " nothing is published, run the batch again"
            )
            raise InvalidRequest(message)
    return PublicationPlan([*named.values()], others, is_new=True)


def remembered(now_us: int, name: str, batch: int, writer: str | None) -> RecordStep:
    """The step that keeps the number of the last batch of a stream, and whose it was."""
    own = {} if writer is None else {"writer": writer}
    detail = json.dumps({"batch": batch, "since_us": now_us, **own})
    return RecordStep(records.configured(now_us, CATEGORY, name, detail), is_kept=True)


def _last(state: fold.State, name: str) -> tuple[int, str | None]:
    """Find the last batch of a stream, and the query whose it was if that is known."""
    detail = state.configured.get((CATEGORY, name))
    if detail is None:
        return -1, None
    last = json.loads(detail)
    return int(last["batch"]), last.get("writer")


def _check_number(state: fold.State, name: str, batch: int, writer: str | None) -> None:
    """Refuse a number whose batch would be left out, although it has other rows.

    Raises:
        InvalidRequest: It is below the last, or the last of another writer.
    """
    last, owner = _last(state, name)
    is_other = None not in (owner, writer) and owner != writer
    if batch == UNNUMBERED or batch > last or (batch == last and not is_other):
        return
    whose = "another query" if is_other else "this stream"
    message = (
        f"batch {batch} is refused: {whose} has published batch {last} under the same name, so this"
        " would be taken for a batch that runs again, and left out. Give a stream a new"
        " checkpointLocation, and a batch write the query's own id as txnAppId, with a txnVersion"
        " that rises"
    )
    raise InvalidRequest(message)


def _check(name: str, batch: int) -> None:
    if not 1 <= len(name) <= MAX_NAME or not name.isascii() or "/" in name:
        message = f"the name of a publication is 1 to {MAX_NAME} ASCII characters without a slash"
        raise InvalidRequest(message)
    if not UNNUMBERED <= batch <= _MAX_BATCH:
        message = f"batch {batch}: give a number from 0, or {UNNUMBERED} for none"
        raise InvalidRequest(message)


def _ended(machine: StoreStateMachine, name: str, batch: int) -> list[Xid]:
    """Find the attempts that a publication ends: for this batch or one before, and abandoned."""
    abandoned_s = machine.now_us() // 1_000_000 - ABANDONED_S
    ended = []
    for xid in map(xid_of, machine.branches):
        attempt = attempt_of(xid)
        if attempt is None:
            continue
        is_past = UNNUMBERED < attempt.batch < batch or attempt.batch == batch
        if (attempt.name == name and is_past) or attempt.since_s < abandoned_s:
            ended.append(xid)
    return ended


def _is_committed(machine: StoreStateMachine, key: str) -> bool:
    """True if an operator has committed the branch in place of this publication."""
    known = heuristic_of(machine.state, key)
    return known is not None and known.state == COMMITTED

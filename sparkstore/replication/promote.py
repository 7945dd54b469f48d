"""Make a replica, or a standby, the primary (ARCHITECTURE: A take-over).

No Spark is needed, as a promotion must work when little else does.
In this order, each step durable before the next:

1. heal the replica, fold it once for a look, and mark it
2. name the replica in the witness, if there is one, and wait until the old primary's lease runs out
3. give the old root, if it can be reached, the role `fenced`
4. give the replica the next generation and the role `primary`

Killed before the last step, it is a replica still, and promoting it again goes on. The old root may
be fenced by then, which is what was asked for. There is never a moment in which both may be served
and each could know of the other.

A standby has records in its write-ahead log that its tables lack: the start that follows replays
them, as it does after a take-over.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparkstore.errors import InvalidRequest
from sparkstore.jobs.failpoints import Failpoint, no_failpoint
from sparkstore.recovery.recovery import RecoveredRoot, recover
from sparkstore.replication.old_primary import ask, check_not_behind, fence, old_primary
from sparkstore.replication.primary import Primary
from sparkstore.replication.replicate_plan import BACKUP_FILE
from sparkstore.tables import healing
from sparkstore.tables.fencing import PRIMARY, REPLICA, STANDBY, change_identity
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.lock import FileLock
from sparkstore.tables.root import TABLES, Identity, Root, open_root

_log = logging.getLogger(__name__)

BOUNDARIES = ("checked", "witness asked", "old fenced", "promoted")
"""Moments between what a promotion makes durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """Figures of one promotion of a replica.

    Attributes:
        root: The new primary.
        generation: Generation of the new primary, larger than that of the old one.
        last_position: Its last record: what the old primary took after that stays there.
        queues: Queues that it has.
        messages: Messages on them.
        old_primary: Where the old one is.
        old_fenced: It was reached, and has the role fenced. If not, stop it: it goes on until it
            can read the new primary's `root.json`.
        witness: Where it is that told nobody of the old primary's goes on; empty: there is none.
    """

    root: str
    generation: int
    last_position: int
    queues: int
    messages: int
    old_primary: str
    old_fenced: bool
    witness: str = ""


def promote(
    where: str | Path,
    *,
    primary: str | Path | None = None,
    accept_loss: bool = False,
    ask_witness: bool = True,
    at: Failpoint = no_failpoint,
) -> Promotion:
    """Make a replica or a standby the primary; serve it afterwards like any root.

    Args:
        where: The folder of the replica or standby.
        primary: Where the old primary is now; None: where it was when the replica was made, and it
            does not matter if it is not there.
        accept_loss: Also if the old primary can be read and holds more than the replica.
        ask_witness: False if the witness is lost for good, and the old primary is stopped.
        at: Called at each of `BOUNDARIES`.

    Raises:
        InvalidRequest: Not a replica; one that holds nothing yet; one that is behind a primary
            that can be read; or `primary` is not what it is a copy of; the witness is none of it.
        Unavailable: The witness did not answer; nothing was changed.
        Fenced: Another replica of the same primary was promoted before.
        Locked: A job is at work on the replica.
        CorruptData: The replica is not whole; nothing was changed.
        OSError: It cannot be written.
    """
    root = _replica_at(where)
    with ExitStack() as held:
        held.enter_context(jobs_lease(root.path))
        held.callback(FileLock(root.path / "writer.lock", str(root.path)).release)
        root = _replica_at(where)  # again, under the locks: another promotion may have been faster
        old = old_primary(root.path, root.identity, primary)
        healing.heal(root, TABLES)
        recovered = recover(root)
        check_not_empty(root.path, recovered.last_position)
        if old is not None and not accept_loss:
            check_not_behind(old, root.path, recovered.last_position)
        at("checked")
        least = old.identity.generation if old is not None else 0
        new = replace(root.identity, **_promoted(root.identity, least))
        witness = ask(root.identity, new, root.path, old) if ask_witness else ""
        at("witness asked")
        # Before this root is a primary: of two that can be reached one serves at a time.
        is_fenced = old is not None and fence(old, root.path, required=primary is not None)
        at("old fenced")
        now = change_identity(root, lambda seen: _promoted(seen, least) | {"witness": witness})
        at("promoted")
    _log.info("%s is the primary now, generation %d", root.path, now.generation)
    before = old or root.identity
    return promotion_of(str(root.path), now, recovered, before, old_fenced=is_fenced)


def promotion_of(
    where: str,
    new: Identity,
    recovered: RecoveredRoot,
    old: Primary | Identity,
    *,
    old_fenced: bool,
) -> Promotion:
    """Report a promotion; `old` is the old primary, or what the replica knows of it."""
    queues = recovered.state.queues.values()
    return Promotion(
        root=where,
        generation=new.generation,
        last_position=recovered.last_position,
        queues=len(queues),
        messages=sum(len(queue.entries) for queue in queues),
        old_primary=old.location if isinstance(old, Primary) else old.primary,
        old_fenced=old_fenced,
        witness=new.witness,
    )


def check_not_empty(where: str | Path, last_position: int) -> None:
    """Refuse a replica whose first run did not end.

    It must not fence the primary that has everything.
    """
    if last_position == 0:
        message = f"{where} holds nothing yet: let sparkstore replicate end once, then promote"
        raise InvalidRequest(message)


def _replica_at(where: str | Path) -> Root:
    root = open_root(where)
    identity = root.identity
    if identity.role == PRIMARY:
        message = f"{root.path} is a primary already (generation {identity.generation}): serve it"
        raise InvalidRequest(message)
    if identity.role not in {REPLICA, STANDBY}:
        message = f"{root.path} is {identity.role}, not a replica: {identity.successor} took over"
        raise InvalidRequest(message)
    if (root.path / BACKUP_FILE).exists():
        raise InvalidRequest(f"{root.path} is a backup: sparkstore restore makes a root of it")
    return root


def _promoted(identity: Identity, least: int) -> dict[str, Any]:
    return {"role": PRIMARY, "generation": max(identity.generation, least) + 1}

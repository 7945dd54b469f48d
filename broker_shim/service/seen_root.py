"""Decide whether a member has seen more of a root than the root has. Pure.

A broker that stays up while its root is put back from a backup, or wiped, would go on with what its
clients were told and the root has lost. Broker-J hands out messages of its memory that SQL does not
know. So a member that connects again says what it has seen, and the service compares.

Why the comparison finds it: a root has one writer at a time, and each run of a service begins with
a record of its own, `opened`. Whatever another run answered before has therefore a position below
that record, if this root still has it. A position at or after it belongs to records that are gone.
A wiped root has another identity. Requests are no measure: what is only transient leaves no record.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_shim.store.protocol import SeenRoot


class ServedRoot(NamedTuple):
    """A root as one run of the service found it.

    Attributes:
        root_id: Identity of the root.
        generation: Of the root.
        instance: Drawn by this run.
        opened: Position of the record with which this run began.
        ancestors: Identities of the roots that this one was a copy of, before it was promoted.
    """

    root_id: str
    generation: int
    instance: str
    opened: int
    ancestors: frozenset[str] = frozenset()


def reason_to_fence(seen: SeenRoot, root: ServedRoot, *, is_told_anew: bool) -> str | None:
    """Say why a member must not go on with what it knows; None if it may.

    Args:
        seen: By the member, over an earlier connection.
        root: The root that it connects to now.
        is_told_anew: The member keeps nothing that the service does not tell it again. So it may go
            on at a replica that was promoted without the newest records: who promoted it accepted
            their loss.
    """
    is_promoted = seen.root_id in root.ancestors and root.generation > seen.generation
    if seen.root_id != root.root_id and not is_promoted:
        return (
            f"this is another root ({root.root_id}) than the one that this broker was connected to"
            f" ({seen.root_id}): start the broker again, so that it reads what is here, or put"
            " its root back"
        )
    if seen.instance == root.instance or seen.position < root.opened:
        return None
    if is_told_anew and root.generation > seen.generation:
        return None
    return (
        f"this broker has seen record {seen.position} of this root, which was put back to"
        f" {root.opened - 1} since: start the broker again, so that it reads what is here, and look"
        " for what was lost"
    )

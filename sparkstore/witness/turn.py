"""Change a witness's object from outside a store: take its place, pause, close, forget.

Why a kill between any two steps of a promotion is harmless: `sparkstore.witness.lease`.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from sparkstore.errors import Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.tables.root import Identity
from sparkstore.witness.holder import Holder, packed, unpacked
from sparkstore.witness.place import LOST, WitnessPlace

_log = logging.getLogger(__name__)

TRIES = 10
_STOPPED, _SILENT = "the other machine was stopped", "the other machine's lease ran out"


def take_over(
    place: WitnessPlace,
    replica: Identity,
    new: Identity,
    where: str,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Make another root the one that may serve, and wait until nobody else tells anything.

    Args:
        place: Where the object is (`witness_at`).
        replica: The identity of the replica before its promotion.
        new: The identity of the root that will serve.
        where: Its folder or URI, to tell people.
        wait: Waits for so many seconds.

    Raises:
        Fenced: Another replica was promoted.
        InvalidRequest: The witness knows no primary, or another one.
        StoreError: The witness did not answer.
    """
    before = {replica.primary_id, *replica.superseded, replica.root_id, new.root_id}
    for _ in range(TRIES):
        stored = place.read()
        if stored is None:
            message = f"{place.location} has no object: the primary uses this witness no more;"
            message += " see that it is stopped, and promote with --no-witness"
            raise InvalidRequest(message)
        standing = unpacked(place.location, stored.content)
        if standing.root_id not in before:
            message = f"{place.location}: {standing.where} was promoted before, to generation"
            raise Fenced(f"{message} {standing.generation}: use that")
        generation = max(new.generation, standing.generation)
        own = Holder(
            root_id=new.root_id,
            generation=generation,
            writer=uuid4().hex,
            lease_s=standing.lease_s,
            renewal=standing.renewal + 1,
            where=f"{socket.gethostname()}:{where}",
            is_closed=standing.is_closed,
            switched_us=_now_us(),
            switched_why="a person promoted it",
        )
        if place.replace_if_unchanged(packed(own), stored.tag):
            if not standing.is_closed:
                wait_s = standing.over_after_s
                _log.warning("waiting %.1f s: so long may %s go on", wait_s, standing.where)
                wait(wait_s)
                close(place, own)
            return
    message = f"{place.location}: others change it all the time: try again"
    raise Unavailable(message)


def sight(place: WitnessPlace) -> tuple[Holder, str] | None:
    """Read a witness's object and its tag; None if there is none.

    Raises:
        CorruptData: It cannot be read.
        StoreError: The witness did not answer.
    """
    stored = place.read()
    return stored and (unpacked(place.location, stored.content), stored.tag)


def take_place(place: WitnessPlace, seen: Holder, tag: str, new: Identity, where: str) -> bool:
    """Make a standby the root that may serve, if the object is still the one that it saw.

    The standby has waited by then (`sparkstore.shipping.steps`): nobody tells anything under the
    object that is replaced, so the new one says at once that it need not be waited for.

    Raises:
        StoreError: The witness did not answer: look at it again.
    """
    own = Holder(
        root_id=new.root_id,
        generation=new.generation,
        writer=uuid4().hex,
        lease_s=seen.lease_s,
        renewal=seen.renewal + 1,
        where=f"{socket.gethostname()}:{where}",
        is_closed=True,
        position=seen.position,
        switched_us=_now_us(),
        switched_why=seen.closed_why or (_STOPPED if seen.is_closed else _SILENT),
    )
    return place.replace_if_unchanged(packed(own), tag)


def pause(place: WitnessPlace, *, is_paused: bool) -> Holder:
    """Let no standby take over, or let it again; the object then.

    Raises:
        InvalidRequest: The witness has no object.
        StoreError: It did not answer.
    """
    for _ in range(TRIES):
        sighted = sight(place)
        if sighted is None:
            raise InvalidRequest(LOST.format(place.location))
        changed = replace(sighted[0], renewal=sighted[0].renewal + 1, is_paused=is_paused)
        if place.replace_if_unchanged(packed(changed), sighted[1]):
            return changed
    message = f"{place.location}: others change it all the time: try again"
    raise Unavailable(message)


def close(place: WitnessPlace, own: Holder, why: str = "") -> None:
    """Release the lease at the witness, so that the next holder need not wait.

    Its failure costs that.
    """
    try:
        stored = place.read()
        if stored is None:
            return
        standing = unpacked(place.location, stored.content)
        if standing.writer == own.writer:
            renewal = standing.renewal + 1
            closed = replace(standing, renewal=renewal, is_closed=True, closed_why=why)
            place.replace_if_unchanged(packed(closed), stored.tag)
    except (StoreError, OSError) as reason:
        _log.warning("the witness was not told that nobody serves: %s", reason)


def _now_us() -> int:
    return time.time_ns() // 1000


def forget(place: WitnessPlace, root: Identity) -> None:
    """Remove the object of a root that has no witness any more; nobody else's."""
    stored = place.read()
    if stored is not None and unpacked(place.location, stored.content).root_id == root.root_id:
        place.delete()

"""The members of a store service: who is connected, and as which incarnation.

All under the store's lock.

Records of the service keep what must outlive it: the host that the root belongs to, and the
incarnations that each member had. Both are configured objects of a category of the service's own.
With the incarnations stands when the newest of them came first. So after a restart, too, a new
incarnation is told from one that was there before. The latter goes on where it was; but one that
another has replaced is sent away. Requests that it still has in doubt could be taken for those of
its successor.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from broker_shim.errors import Fenced, InvalidRequest, StoreError, Unavailable
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.service.requests import MemberRequests
from broker_shim.service.service_metrics import ServiceMetrics
from broker_shim.store.delta import Batch, DeltaMessageStore
from broker_shim.store.protocol import Hello
from sparkstore.core import records
from sparkstore.core.annotations import given_back
from sparkstore.core.fold import Entry, State
from sparkstore.core.holders import MEMBER_CATEGORY
from sparkstore.core.link_records import MEMBER, link_key
from sparkstore.core.queue_names import shown
from sparkstore.core.records import rows_of
from sparkstore.core.state_machine.call_values import Queue, RecordStep, joined
from sparkstore.core.state_machine.sole_host import (
    SoleHost,
    came,
    changed_by_others,
    left,
    sole_host,
    why_unchangeable,
)

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection

_log = logging.getLogger(__name__)

_LEASE = "lease_s"
_REMEMBERED = 64
"""Incarnations of a member that are told from a new one."""


class MemberEvent(StrEnum):
    """An event in the life of a member, for the audit log."""

    CONNECTED = "member-connected"
    REFUSED = "member-refused"
    GONE = "member-gone"
    LOST = "member-lost"


Audit = Callable[..., None]
"""audit(event, **details), from any thread: details are `peer`, `member`, `reason`, `requests`."""


def not_audited(_event: MemberEvent, **_details: object) -> None:
    """Write nothing down about an event."""


@dataclass(slots=True)
class ConnectedMember:
    """One broker instance that was connected in this run of the service.

    Attributes:
        name: The member's name, which its broker chose and keeps over restarts.
        incarnation: Of the member's starts that connected, the newest; each start names itself
            anew.
        decisions: What its records mean.
        requests: Of that incarnation.
        peer: Who speaks for it; None while it is not connected.
        is_exclusive: No other member may be connected meanwhile.
    """

    name: str
    incarnation: str
    decisions: Decisions
    requests: MemberRequests
    peer: MemberConnection | None = None
    is_exclusive: bool = False


@dataclass(slots=True)
class Members:
    """All members that a store service knows.

    Attributes:
        max_message_bytes: How long the content of one message may be, in bytes, inclusive.
        by_name: Those that were connected.
        metrics: What the service counts.
        clock: Only rises, in seconds: how long transactions are open.
    """

    max_message_bytes: int
    by_name: dict[str, ConnectedMember] = field(default_factory=dict)
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    clock: Callable[[], float] = time.monotonic
    _detached: dict[str, list[str]] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def greet(self, batch: Batch, hello: Hello, peer: MemberConnection) -> ConnectedMember:
        """Let a member in: its connection speaks for it from now on.

        Raises:
            InvalidRequest: Another host's root, an exclusive member beside another, or an
                exclusive one is connected already by another process.
            Unavailable: It is no host, and one that must be alone may be about to come back.
            Fenced: A newer incarnation took its place, or others changed what the host has read.
        """
        owner = sole_host(batch.machine.state)
        _check_owner(owner, hello)
        self._check_alone(hello)
        if hello.host is None:
            _take_place_of_host(batch)
        member = self.by_name.get(hello.member)
        peer_there = None if member is None else member.peer
        if member is not None and peer_there is not None:
            self._check_other(member, peer_there, hello)
        is_new = self._incarnate(batch, hello)
        _own(batch, owner, hello, is_new=is_new)
        self._attach_again(batch, hello.member, is_new=is_new)
        if peer_there is not None:
            peer_there.displace(_taken(hello, is_new=is_new))
        if member is None or is_new:
            if member is not None:
                member.requests.forget()
            decisions = Decisions(batch.machine, hello.member, self.max_message_bytes)
            decisions.is_alone = hello.exclusive
            member = ConnectedMember(
                hello.member,
                hello.incarnation,
                decisions,
                MemberRequests(decisions, hello.member, self.metrics, self.clock),
            )
            self.by_name[hello.member] = member
        self.metrics.connections += 1
        with self._guard:
            member.peer, member.is_exclusive = peer, hello.exclusive
        return member

    def lose(self, batch: Batch, name: str) -> int | None:
        """Release what a member holds that is gone; how much, None: it is there after all.

        Its deliveries failed. What a link of tier 2 holds, that stays: it may resume elsewhere.
        Links that were attached there are detached, as by a broker that starts anew, and its open
        transactions are rolled back. Queues end that were its links' own and no restart's.
        """
        member = self.by_name.get(name)
        if member is not None and member.peer is not None and not member.peer.is_lost():
            return None
        if member is not None:
            member.requests.forget()
        steps = held_by(batch, name, failed=True)
        links = attached_at(batch.machine.state, [name])
        batch.take([*steps, *(step for text in links for step in _detached(batch, text))])
        batch.take(left(batch.machine.state, name, batch.machine.now_us()))
        self._end_own_queues(batch, name)
        self._detached.setdefault(name, []).extend(links)
        self.metrics.lost += bool(steps)
        return messages_in(steps)

    def _end_own_queues(self, batch: Batch, name: str) -> None:
        """Destroy what nobody else knows to end: the links that it was made for are gone."""
        member = self.by_name.get(name)
        own = set() if member is None else member.decisions.own_queues
        for queue in sorted(own & batch.machine.state.queues.keys()):
            batch.take(batch.machine.destroy(Queue(queue)))
        own.clear()

    def _attach_again(self, batch: Batch, name: str, *, is_new: bool) -> None:
        """Attach the links of a member that comes back, but those that others have now.

        A new incarnation has none: its clients attach them.
        """
        links = batch.machine.state.links
        for text in self._detached.pop(name, []):
            link = links.get(text)
            if not is_new and link is not None and link.detached_at is not None:
                detail = json.loads(link.detail)
                if detail.get(MEMBER) == name:
                    batch.take(batch.machine.attach(link_key(text), detail))

    def roll_back_late(self, name: str, timeout_s: float) -> tuple[int, float | None]:
        """Abort a member's transactions that are open for so long; see `MemberRequests`."""
        member = self.by_name.get(name)
        return (0, None) if member is None else member.requests.roll_back_late(timeout_s)

    def is_away(self, name: str) -> bool:
        """Whether a member is not connected."""
        member = self.by_name.get(name)
        return member is None or member.peer is None

    def sent_away(self) -> None:
        """Count one that was told goodbye for what it did."""
        with self._guard:
            self.metrics.sent_away += 1

    def leave(self, member: ConnectedMember, peer: MemberConnection) -> None:
        """Note that a connection ended; its member keeps what it holds.

        The store may be closed by now, so this has a lock of its own, with the end of `greet`.
        """
        with self._guard:
            if member.peer is peer:
                member.peer = None

    def left_alone(self, batch: Batch, member: ConnectedMember) -> None:
        """Let others come, as a member that was alone is gone."""
        if member.peer is None:
            batch.take(left(batch.machine.state, member.name, batch.machine.now_us()))

    def _check_alone(self, hello: Hello) -> None:
        for other in self.by_name.values():
            is_there = other.peer is not None and not other.peer.is_lost()
            if other.name != hello.member and is_there and (hello.exclusive or other.is_exclusive):
                alone = hello.member if hello.exclusive else other.name
                message = (
                    f"member {other.name!r} is connected and {alone!r} must be alone on this root:"
                    " give each its own root"
                )
                raise InvalidRequest(message)

    def _check_other(self, member: ConnectedMember, peer: MemberConnection, hello: Hello) -> None:
        """Refuse a second process of a member that is connected and has to be the only one."""
        is_other = member.incarnation != hello.incarnation and not peer.is_lost()
        if is_other and (hello.exclusive or member.is_exclusive):
            message = (
                f"member {hello.member!r} is connected already, by another process: stop that one,"
                " or give this one another name"
            )
            raise InvalidRequest(message)

    def _incarnate(self, batch: Batch, hello: Hello) -> bool:
        """Note a new incarnation, and release what those before it held; True if it is new."""
        machine = batch.machine
        kept = machine.state.configured.get((MEMBER_CATEGORY, hello.member))
        before: dict[str, Any] = {} if kept is None else json.loads(kept)
        known: list[str] = before.get("incarnations", [])
        if known and known[-1] == hello.incarnation:
            if before.get(_LEASE) != hello.lease_s:
                detail = _with_lease(before, hello.lease_s)
                batch.take([_remembered(machine.now_us(), hello.member, detail)])
            return False
        if hello.incarnation in known:
            message = f"another process took the place of member {hello.member!r}: stop this one"
            raise Fenced(message)
        now_us = machine.now_us()
        detail = {"incarnations": [*known, hello.incarnation][-_REMEMBERED:], "since_us": now_us}
        made = _remembered(now_us, hello.member, _with_lease(detail, hello.lease_s))
        released = held_by(batch, hello.member, failed=True) if known else []
        links = attached_at(machine.state, [hello.member])
        detached = [step for text in links for step in _detached(batch, text)]
        batch.take([*released, *detached, made])
        self._end_own_queues(batch, hello.member)
        if known:
            _log.info(
                "member %r has a new incarnation; released %d messages that the one before held",
                hello.member,
                messages_in(released),
            )
        return True


def _with_lease(detail: Mapping[str, Any], lease_s: int | None) -> dict[str, Any]:
    rest = {name: value for name, value in detail.items() if name != _LEASE}
    return rest if lease_s is None else {**rest, _LEASE: lease_s}


def _remembered(now_us: int, member: str, detail: Mapping[str, Any]) -> RecordStep:
    """Make the step that keeps what must outlive the service about a member."""
    made = records.configured(now_us, MEMBER_CATEGORY, member, json.dumps(detail))
    return RecordStep(made, is_kept=True)


def _taken(hello: Hello, *, is_new: bool) -> StoreError:
    """Make the error for a connection whose member has another one now."""
    if is_new:
        return Fenced(f"another process took the place of member {hello.member!r}: stop this one")
    return Unavailable("the member has connected again")


def _check_owner(owner: SoleHost | None, hello: Hello) -> None:
    """A root belongs to one virtual host; another one that takes it over says so."""
    if owner is None or hello.host in {None, owner.name} or hello.former_host == owner.name:
        return
    message = (
        f"this root belongs to virtual host {shown(owner.name)}, not to {shown(hello.host or '')}:"
        " give that one another root; or, if the former is gone for good, say so by the"
        f" attribute formerName = {shown(owner.name)} of the new node"
    )
    raise InvalidRequest(message)


def _own(batch: Batch, owner: SoleHost | None, hello: Hello, *, is_new: bool) -> None:
    """Give the root to this host from now on, if the member is one.

    Raises:
        Fenced: The host read the root before others changed it.
    """
    if hello.host is None:
        return
    if owner is not None and owner.is_changed and not is_new:
        message = (
            f"others changed this root while virtual host {shown(hello.host)} was away: start that"
            " host again, so that it reads what is there now"
        )
        raise Fenced(message)
    member, machine = hello.member if hello.exclusive else None, batch.machine
    batch.take(came(machine.state, hello.host, member, machine.now_us()))


def decide_in_place_of_host(store: DeltaMessageStore) -> None:
    """A broker is about to change what a Broker-J host has read, if the root is one's.

    Args:
        store: Where the root is no host's, nothing is written, so it need not have room now.

    Raises:
        Unavailable: The host was attached when the last run of the service ended, and may live.
    """
    with store.look() as machine:
        if sole_host(machine.state) is None:
            return
    with store.batch() as batch:
        _take_place_of_host(batch)


def _take_place_of_host(batch: Batch) -> None:
    machine = batch.machine
    reason = why_unchangeable(machine.state)
    if reason is not None:
        message = (
            f"{reason}, and try again when the grace of members that are gone (member_grace_s) is"
            " over"
        )
        raise Unavailable(message)
    batch.take(changed_by_others(machine.state, machine.now_us()))


def held_by(
    batch: Batch,
    member: str,
    *,
    failed: bool,
    but: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> list[RecordStep]:
    """Steps that give back what a member holds, in the order of each queue.

    Args:
        batch: Has the store's state.
        member: Name of the member.
        failed: Its deliveries failed, and count as such.
        but: By queue, messages that it keeps.
    """
    prefix, steps = member + "/", list[RecordStep]()
    for queue, served in batch.machine.state.queues.items():
        kept = but.get(queue, ())
        held = [
            (message_id, entry)
            for message_id, entry in served.entries.marked()
            if (entry.acquired_by or "").startswith(prefix) and message_id not in kept
        ]
        steps += given_back_steps(batch, queue, held, failed=failed)
    return steps


def attached_at(state: State, members: Container[str]) -> list[str]:
    """The links that are attached at one of these members."""
    return [
        text
        for text, link in state.links.items()
        if link.detached_at is None and json.loads(link.detail).get(MEMBER, "") in members
    ]


def _detached(batch: Batch, text: str) -> list[RecordStep]:
    """Detach a link whose connection is gone; what it holds it keeps."""
    return batch.machine.detach(link_key(text), closed=False)


def messages_in(steps: Iterable[RecordStep]) -> int:
    """Count the messages that steps give back."""
    return rows_of(step.run for step in steps)


def given_back_steps(
    batch: Batch, queue: str, held: Iterable[tuple[int, Entry]], *, failed: bool
) -> Iterator[RecordStep]:
    """Make the steps that let acquired messages wait again, whoever holds them."""
    return joined([_given_back(batch, queue, *one, failed=failed) for one in held])


def _given_back(
    batch: Batch, queue: str, message_id: int, entry: Entry, *, failed: bool
) -> RecordStep:
    machine, count = batch.machine, entry.delivery_count + failed
    detail = given_back(entry.detail, None)
    if failed:
        detail = machine.delayed(queue, entry.detail, detail, count)
    record = records.message_released(machine.now_us(), queue, message_id, count, detail=detail)
    return RecordStep(record, is_kept=entry.position > 0)


def known_members(state: State) -> dict[str, int | None]:
    """The members that ever asked, each with its lease in seconds; None: it has none."""
    return {
        key: json.loads(detail).get(_LEASE)
        for (category, key), detail in state.configured.items()
        if category == MEMBER_CATEGORY
    }

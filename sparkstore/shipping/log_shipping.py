"""The log's side of a standby: a group goes out, the own sync runs, the answer is read.

Who calls: the log thread (`ship`, then `wait`, for each group), and the session of a standby
(`sparkstore.standby.session`), which brings it up, hands it over (`attach`) and asks from time to
time whether it is there (`beat`). One lock is held around what either says to the standby; never
around the own sync, which runs meanwhile.

Why an answer is never taken for another: after `attach` each frame gets one answer, in order, and
whoever sent a frame reads its answer, or ends the connection. A beat is left out while a group is
on its way.

Why a standby that is brought up misses no group: from `join` on each group is kept, until `attach`
has sent all that were kept and becomes the way of the next. What is before is in Delta by then, or
soon: the session waits for it.

Order of what the witness is told (`steps`): a standby counts for `may_confirm` before the witness
names it, and stops to count after the witness names nobody. If an answer of the witness is lost,
the standby goes on to count, and the witness is told again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from sparkstore.config import StoreConfig
from sparkstore.errors import CorruptData, StoreError, Unavailable
from sparkstore.shipping.frames import MOST_OTHER_BYTES, POSITION, PairFrame
from sparkstore.shipping.peer import Peer
from sparkstore.shipping.steps import Standing, Synchrony, is_due_alone, may_confirm
from sparkstore.witness.lease import Witness

_log = logging.getLogger(__name__)

_MOST_KEPT_BYTES = 64 << 20
"""Groups kept for a standby that is brought up; with more, it is brought up from Delta again."""

Encode = Callable[[bytes, int, int, int], bytes]
"""Encodes a group: packed records, their number, the first position, and the turn."""
Declare = Callable[[str], None]
"""Has the witness name a standby, or nobody, and returns when it does."""


class ShippedGroup(NamedTuple):
    """Records that were, or are to be, made durable by one sync."""

    first_position: int
    record_count: int
    payload: bytes


class StandbyFigures(NamedTuple):
    """Figures of a primary's standby, for monitors.

    Attributes:
        is_in_step: A standby answers, and has all that is acknowledged.
        is_alone: Nothing that is acknowledged need be at a standby.
        silent_s: How long one that must confirm has been silent.
        lag_records: Records that the standby lacks, as far as this start of its primary knows.
        lag_bytes: The bytes of those in the write-ahead log.
        lag_s: How long it has lacked any.
    """

    is_in_step: bool
    is_alone: bool
    silent_s: float
    lag_records: int
    lag_bytes: int
    lag_s: float


class Shipping:
    """The way of a log to its standby; the module says who calls what."""

    def __init__(
        self,
        synchrony: Synchrony,
        encode: Encode,
        next_position: int,
        declare: Declare | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.synchrony = synchrony
        self._encode, self._declare, self._clock = encode, declare, clock
        self._guard = threading.Condition()
        self._standing = Standing()
        self._declared: str | None = ""
        self._peer: Peer | None = None
        self._turn = self._unanswered = 0
        self._next_position = next_position
        self._confirmed = next_position - 1
        self._held: ShippedGroup | None = None
        self._kept: list[ShippedGroup] | None = None
        self._kept_bytes = 0
        self._has_ended = False
        # What the standby was last known to have, whether it is there or not; for `figures`.
        self._known_end, self._lag_bytes = next_position - 1, 0
        self._lacks_since_s: float | None = None

    # -------------------------------------------------------------------- the log thread

    def ship(self, payload: bytes, count: int, first: int) -> None:
        """Send a group on its way; never fails, and waits for no answer."""
        with self._guard:
            self._held = group = ShippedGroup(first, count, payload)
            self._next_position = first + count
            self._lag_bytes += len(payload)
            if self._lacks_since_s is None:
                self._lacks_since_s = self._clock()
            if self._kept is not None:
                self._keep(group)
            if self._peer is not None:
                self._try(self._send_group)

    def wait(self, timeout_s: float) -> bool:
        """Tell whether the group that was shipped may be confirmed; waits for its answer.

        Raises:
            Fenced: Another root serves by now.
            StoreError: The witness did not answer; call again.
        """
        with self._guard:
            assert self._held is not None
            last = self._held.first_position + self._held.record_count - 1
            if self._unanswered:
                self._try(self._receive)
            if not may_confirm(self._standing, last, self.synchrony):
                if is_due_alone(self._standing, self._clock(), self.synchrony):
                    self._go_alone("it did not answer")
                else:
                    self._guard.wait(timeout_s)
                if not may_confirm(self._standing, last, self.synchrony):
                    return False
            self._confirmed, self._held = last, None
            return True

    @property
    def why(self) -> str:
        """Say what completions wait for."""
        standby = self._standing.standby
        return f"the standby {standby[:8]} does not answer" if standby else "there is no standby"

    # -------------------------------------------------------------------- a standby's session

    def release(self) -> None:
        """Record that no standby is in step, before one is rewound or copied anew.

        Raises:
            StoreError: The witness did not answer, or another root serves.
        """
        with self._guard:
            if self._peer is not None:
                raise Unavailable("this primary has a standby already, which answers: stop that")
            if self._standing.standby or self._declared != "":
                self._go_alone("it comes back")

    def join(self) -> int:
        """Keep all groups from now on; the position of the first."""
        with self._guard:
            self._kept, self._kept_bytes, self._turn = [], 0, 0
            if self._held is None:
                return self._next_position
            self._keep(self._held)
            return self._held.first_position

    def attach(self, peer: Peer, standby: str) -> None:
        """Send what was kept, and all that comes; completions wait for this standby from now on.

        Raises:
            Unavailable: Too much was kept: bring it up again. Or it is gone.
            CorruptData: It answers what was not asked.
        """
        self._send_kept(peer)  # most of it while the log goes on
        with self._guard:
            self._send_kept(peer)
            self._kept = None
            self._reached(self._next_position - 1)
            self._peer = peer
            self._standing = Standing(standby, self._next_position - 1)
            self._guard.notify_all()
            self._tell_witness()

    def beat(self, peer: Peer) -> None:
        """Ask whether the standby is there, and tell it what is confirmed.

        Raises:
            Unavailable: It is this primary's standby no more.
            StoreError: The witness did not answer: it will be asked again.
        """
        with self._guard:
            if self._peer is not peer:
                raise Unavailable(f"the standby at {peer.where} was let go")
            if not self._unanswered:
                self._try(self._send_beat)
            self._tell_witness()

    def leave(self, peer: Peer) -> None:
        """Note that a session has ended, however it did."""
        with self._guard:
            self._kept = None
            if self._peer is peer:
                self._lose("its session ended")

    def end(self) -> None:
        """Hang up on the standby: the log has ended. It waits for nothing, and for no lock."""
        self._has_ended, peer = True, self._peer
        if peer is not None:
            peer.close()

    @property
    def figures(self) -> StandbyFigures:
        """Return what monitors may know; it waits for nothing."""
        standing, now_s = self._standing, self._clock()
        silent_since_s, lacks_since_s = standing.silent_since_s, self._lacks_since_s
        return StandbyFigures(
            self._peer is not None,
            not (standing.standby or self.synchrony.is_always),
            0.0 if silent_since_s is None else now_s - silent_since_s,
            max(0, self._next_position - 1 - self._known_end),
            0 if lacks_since_s is None else self._lag_bytes,
            0.0 if lacks_since_s is None else now_s - lacks_since_s,
        )

    # -------------------------------------------------------------------- under the lock

    def _send_kept(self, peer: Peer) -> None:
        with self._guard:
            kept, self._kept, self._kept_bytes = self._kept, [], 0
        if kept is None:
            raise Unavailable("too much came meanwhile")
        for group in kept:
            self._send(peer, group)
            acked = _acked(peer)
            if acked != group.first_position + group.record_count - 1:
                raise CorruptData(f"the standby at {peer.where} answered for position {acked}")

    def _keep(self, group: ShippedGroup) -> None:
        if self._kept is not None:
            self._kept.append(group)
            self._kept_bytes += len(group.payload)
            if self._kept_bytes > _MOST_KEPT_BYTES:
                self._kept = None

    def _send(self, peer: Peer, group: ShippedGroup) -> None:
        self._turn += 1
        head = self._encode(group.payload, group.record_count, group.first_position, self._turn)
        peer.send(PairFrame.GROUP, POSITION.pack(self._confirmed) + head + group.payload)

    def _send_group(self, peer: Peer) -> None:
        assert self._held is not None
        self._send(peer, self._held)
        self._unanswered += 1

    def _send_beat(self, peer: Peer) -> None:
        peer.send(PairFrame.BEAT, POSITION.pack(self._confirmed))
        self._unanswered += 1
        self._receive(peer)

    def _receive(self, peer: Peer) -> None:
        while self._unanswered:
            acked = _acked(peer)
            self._unanswered -= 1
            if acked >= self._next_position:
                raise CorruptData(f"the standby at {peer.where} has records that never were")
            self._standing = self._standing._replace(acked=max(acked, self._standing.acked))
            self._reached(acked)

    def _reached(self, position: int) -> None:
        """Note what the standby has; its lag in bytes is counted anew once it has all."""
        self._known_end = position
        if position == self._next_position - 1:
            self._lag_bytes, self._lacks_since_s = 0, None

    def _try(self, talk: Callable[[Peer], None]) -> None:
        """Say something to the standby; one that does not take it is let go of."""
        assert self._peer is not None
        began_s = self._clock()
        try:
            talk(self._peer)
        except StoreError as reason:
            self._lose(str(reason), began_s)

    def _lose(self, why: str, since_s: float | None = None) -> None:
        if self._peer is not None:
            level = logging.INFO if self._has_ended else logging.ERROR
            _log.log(level, "the standby %s is lost: %s", self._standing.standby[:8], why)
            self._peer.close()
        self._peer, self._unanswered = None, 0
        since_s = self._clock() if since_s is None else since_s
        self._standing = self._standing._replace(silent_since_s=since_s)
        self._guard.notify_all()

    def _go_alone(self, why: str) -> None:
        """Let the witness name nobody, and wait for nobody from then on."""
        standby = self._standing.standby
        self._declared = None
        if self._declare is not None:
            self._declare("")
        self._declared, self._standing = "", Standing()
        self._guard.notify_all()
        if standby:
            _log.error("without its standby %s this primary is alone: %s", standby[:8], why)

    def _tell_witness(self) -> None:
        standby, peer = self._standing.standby, self._peer
        if peer is None or self._declared == standby:
            return
        self._declared = None
        try:
            if self._declare is not None:
                self._declare(standby)
        except (StoreError, OSError) as reason:  # asked again with the next beat
            _log.warning("the witness was not told of the standby %s: %s", standby[:8], reason)
            return
        self._declared = standby
        _log.warning("the standby %s at %s is in step", standby[:8], peer.where)


def shipping_of(
    config: StoreConfig, encode: Encode, next_position: int, witness: Witness | None
) -> Shipping | None:
    """Make the way to a standby; None if the settings let none come."""
    if not config.standby_listen:
        return None
    synchrony = Synchrony(config.synchronous == "always", config.standby_grace_s)
    declare = None if witness is None else witness.name_in_step
    return Shipping(synchrony, encode, next_position, declare)


def _acked(peer: Peer) -> int:
    kind, body = peer.receive(lambda _kind: MOST_OTHER_BYTES)
    if kind is not PairFrame.ACK or len(body) != POSITION.size:
        raise CorruptData(f"the standby at {peer.where} answered by {kind.name}")
    position: int = POSITION.unpack(body)[0]
    return position

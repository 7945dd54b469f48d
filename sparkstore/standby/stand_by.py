"""A standby's process: connect to the primary, again and again; take over when it is gone.

The thread of the caller talks to the primary. The thread `witness watch` looks at the witness, by
a clock of its own alone: an object that stayed the same for longer than its lease was renewed by
nobody, since each renewal changes it. When a take-over is due, the connection is ended and the root
closed first: from then on nothing more is confirmed to the primary. Then the object is replaced, if
it is still the one that was seen; if it is not, the standby connects again.

A take-over has two steps, and a kill between them leaves a start that finishes it
(`admission.role_at_start`): the witness names this root; `root.json` says primary, and the next
generation. What follows is an ordinary start, which replays the log. If the witness's answer to the
first step is lost, the next look shows whether it took effect; if it did, the second one follows.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from sparkstore.config import StoreConfig
from sparkstore.errors import Ended, InvalidRequest, Locked, StoreError, Unavailable
from sparkstore.shipping.peer import Peer, RefusedByPeer
from sparkstore.shipping.steps import Sighting, may_take_over, next_look_s, seen_again
from sparkstore.standby.admission import StartRole, role_at_start
from sparkstore.standby.copied_root import JobAtWork
from sparkstore.standby.follower import StandbyConnection
from sparkstore.tables.fencing import PRIMARY, STANDBY, change_identity
from sparkstore.tables.lock import FileLock
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import Identity, is_root, open_root, path_of
from sparkstore.witness.holder import Holder
from sparkstore.witness.lease import boottime_s
from sparkstore.witness.place import WitnessPlace, witness_at
from sparkstore.witness.turn import sight, take_place

_log = logging.getLogger(__name__)

_AGAIN_S, _SELDOM_S = 0.5, 5.0
_PATIENCE_S = 60.0
_CONNECT_S = 5.0


class PeerAddress(NamedTuple):
    """The way to the other machine.

    Attributes:
        host: Its name or number.
        port: Port of its `standby_listen`.
        token: What it asks for.
        tls: How to check its certificate; None: without TLS.
    """

    host: str
    port: int
    token: str
    tls: ssl.SSLContext | None = None

    def connect(self) -> Peer:
        """Connect to the other machine.

        Raises:
            Unavailable: Nobody is there, or it cannot be trusted.
        """
        where = f"{self.host}:{self.port}"
        try:
            connection = socket.create_connection((self.host, self.port), _CONNECT_S)
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_hostname=self.host)
        except OSError as reason:
            raise Unavailable(f"no primary at {where}: {reason}") from reason
        return Peer(connection, where, _PATIENCE_S)


def start_role(where: str | Path, config: StoreConfig) -> StartRole:
    """Decide what a machine that has a peer does at its start; see `admission.role_at_start`.

    Raises:
        StoreError: The witness did not answer; the root cannot be read.
    """
    path = path_of(where)
    own = open_root(path).identity if is_root(path) else None
    witness = config.witness or (own.witness if own is not None else "")
    if witness:
        sighted = sight(witness_at(witness))
        return role_at_start(own, sighted and sighted[0], str(path))
    if own is not None and own.role == PRIMARY:
        message = f"{path} is a primary, and no witness says which machine serves: name one"
        message += " ([store] witness). If the other one serves, empty this folder; else leave"
        raise InvalidRequest(f"{message} --standby-of out")
    return StartRole.FOLLOW


def finish(where: str | Path) -> Identity:
    """Make a standby that the witness names the primary; its identity then."""
    root = open_root(where)

    def promoted(identity: Identity) -> dict[str, Any]:
        if identity.role != STANDBY:
            return {}
        return {
            "role": PRIMARY,
            "generation": identity.generation + 1,
            "superseded": sorted({*identity.superseded, identity.primary_id} - {""}),
        }

    return change_identity(root, promoted)


class StandBy:
    """A machine that follows; `run` returns True when it is to serve, False when it was stopped."""

    def __init__(self, where: str | Path, config: StoreConfig, address: PeerAddress) -> None:
        self._path, self._config, self._address = path_of(where), config, address
        self._stopping, self._due = threading.Event(), threading.Event()
        self._woken = SimpleQueue[None]()  # its `put` is safe in a signal's handler
        self._look = SimpleQueue[None]()
        self._follower: StandbyConnection | None = None
        self._seen: tuple[Holder, str] | None = None
        self._witness: WitnessPlace | None = None
        self._trouble, self._again_s = "it has not connected yet", _AGAIN_S

    @property
    def trouble(self) -> str:
        """Say how the standby stands, for whoever asks whether this machine serves."""
        follower = self._follower
        state = "in step" if follower is not None and follower.is_live else self._trouble
        return f"standby of {self._address.host}:{self._address.port}: {state}"

    @property
    def is_live(self) -> bool:
        """Tell whether it takes groups as they are written."""
        follower = self._follower
        return follower is not None and follower.is_live

    @property
    def position(self) -> int:
        """Return the last position that it has."""
        follower = self._follower
        return 0 if follower is None else follower.position

    def stop(self) -> None:
        """Let `run` end soon; from any thread, or a signal's handler."""
        self._stopping.set()
        self._leave_primary()

    def run(self) -> bool:
        """Follow until this machine is to serve, or `stop`.

        Raises:
            Locked: Another process has the root.
            StoreError: The root cannot be a standby of that primary; the line says what to do.
        """
        private_folder(self._path)
        with ExitStack() as held:
            held.callback(FileLock(self._path / "writer.lock", str(self._path)).release)
            watch = threading.Thread(target=self._watch, name="witness watch", daemon=True)
            watch.start()
            held.callback(self._end_watch)
            while not self._stopping.is_set():
                if self._due.is_set() and self._take_over():
                    return True
                self._connect()
                if not self._is_called:
                    with suppress(Empty):
                        self._woken.get(timeout=self._again_s)
        return False

    def _end_watch(self) -> None:
        self._stopping.set()
        self._look.put(None)

    @property
    def _is_called(self) -> bool:
        return self._stopping.is_set() or self._due.is_set()

    def _leave_primary(self) -> None:
        """End the connection, or the waiting for one, after `_stopping` or `_due` was set."""
        self._woken.put(None)
        follower = self._follower  # set before it is looked whether this was called
        if follower is not None:
            follower.close()

    def _connect(self) -> None:
        """Follow the primary for as long as one connection lasts."""
        try:
            peer = self._reached()
            if peer is None:
                return
            follower = StandbyConnection(self._path, self._config, peer, self._address.token)
        except Unavailable as reason:
            self._note(reason)
            return
        self._follower = follower
        if self._is_called:
            follower.close()
        try:
            follower.run()
        except (Ended, InvalidRequest, Locked):
            raise
        except StoreError as reason:
            self._note(reason)
        except OSError as reason:
            message = f"the disk of {self._path} failed: {reason}; nothing more is confirmed"
            raise Ended(f"{message}: restart this standby") from reason
        finally:
            self._follower = None
            self._look.put(None)  # a primary that hands over ends the connection last

    def _reached(self) -> Peer | None:
        """Connect to the primary; None if a take-over is due, or the end, before it answers.

        The thread that waits for its name or its machine is left alone then: a network that is
        silent holds up neither.

        Raises:
            Unavailable: Nobody is there.
        """
        attempt = Future[Peer]()
        attempt.add_done_callback(lambda _: self._woken.put(None))
        arguments = (attempt, self._address)
        threading.Thread(target=_connect, args=arguments, name="connecting", daemon=True).start()
        while not self._is_called:
            self._woken.get()
            if attempt.done():
                return attempt.result()
        attempt.add_done_callback(_hang_up)
        return None

    def _note(self, reason: StoreError) -> None:
        if str(reason) != self._trouble and not self._stopping.is_set():
            _log.warning("not in step: %s", reason)
        self._trouble = str(reason)
        # Else it may be there at any moment; each greeting makes the primary commit to Delta.
        is_seldom = isinstance(reason, RefusedByPeer | JobAtWork)
        self._again_s = min(2 * self._again_s, _SELDOM_S) if is_seldom else _AGAIN_S

    # ------------------------------------------------------------------- the witness

    def _watch(self) -> None:
        """Look at the witness until a take-over is due; again if that was too late."""
        seen, wait_s = Sighting(), _AGAIN_S
        while True:
            with suppress(Empty):
                self._look.get(timeout=wait_s)
            if self._stopping.is_set():
                return
            began_s = boottime_s()
            try:
                sighted = self._sight()
            except (StoreError, OSError) as reason:
                _log.debug("the witness does not answer: %s", reason)
                continue
            if sighted is None:
                continue
            holder, tag = sighted
            seen = seen_again(seen, tag, began_s, boottime_s(), holder.lease_s)
            wait_s = next_look_s(holder, boottime_s() - seen.since_s)
            if self._due.is_set():
                continue
            if may_take_over(holder, self._own_id(), began_s - seen.since_s):
                self._seen = sighted
                self._due.set()
                self._leave_primary()

    def _sight(self) -> tuple[Holder, str] | None:
        if self._witness is None:
            where = self._config.witness
            if not where and is_root(self._path):
                where = open_root(self._path).identity.witness
            if not where:
                return None
            self._witness = witness_at(where, patience_s=1.0)
        return sight(self._witness)

    def _own_id(self) -> str:
        """Return the id of this root; a word that no witness has, while there is none."""
        with suppress(StoreError, OSError):
            return open_root(self._path).identity.root_id
        return "no root"

    def _take_over(self) -> bool:
        """Replace the witness's object, and become the primary; False if it was too late."""
        assert self._seen is not None
        assert self._witness is not None
        holder, tag = self._seen
        identity = open_root(self._path).identity
        began = time.monotonic()
        new = Identity(identity.root_id, generation=identity.generation + 1)  # as `finish` does
        try:
            is_taken = holder.root_id == new.root_id or take_place(
                self._witness, holder, tag, new, str(self._path)
            )
        except (StoreError, OSError) as reason:
            self._due.clear()
            self._note(Unavailable(f"the witness does not answer: {reason}"))
            return False
        if not is_taken:
            self._due.clear()
            return False
        now = finish(self._path)
        _log.warning(
            "%s takes over from %s:%d: generation %d, %.1f s",
            self._path,
            self._address.host,
            self._address.port,
            now.generation,
            time.monotonic() - began,
        )
        return True


def _connect(attempt: Future[Peer], address: PeerAddress) -> None:
    try:
        attempt.set_result(address.connect())
    except Exception as reason:  # noqa: BLE001 - it belongs to whoever waits for the attempt
        attempt.set_exception(reason)


def _hang_up(attempt: Future[Peer]) -> None:
    if attempt.exception() is None:
        attempt.result().close()

"""A connection of a standby to its primary: greet, be brought up, then take group after group.

It answers each frame once, when what the frame brought is on disk. What it cannot take ends the
connection with one line to the primary, and the next connection begins where the disk ends.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from uuid import uuid4

from sparkstore.config import StoreConfig
from sparkstore.errors import CorruptData, StoreError
from sparkstore.shipping.frames import (
    POSITION,
    PROTOCOL,
    PairFrame,
    PrimaryWelcome,
    StandbyHello,
    as_json,
    from_json,
    most_bytes,
)
from sparkstore.shipping.peer import Peer
from sparkstore.standby.copied_root import begin_copy, end_copy, has_whole_root, without_jobs
from sparkstore.standby.copy_calls import CopyTarget
from sparkstore.standby.followed_root import FollowedRoot
from sparkstore.tables.fencing import STANDBY
from sparkstore.tables.root import Identity, open_root
from sparkstore.tables.schema import SCHEMA_VERSION

_log = logging.getLogger(__name__)

_LIVE_S = 10.0
"""A primary says something every half second."""
_GROUP_AGAIN = 2
"""Groups may be so many times what a store lets wait for its log."""


class StandbyConnection:
    """One connection; `run` until it ends, and `close` from another thread ends it.

    Attributes:
        is_live: It takes groups as they are written, and the primary waits for it.
        position: The last position that it has.
        root_id: Its root, also one that is still to be copied.
    """

    def __init__(self, path: Path, config: StoreConfig, peer: Peer, token: str) -> None:
        self._path, self._config, self._peer, self._token = path, config, peer, token
        self._longest_bytes = _GROUP_AGAIN * config.max_pending_bytes
        self._root = FollowedRoot(open_root(path), config) if has_whole_root(path) else None
        self.root_id = uuid4().hex if self._root is None else self._root.root.identity.root_id
        self.is_live = False
        self.position = 0 if self._root is None else self._root.position

    def run(self) -> None:
        """Take what the primary sends until one of the two ends.

        Raises:
            StoreError: Why it ended.
            OSError: The own disk failed: this process must end.
        """
        try:
            self._follow(self._greet())
        except StoreError as reason:
            self._peer.refuse(reason)
            raise
        finally:
            self.is_live = False
            self._peer.close()
            if self._root is not None:
                self._root.close()

    def close(self) -> None:
        """End the connection; from any thread."""
        self._peer.close()

    def _greet(self) -> PrimaryWelcome:
        hello = StandbyHello(PROTOCOL, SCHEMA_VERSION, self._token, self.root_id)
        if self._root is not None:
            hello = self._root.hello(PROTOCOL, self._token)
        self._peer.send(PairFrame.HELLO, as_json(hello._asdict()))
        kind, body = self._receive()
        try:
            welcome = PrimaryWelcome(**from_json(body))
            bytes.fromhex(welcome.root_id)
        except (TypeError, ValueError) as reason:
            message = f"{self._peer.where} sent no welcome ({reason}): it is no sparkstore, or of"
            raise CorruptData(f"{message} another version: install the same on both") from reason
        if kind is not PairFrame.WELCOME or welcome.root_id == self.root_id:
            raise CorruptData(f"{self._peer.where} is no primary of this standby")
        return welcome

    def _follow(self, primary: PrimaryWelcome) -> None:
        kind, body = self._copy(primary) if primary.must_copy else self._receive()
        root = self._root
        if root is None:
            raise CorruptData(f"{self._peer.where} sends no copy, and there is nothing here")
        if not primary.must_copy:
            root.follow(primary, self._peer.where)
        while kind is not PairFrame.LIVE:
            if kind is not PairFrame.ROWS or len(body) < 4:
                raise CorruptData(f"{self._peer.where} sent {kind.name} out of its turn")
            if zlib.crc32(body[4:]) != int.from_bytes(body[:4], "little"):
                raise CorruptData(f"{self._peer.where} sent damaged records")
            self._confirm(root.take_rows(body[4:]))
            kind, body = self._receive()
        self._take_groups(root, primary, body)

    def _take_groups(self, root: FollowedRoot, primary: PrimaryWelcome, body: bytes) -> None:
        start = from_json(body)
        try:
            epoch, first = int(start["epoch"]), int(start["first"])
        except (TypeError, KeyError, ValueError) as reason:
            raise CorruptData(f"{self._peer.where} sent no start of its groups") from reason
        self._confirm(root.go_live(primary, epoch, first))
        self._peer.patience_s = _LIVE_S
        while True:
            kind, body = self._receive()
            if len(body) < POSITION.size or kind not in (PairFrame.GROUP, PairFrame.BEAT):
                raise CorruptData(f"{self._peer.where} sent {kind.name} out of its turn")
            self._confirm(root.take_group(body) if kind is PairFrame.GROUP else root.position)
            root.confirm(body)  # after the answer: the primary waits for that
            if kind is PairFrame.BEAT and not self.is_live:  # it asks whom it waits for alone
                self.is_live = True
                _log.warning("in step with %s, position %d", self._peer.where, root.position)

    def _copy(self, primary: PrimaryWelcome) -> tuple[PairFrame, bytes]:
        """Get a copy of all tables; the frame after it."""
        if self._root is not None:
            self._root.close()
            self._root = None
        with without_jobs(self._path):
            return self._copied(primary)

    def _copied(self, primary: PrimaryWelcome) -> tuple[PairFrame, bytes]:
        target = CopyTarget(begin_copy(self._path), self._peer)
        kind, body = self._receive()
        while kind is PairFrame.CALL:
            target.answer(body)
            kind, body = self._receive()
        identity = Identity(
            self.root_id,
            role=STANDBY,
            generation=primary.generation,
            primary_id=primary.root_id,
            primary=self._peer.where,
            superseded=sorted({*primary.superseded} - {self.root_id}),
            witness=primary.witness,
        )
        self._root = FollowedRoot(end_copy(self._path, identity), self._config)
        return kind, body

    def _receive(self) -> tuple[PairFrame, bytes]:
        return self._peer.receive(lambda kind: most_bytes(kind, self._longest_bytes))

    def _confirm(self, position: int) -> None:
        self.position = position
        self._peer.send(PairFrame.ACK, POSITION.pack(position))

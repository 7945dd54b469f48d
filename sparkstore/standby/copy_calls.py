"""A copy of a primary's tables, made by the primary in a folder of the standby.

Decision: it is `replicate_to_bucket`, as a backup is, to a `Storage` whose folder is at the far end
of a connection. That copy is consistent beside a store that runs, and argued once. The far end
takes files of the three tables alone, each in pieces, and nothing else of the machine.
"""

from __future__ import annotations

import base64
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from sparkstore.errors import CorruptData
from sparkstore.shipping.frames import (
    MOST_ANSWER_BYTES,
    MOST_OTHER_BYTES,
    PIECE_BYTES,
    PairFrame,
    as_json,
    from_json,
)
from sparkstore.shipping.peer import Peer
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.storage import StoredContent, StoredFile
from sparkstore.tables.root import TABLES

_log = logging.getLogger(__name__)

_STEP = r"(?:[A-Za-z0-9_][A-Za-z0-9_=.+%-]*)"
_NAME = re.compile(rf"(?:{'|'.join(TABLES)})(?:/{_STEP})+")
_PROGRESS_BYTES = 256 << 20


class FarStorage:
    """The folder of a standby, as a primary copies to it; see `Storage` for what each does."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._guard = threading.Lock()
        self._sent_bytes = 0

    @property
    def location(self) -> str:
        """Return where the standby is."""
        return self._peer.where

    def read(self, name: str) -> StoredContent | None:
        """Read a small file as a whole; None if there is none of this name."""
        answer = self._call("read", name)
        return answer and StoredContent(base64.b64decode(answer["content"]), answer["tag"])

    def files(self, under: str = "") -> Iterator[StoredFile]:
        """List every file below a folder."""
        return (StoredFile(*row) for row in self._call("files", under))

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Write a small file if there is none of this name; True if it now holds this content."""
        return bool(self._call("put_if_absent", name, [content], len(content)))

    def replace_if_unchanged(self, name: str, content: bytes, tag: str) -> bool:
        """Replace nothing: a copy that is made anew has nothing to replace."""
        raise NotImplementedError(f"{name} is not replaced while a standby is copied: {tag}")

    def upload(self, name: str, file: Path) -> None:
        """Copy a file of any size to there."""
        with file.open("rb") as opened:
            size = file.stat().st_size
            self._call("upload", name, iter(lambda: opened.read(PIECE_BYTES), b""), size)

    def download(self, name: str, file: Path) -> None:
        """Fetch nothing: a primary has all that it copies."""
        raise NotImplementedError(f"{name} is not fetched from a standby to {file}")

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none of this name."""
        self._call("delete", name)

    def _call(self, call: str, name: str, content: Any = (), size: int = 0) -> Any:
        with self._guard:  # files are uploaded by several threads
            request = {"call": call, "name": name, "size": size}
            self._peer.send(PairFrame.CALL, as_json(request))
            for whole in content:
                for start in range(0, len(whole), PIECE_BYTES):
                    self._peer.send(PairFrame.PIECE, whole[start : start + PIECE_BYTES])
            kind, body = self._peer.receive(lambda _kind: MOST_ANSWER_BYTES)
            if kind is not PairFrame.ANSWER:
                raise CorruptData(f"the standby at {self.location} answered a call by {kind.name}")
            before, self._sent_bytes = self._sent_bytes, self._sent_bytes + size
            if before // _PROGRESS_BYTES != self._sent_bytes // _PROGRESS_BYTES:
                text = "copied %d MiB to the standby at %s"
                _log.info(text, self._sent_bytes >> 20, self.location)
            return from_json(body)


class CopyTarget:
    """The standby's end: takes one call at a time, into a folder of its own."""

    def __init__(self, folder: Path, peer: Peer) -> None:
        self._folder, self._disk, self._peer = folder, LocalStorage(folder), peer

    def answer(self, body: bytes) -> None:
        """Do what a CALL asks for, and answer.

        Raises:
            CorruptData: It asks for anything that no copy needs.
            Unavailable: The primary is gone.
            OSError: The disk failed, or is full.
        """
        request = from_json(body)
        try:
            call, name, size = request["call"], str(request["name"]), int(request["size"])
        except (TypeError, KeyError, ValueError) as reason:
            raise CorruptData("the primary sent a call that is none") from reason
        if not (_NAME.fullmatch(name) or (call == "files" and name in {"", *TABLES})):
            raise CorruptData(f"the primary names {name[:200]!r}, which is no file of a table")
        scratch = self._folder / f"piece.{uuid4().hex}"
        try:
            self._receive(scratch, size)
            self._peer.send(PairFrame.ANSWER, as_json(self._do(call, name, scratch)))
        finally:
            scratch.unlink(missing_ok=True)

    def _receive(self, scratch: Path, size: int) -> None:
        with scratch.open("xb") as file:
            left = size
            while left > 0:
                kind, piece = self._peer.receive(_most_of_a_piece)
                if kind is not PairFrame.PIECE or not piece or len(piece) > left:
                    raise CorruptData("the primary sent a file that is longer than it said")
                file.write(piece)
                left -= len(piece)

    def _do(self, call: str, name: str, scratch: Path) -> Any:
        if call == "read":
            stored = self._disk.read(name)
            content = stored and base64.b64encode(stored.content).decode()
            return stored and {"content": content, "tag": stored.tag}
        if call == "files":
            return [*self._disk.files(name)]
        if call == "put_if_absent":
            return self._disk.put_if_absent(name, scratch.read_bytes())
        if call == "upload":
            return self._disk.upload(name, scratch)
        if call == "delete":
            return self._disk.delete(name)
        raise CorruptData(f"the primary asks for {call[:50]!r}, which no copy needs")


def _most_of_a_piece(kind: int) -> int:
    return PIECE_BYTES if kind == PairFrame.PIECE else MOST_OTHER_BYTES

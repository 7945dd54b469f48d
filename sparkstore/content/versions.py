"""The files that may bring a message: of the newest versions of journal and history seen so far."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparkstore.core.records import Kind
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import ANY, FileStats, columns_of, read_files, snapshot

_MESSAGE_ID = columns_of(ROW, ["message_id"])
_OPENED = columns_of(ROW, ["position", "epoch", "kind"])


class ContentVersions:
    """Files of both tables in the order of their positions, which the order of message ids follows.

    So the file with a message is found by bisection, and those after it are looked at only if the
    message came in pieces.

    Not thread-safe: its owner locks.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._files: list[FileStats] = []
        self._named: dict[Path, FileStats] = {}  # those that were looked into
        self._highest: list[int] = []  # message id in each file or one before it
        self._unsearched: list[FileStats] = []  # the journal's, by least position
        self._searched: set[Path] = set()
        self._journal: set[Path] = set()
        self._openings: set[tuple[int, int]] = set()
        self.is_known = False

    def refresh(self) -> set[Path]:
        """Look at the newest versions; the paths of their files. The journal's comes first."""
        journal, history = snapshot(self._root.journal), snapshot(self._root.history)
        files = [*map(self._with_ids, [*journal, *history])]
        self._files = sorted(files, key=lambda file: file.positions)
        self._named = {file.path: file for file in files if file.path in self._named}
        self._highest = [*accumulate((file.message_ids[1] for file in self._files), max)]
        self._journal = {file.path for file in journal}
        self._searched &= self._journal
        self._unsearched = [file for file in journal if file.path not in self._searched]
        self.is_known = True
        return {file.path for file in files}

    def _with_ids(self, file: FileStats) -> FileStats:
        """Look into a file whose log says of no message id that it is there, as where none is."""
        if file.message_ids == ANY:
            if file.path not in self._named:
                ids = pc.min_max(read_files([file], _MESSAGE_ID)["message_id"]).as_py()
                known = (1, 0) if ids["min"] is None else (ids["min"], ids["max"])
                self._named[file.path] = file._replace(message_ids=known)
            return self._named[file.path]
        return file

    def that_name(self, message_id: int) -> Iterator[FileStats]:
        """Return the files with rows about a message, by least position."""
        for at in range(bisect_left(self._highest, message_id), len(self._files)):
            least, largest = self._files[at].message_ids
            if least <= message_id <= largest:
                yield self._files[at]

    def limits(self, path: Path, epochs: Collection[int], last_position: int) -> dict[int, int]:
        """Return, by epoch, the position before which rows of a file count.

        An absent file counts in full.

        A row of a fenced writer does not count (ARCHITECTURE: Rule 3): its id may have been given
        out again. In history all count.

        Args:
            path: The data file, of the journal or of history, that the rows are in.
            epochs: Epochs of some of its rows.
            last_position: Position of the last of these rows.
        """
        if path not in self._journal:
            return {}
        end = bisect_right(self._unsearched, last_position, key=lambda file: file.positions[0])
        if end:
            self._search(self._unsearched[:end])
            del self._unsearched[:end]
        limits = {}
        for epoch in epochs:
            newer = [position for position, opened in self._openings if opened > epoch]
            if newer:
                limits[epoch] = min(newer)
        return limits

    def counts(self, path: Path, position: int, epoch: int) -> bool:
        """Tell whether a row counts: a fenced writer's does not."""
        return position < self.limits(path, [epoch], position).get(epoch, position + 1)

    def _search(self, files: list[FileStats]) -> None:
        """Find the `opened` records in files.

        Each file is searched once, as its records never change.
        """
        rows = read_files(files, _OPENED, ds.field("kind") == Kind.OPENED.column)
        self._openings |= set(
            zip(rows["position"].to_pylist(), rows["epoch"].to_pylist(), strict=True)
        )
        self._searched |= {file.path for file in files}

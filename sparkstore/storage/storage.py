"""The seam for storage: what sparkstore asks of a folder or of a bucket, and what it may rely on.

What every implementation promises:

- What a call wrote is durable when the call returns: on a disk it was fsynced, and for an object
  the answer of the store is its durability. There is no call to sync.
- A reader sees a file as it was before a call or as it is afterwards, never a part of it.
- `put_if_absent` and `replace_if_unchanged` are decided by the storage: of any number who try at
  once, on any number of machines, one wins.
- An answer may be lost after the work was done. Whoever then tries again is told "it is there", by
  its own first try. So both calls read back what stands: where it is what they were given, they
  have won. For that the content must name who wrote it, or be the same whoever writes it.

Names are relative, with slashes. They are made here of table names, numbers and UUIDs, never of
names that a user chose.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol


class StoredFile(NamedTuple):
    """A file of a listing: its name and its size in bytes."""

    name: str
    size: int


class StoredContent(NamedTuple):
    """The bytes of a small file, and the tag that `replace_if_unchanged` knows them by."""

    content: bytes
    tag: str


class Storage(Protocol):
    """A folder or a prefix of a bucket; may be used from several threads.

    Every method raises Unavailable if the storage did not answer: the outcome is unknown then, and
    the same call may be made again. It raises InvalidRequest if the storage says that this user may
    not do that, or that the place is not there, and CorruptData where a name is no path.
    """

    @property
    def location(self) -> str:
        """Return the storage's location, as a user would write it."""
        ...

    def read(self, name: str) -> StoredContent | None:
        """A small file as a whole; None if there is none of this name."""
        ...

    def files(self, under: str = "") -> Iterable[StoredFile]:
        """Every file below a folder, in any order; none if there is no such folder."""
        ...

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Write a small file if there is none of this name; True if it now holds this content."""
        ...

    def replace_if_unchanged(self, name: str, content: bytes, tag: str) -> bool:
        """Replace a small file that `read` gave with this tag; True if this stands."""
        ...

    def upload(self, name: str, file: Path) -> None:
        """Write a file of any size, which whoever else writes this name writes alike."""
        ...

    def download(self, name: str, file: Path) -> None:
        """Write a file of the storage to a local path, durably.

        Raises:
            FileNotFoundError: There is none of this name.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none of this name."""
        ...

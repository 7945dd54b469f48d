"""Find the place of a witness, by the setting: one object, which is replaced if unchanged.

Decision: no etcd. Of its Python clients none is kept (etcd3 is of 2020, and the author of aetcd
calls it unmaintained), and Kubernetes keeps its Leases in etcd anyway. Its JSON gateway could be a
place in some sixty lines, by a transaction that compares revisions. It is not built: no test
here could run it against a real etcd in CI, and a second imitation of a server proves little.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.storage.probe import check_is_conditional
from sparkstore.storage.storage import Storage, StoredContent
from sparkstore.witness.folder import FolderPlace
from sparkstore.witness.kubernetes import SCHEME, KubernetesPlace

_NAME = "primary.json"
_LOOK_S = 5.0

NO_WITNESS = "none"
"""As the setting: the root has no witness any more."""
LOST = (
    "{} is the witness of this root, and has no object: if it is the right place, see that no"
    f' replica serves, and start once with witness = "{NO_WITNESS}"'
)


class WitnessPlace(Protocol):
    """One object, which of all who change it at once one changes; may be used from several threads.

    What a call wrote is durable when it returns. Each method raises StoreError or OSError if the
    place did not answer: the outcome is unknown then, and the same call may be made again.
    """

    @property
    def location(self) -> str:
        """Return the place, as a user would write it."""
        ...

    def read(self) -> StoredContent | None:
        """Read the object, and the tag by which it can be replaced; None: there is none."""
        ...

    def put_if_absent(self, content: bytes) -> bool:
        """Write the object if there is none; True if it now holds this content."""
        ...

    def replace_if_unchanged(self, content: bytes, tag: str) -> bool:
        """Replace the object that `read` gave with this tag; True if it now holds this content."""
        ...

    def delete(self) -> None:
        """Remove the object; nothing happens if there is none."""
        ...


class BucketPlace:
    """The object below a prefix of a bucket, whose store decides conditional puts."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def location(self) -> str:
        """Return the URI of the prefix."""
        return self._storage.location

    def read(self) -> StoredContent | None:
        """Read the object, as `WitnessPlace` says."""
        return self._storage.read(_NAME)

    def put_if_absent(self, content: bytes) -> bool:
        """Write the object if there is none, as `WitnessPlace` says."""
        return self._storage.put_if_absent(_NAME, content)

    def replace_if_unchanged(self, content: bytes, tag: str) -> bool:
        """Replace the object if it is unchanged, as `WitnessPlace` says."""
        return self._storage.replace_if_unchanged(_NAME, content, tag)

    def delete(self) -> None:
        """Remove the object from the bucket."""
        self._storage.delete(_NAME)


def witness_at(where: str, patience_s: float = 60.0) -> WitnessPlace:
    """Open the place of a witness: a prefix of a bucket, a folder of all machines, or a Lease.

    Raises:
        InvalidRequest: It is none, or its store does not decide conditional puts.
        Unavailable: It did not answer, or the folder is not mounted.
    """
    if where.startswith(SCHEME):
        return KubernetesPlace(where, patience_s)
    if not is_object_uri(where):
        path = Path(where.removeprefix("file://"))
        message = f"witness is {where!r}, which is no folder: "
        if not path.is_absolute():
            raise InvalidRequest(
                f"{message}say the whole path, s3://BUCKET/PREFIX or kubernetes:NAMESPACE/NAME"
            )
        if not path.is_dir():
            raise Unavailable(f"{message}mount or create it")
        return FolderPlace(path)
    storage = ObjectStorage(where, patience_s=patience_s)
    check_is_conditional(storage)
    return BucketPlace(storage)


def absence_of(where: str) -> str:
    """Return why a witness that a root has served under cannot say who serves; empty: it can.

    Raises:
        InvalidRequest: It never will.
    """
    try:
        place = witness_at(where, patience_s=_LOOK_S)
        return "" if place.read() is not None else LOST.format(place.location)
    except (Unavailable, OSError) as reason:
        return str(reason)

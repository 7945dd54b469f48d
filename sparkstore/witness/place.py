"""Open the place of a witness: what the setting names, as a storage of one object."""

from __future__ import annotations

from pathlib import Path

from sparkstore.errors import InvalidRequest
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.storage.probe import check_is_conditional
from sparkstore.storage.storage import Storage

NAME = "primary.json"

NO_WITNESS = "none"
"""As the setting: the root has no witness any more."""
LOST = (
    f"{{}} is the witness of this root, and has no {NAME}: if it is the right place, see that no"
    f' replica serves, and start once with witness = "{NO_WITNESS}"'
)


def witness_at(where: str, patience_s: float = 60.0) -> Storage:
    """Open the place of a witness: a prefix of a bucket, or a folder that all machines have.

    Raises:
        InvalidRequest: No such place, or its store does not decide conditional puts.
        StoreError: It did not answer.
    """
    if not is_object_uri(where):
        path = Path(where.removeprefix("file://"))
        if not (path.is_absolute() and path.is_dir()):
            message = f"witness is {where!r}, which is no folder: mount or create it, or say"
            raise InvalidRequest(f"{message} s3://BUCKET/PREFIX")
        return LocalStorage(path)
    storage = ObjectStorage(where, patience_s=patience_s)
    check_is_conditional(storage)
    return storage

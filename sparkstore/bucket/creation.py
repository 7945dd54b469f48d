"""A new root in a bucket: the tables first, then `root.json`, each put if absent.

Why a creation may be cut off anywhere, and why two may create one root at a time: without
`root.json` no record was ever taken, and whoever comes next puts what is missing. Version 0 of a
table and `root.json` are those of whoever was first, and everybody reads them back.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from sparkstore.errors import CorruptData, InvalidRequest
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import version_name
from sparkstore.tables.delta_files import log_file
from sparkstore.tables.fencing import identity_at
from sparkstore.tables.root import ROOT_FILE, TABLES, Identity, as_root_file, open_or_create_root

_LEFT_BY_A_CREATION = re.compile(
    rf"({'|'.join(TABLES)})/_delta_log/{0:020}\.json|epoch/.*|probe-[0-9a-f]+"
)
_OF_A_TABLE = re.compile(rf"({'|'.join(TABLES)})/")


def open_or_create(bucket: Storage) -> Identity:
    """Return the identity of the root in a bucket; create it as a primary if the prefix is free.

    Raises:
        InvalidRequest: There is something else.
        CorruptData: There are tables with records, and no `root.json`; or it cannot be read.
        StoreError: The bucket did not answer.
    """
    identity = identity_at(bucket)
    if identity is not None:
        return identity
    _check_free(bucket)
    with tempfile.TemporaryDirectory(prefix="sparkstore-new-root-") as name:
        new = open_or_create_root(Path(name) / "root")
        for table in TABLES:
            first = log_file(new.table(table), 0).read_bytes()
            bucket.put_if_absent(version_name(table, 0), first)
        bucket.put_if_absent(ROOT_FILE, as_root_file(new.identity))
    identity = identity_at(bucket)
    if identity is None:
        message = f"{bucket.location}/{ROOT_FILE} went while it was created: try again"
        raise CorruptData(message)
    return identity


def _check_free(bucket: Storage) -> None:
    for file in bucket.files():
        if _LEFT_BY_A_CREATION.fullmatch(file.name):
            continue
        if _OF_A_TABLE.match(file.name):
            message = f"{bucket.location} holds {file.name} but no {ROOT_FILE}: restore that"
            raise CorruptData(f"{message} from a backup")
        message = f"{bucket.location} is no sparkstore root, and holds {file.name!r}: choose"
        raise InvalidRequest(f"{message} another prefix")

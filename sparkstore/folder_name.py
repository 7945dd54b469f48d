"""Tell what was meant as a URI from the name of a folder. Pure.

A slash or colon that is missing makes of `s3://lake/queues` a path like any other, and a folder on
this machine of what was meant to be in a bucket. So a name with a scheme's name in front is none.
"""

from __future__ import annotations

import re

from sparkstore.errors import InvalidRequest

_BUCKETS = ("s3", "gs", "az")
"""Schemes of the places that a root can be in."""

_ELSEWHERE = (
    *("abfs", "abfss", "adl", "dbfs", "file", "ftp", "gcs", "hdfs", "http", "https", "s3a", "s3n"),
    *("viewfs", "wasb", "wasbs"),
)
_KNOWN = re.compile(rf"({'|'.join((*_BUCKETS, *_ELSEWHERE))})(:/*|//+)(.*)", re.I | re.S)
_ANY = re.compile(r"[a-z][a-z0-9+.-]*:/", re.I)


def check_is_folder_name(text: str, what: str) -> None:
    """Refuse a name that begins as a URI does, whole or mistyped; `data//queues` is a folder.

    Args:
        text: The name as it was given: a `Path` has lost its second slash.
        what: Whose name it is, for the error, as `wal_dir`; empty: the root's.

    Raises:
        InvalidRequest: A known scheme's name is in front, or any name with a colon and a slash.
    """
    known = _KNOWN.match(text)
    if known is None and _ANY.match(text) is None:
        return
    named = f"{what} {text}" if what else text
    if known is not None and known[1].lower() in _BUCKETS and not what:
        uri = f"{known[1].lower()}://{known[3].lstrip('/')}"
        message = f"{named} is no folder: write a bucket as a text, {uri}"
    else:
        message = f"{named} is no folder: give the path of one on this machine, ./{text} if it is"
    raise InvalidRequest(message)

"""Where a server is, which tells whose questions it can answer.

The name is a digest of all that an answer may depend on: the version of sparkstore, where it is
installed and when it was changed last, the Python, the engines, the Java, and how much Spark puts
into a query. So a server of another version is never asked; it ends by itself.

    NAME.socket    who asks connects here
    NAME.lock      locked (flock) by the server as long as it runs, however it ends
    NAME.log       what it and its JVM write

The folder is this user's alone (0700), so nobody else reaches the socket, or puts another there.
Both sides ask the kernel who is at the other end all the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import struct
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import sparkstore
from sparkstore.errors import InvalidRequest
from sparkstore.user_cache import user_cache

_LONGEST_PATH = 107
"""Bytes of the path of a Unix socket on Linux."""
_ENVIRONMENT = (
    "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS", "PYTHONPATH", "TZ",
)  # fmt: skip
_ENGINES = ("pyspark", "delta-spark", "deltalake", "pyarrow")


class ServerPlace(NamedTuple):
    """The files of one server."""

    socket: Path
    lock: Path
    log: Path


def servers_folder() -> Path | None:
    """Return the folder, made if it was not there; None if there can be none that is ours alone."""
    try:
        folder = user_cache() / "sql"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except (OSError, RuntimeError):  # of a user without a home
        return None
    is_ours = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return folder if is_ours and not folder.is_symlink() else None


def server_place(effort: str) -> ServerPlace | None:
    """Return the place of the server for an effort; None if this user can have none.

    Raises:
        InvalidRequest: The path of the cache is too long for a Unix socket.
    """
    folder = servers_folder()
    if folder is None:
        return None
    home = Path(sparkstore.__file__).parent
    given = (f"{name}={os.environ.get(name, '')}" for name in _ENVIRONMENT)
    engines = (_version(name) for name in _ENGINES)
    parts = (
        sparkstore.__version__, str(home), str(_changed_ns(home)), sys.executable, sys.version,
        *engines, shutil.which("java") or "", effort, *given,
    )  # fmt: skip
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    place = ServerPlace(*(folder / f"{name}.{kind}" for kind in ServerPlace._fields))
    if len(os.fsencode(place.socket)) > _LONGEST_PATH:
        message = f"{place.socket} is longer than the {_LONGEST_PATH} bytes of a socket's path"
        raise InvalidRequest(f"{message}: set XDG_CACHE_HOME to a shorter folder")
    return place


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _changed_ns(package: Path) -> int:
    """When a file of the package was changed last: a checkout has one version for long."""
    return max(
        os.stat(os.path.join(folder, name)).st_mtime_ns  # noqa: PTH116, PTH118  # quick: hundreds
        for folder, _, names in os.walk(package)
        if not folder.endswith("__pycache__")
        for name in names
    )


def is_this_user(peer: socket.socket) -> bool:
    """True if the process at the other end of a Unix socket is of this user."""
    _process, user = _at_other_end(peer)
    return user == os.geteuid()


def process_of(peer: socket.socket) -> int:
    """Return the number of the process that listens or connected at the other end."""
    process, _user = _at_other_end(peer)
    return process


def _at_other_end(peer: socket.socket) -> tuple[int, int]:
    size = struct.calcsize("3i")
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _group = struct.unpack("3i", credentials)
    return process, user

"""Where the service listens, and who may connect: our own user, or who knows the token."""

from __future__ import annotations

import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from broker_shim.errors import InvalidRequest
from sparkstore.secret_file import read_secret

SOCKET_NAME = "service.sock"
_MAX_SOCKET_PATH_BYTES = 107
_BACKLOG = 1024
"""Who connects while as many wait is told to try again, and not every client does."""


@dataclass(frozen=True, slots=True)
class ServiceSocket:
    """A listening socket, and the token that its peers must know (None: our own user alone)."""

    listening: socket.socket
    token: str | None = None


def default_socket(root: Path) -> Path:
    """The path of a root's socket: `ROOT/service.sock`."""
    return root / SOCKET_NAME


def listen_on_path(path: Path) -> socket.socket:
    """Open a listening unix socket of mode 0600, in place of what a killed service left.

    Its folder is made with mode 0700 if it is not there. The caller has the root's writer lock, so
    no other service of this root listens on it.

    Raises:
        InvalidRequest: The path is too long, its folder is open to others, or it is no socket.
        OSError: It cannot be bound.
    """
    check_path(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(path.parent)
    if path.exists() and not path.is_socket():
        message = f"{path} is there and is no socket: give another path with --store-socket"
        raise InvalidRequest(message)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before the file is there: no gap
        listening.bind(str(path))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def check_path(path: Path) -> None:
    """Check the path of a socket. Raises InvalidRequest if it is too long."""
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH_BYTES:
        message = (
            f"the path of a socket has at most {_MAX_SOCKET_PATH_BYTES} bytes, {path} has more:"
            " give a shorter one with --store-socket"
        )
        raise InvalidRequest(message)


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read.

    Raises:
        InvalidRequest: It cannot be read, is not one line, is too short, or is open to others.
    """
    token = read_secret(path, "token").strip()
    if path.stat().st_mode & 0o077:
        message = f"token file {path} can be read by others: chmod 600 it"
        raise InvalidRequest(message)
    if len(token) < 16:
        message = f"token file {path}: a token has at least 16 characters"
        raise InvalidRequest(message)
    return token


def is_our_user(peer: socket.socket) -> bool:
    """True for a peer on a unix socket that is our own user, or root."""
    _pid, uid = _credentials(peer)
    return uid in {0, os.getuid()}


def remote_of(peer: socket.socket) -> str:
    """Name the peer for the audit log; "unknown" if it is gone already."""
    try:
        if peer.family == socket.AF_UNIX:
            return process_of(peer)
        host, port = peer.getpeername()[:2]
    except OSError:
        return "unknown"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def process_of(peer: socket.socket) -> str:
    """Name the process at the other end of a unix socket, for the audit log."""
    pid, uid = _credentials(peer)
    return f"local uid={uid} pid={pid}"


def _credentials(peer: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    size = struct.calcsize("3i")
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _gid = struct.unpack("3i", credentials)
    return pid, uid


def _check_folder(folder: Path) -> None:
    """A folder in which another user may rename files could get another socket of that name."""
    status = folder.stat()
    is_sticky = bool(status.st_mode & stat.S_ISVTX)
    if status.st_uid not in {0, os.getuid()} or (status.st_mode & 0o022 and not is_sticky):
        message = f"others may write in {folder}: chmod 700 it, or give another --store-socket"
        raise InvalidRequest(message)

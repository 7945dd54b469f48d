"""The address of a root's control socket, for those who listen on it and those who connect to it.

It stands alone, so that a broker without a root, or on another's store, loads neither Arrow nor
deltalake: 60 MB and a tenth of a second.
"""

from __future__ import annotations

import os
from pathlib import Path

SOCKET_NAME = "control.sock"


class SocketAddress:
    """The socket of a root by a short name: a socket's path may have 107 bytes, a root's more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    def __enter__(self) -> str:
        """Return the path to bind or connect to, valid while this is entered."""
        self._descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def __exit__(self, *_failure: object) -> None:
        """Let go of the folder."""
        os.close(self._descriptor)

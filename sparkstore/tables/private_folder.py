"""Folders that hold messages are made so that nobody else gets in.

Decision: the folder of a root protects all that is in it, by its mode 0700. What is in it has the
modes that each writer gives (deltalake, Spark, the store). One mode in one place holds for every
engine, also where the store is a library in a process of others, whose umask is not ours to set;
and who wants to let a group read opens one folder by hand. A folder that was there stays as it is:
that others may enter it is told at each start.
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path

from sparkstore.storage.durable_files import make_folders

_log = logging.getLogger(__name__)

_MODE, _OTHERS = 0o700, 0o077


def private_folder(path: Path) -> None:
    """Make a folder that is open to nobody else; an existing one that is open is logged.

    Raises:
        OSError: It cannot be made.
    """
    make_folders(path, _MODE)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        text = "%s is open to others (mode %04o), and with it all that is in it: chmod 700 it"
        _log.warning(text, path, mode)

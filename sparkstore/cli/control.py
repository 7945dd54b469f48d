"""Choose who carries out a command: the running broker, or this process, which writes records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkstore.control.client import AdminClient


@contextmanager
def opened_control(where: str | Path, settings: Path | None) -> Iterator[AdminClient]:
    """Open whatever can change the root, and close it at the end.

    Args:
        where: Folder of the root, or the URI of one in a bucket.
        settings: File of the store's settings, for when no broker runs; None: the defaults.

    Raises:
        StoreError: Nobody can change it now, for the reasons of `open_control`.
    """
    from sparkstore.config import StoreConfig, read_config
    from sparkstore.control.client import open_control
    from sparkstore.settings_file import audit_file

    config = read_config(settings) if settings else StoreConfig()
    named = audit_file(settings) if settings else None
    with closing(open_control(where, config, named)) as control:
        yield control

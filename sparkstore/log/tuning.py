"""Tune a process whose business is a store; only composition roots call this.

Measured with 1,000 messages in flight: Python's cyclic collector, which walks every live entry of
every queue again and again, took half of all CPU time. It may come seldom: nothing on the hot path
makes cycles, nor does a connection that ends (`broker_shim.sockets.transport`, "The end"). The
interpreter's switch interval stays as it is. At a fifth of it 32 callers got 0.8 ×, at a fiftieth
0.5 × the throughput, because every hand-over of the interpreter costs more than what it hurries.
(The broker shortens it while its loop has more to do than a turn: there one thread does all.)
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from types import ModuleType

_NEW_OBJECTS = 200_000


def tune_allocator() -> None:
    """Let Arrow use the system's allocator; of no effect once `pyarrow` was imported.

    Arrow's own one kept 140 MB for itself after a start that read two million records back. The
    system's gives back what is free, and was as fast in every benchmark here.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def import_arrow_without(*packages: str) -> None:
    """Import Arrow, which never uses these packages then, `numpy` or `pandas`.

    Installed, pandas would cost 55 MB and 0.6 s of a start, numpy 10 MB and 0.06 s. Arrow loads
    numpy at its own import. For pandas it looks once, to tell a frame from a table, and remembers
    the outcome. So both fail for that one moment: whoever imports them later gets them. Of no
    effect on what was imported before.
    """
    with without(*packages):
        import pyarrow as pa  # noqa: PLC0415  # after `tune_allocator`
        import pyarrow.dataset  # noqa: PLC0415  # its part of Arrow loads numpy, too

        with suppress(TypeError):
            pa.table(0)


@contextmanager
def without(*packages: str) -> Iterator[None]:
    """Let nobody import these packages for as long as the block runs.

    DuckDB asks for pandas at each parameter. Arrow loads numpy, if it is there, at its own import:
    60 ms of the 360 that a first answer of DuckDB costs.
    """
    absent = _Absent(packages)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)


class _Absent(MetaPathFinder):
    """Says that some packages are not there."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        """Refuse the import of such a package."""
        if fullname in self._packages:
            raise ModuleNotFoundError(fullname, name=fullname)


def tune_process() -> None:
    """Collect seldom, never walk what is there now, and give back what only the start needed.

    The C library keeps freed memory for later; after a million recovered messages that was a fifth
    of what the process took.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 100)

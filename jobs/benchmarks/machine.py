"""What the machine does by itself, to print beside every figure, and who it is."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

_BLOCKS = 32 << 20

BUILD = Path("build")
"""Where benchmarks keep their roots: the disk of the checkout, not a tmpfs."""
BUILD.mkdir(exist_ok=True)


def describe() -> str:
    """Cores, memory, versions, load: one line."""
    # Here: a worker that measures an earlier commit has that commit's package.
    from sparkstore.cli.health.machine_health import python_build  # noqa: PLC0415

    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.release()},"
        f" Python {python_build()}, load {os.getloadavg()[0]:.1f}"
    )


def append_and_sync_ms(folder: Path, size_bytes: int, count: int = 1000) -> list[float]:
    """Milliseconds of each bare append + fdatasync to a file that was written once beforehand."""
    path = folder / "raw"
    block = -(-size_bytes // 512) * 512
    content = os.urandom(block)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, bytes(_BLOCKS), 0)
        os.fsync(descriptor)
        took = []
        for number in range(count):
            offset = number * block % (_BLOCKS - block)
            start = time.perf_counter()
            os.pwrite(descriptor, content, offset)
            os.fdatasync(descriptor)
            took.append((time.perf_counter() - start) * 1e3)
    finally:
        os.close(descriptor)
        path.unlink()
    return took


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the values do not exceed."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)

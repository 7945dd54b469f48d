"""Low priority: a job beside a serving store takes what the store leaves."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def lower_priority(nice: int) -> None:
    """Lower the priority of this process and of its JVM; never raise it.

    A JVM that is started later inherits it. One that started us (spark-submit) is our parent; on
    Linux priority belongs to a thread, so each of its threads is lowered, and those that come
    later inherit. Two rounds: a thread that came during the first is seen by the second.

    Args:
        nice: 0 (as it is) to 19 (least).
    """
    _lower(0, nice)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        for _ in range(2):
            for thread in _threads_of_the_jvm(os.getppid()):
                with suppress(OSError):  # it has ended, or is another user's
                    _lower(thread, nice)


def _lower(thread: int, nice: int) -> None:
    if nice > os.getpriority(os.PRIO_PROCESS, thread):
        os.setpriority(os.PRIO_PROCESS, thread, nice)


def _threads_of_the_jvm(process: int) -> list[int]:
    folder = Path(f"/proc/{process}")
    try:
        if (folder / "comm").read_text().strip() != "java":
            return []
        return [int(path.name) for path in (folder / "task").iterdir()]
    except OSError:
        return []

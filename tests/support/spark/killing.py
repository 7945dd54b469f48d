"""Real kills of real jobs: a process of its own, told to die some time after a boundary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from tests.support.checkout import CHECKOUT

KILLS = int(os.environ.get("SPARKSTORE_JOB_KILLS", "5"))
"""Of each job: fewer in CI, 50 by `make soak`."""

JOB = """
import sys
from sparkstore.session import local_session
from sparkstore.compaction.plans.compact_plan import Upkeep
from sparkstore.config import StoreConfig
from sparkstore.compaction import compact
from sparkstore.reconcile import reconcile
from sparkstore.replication import replicate
from tests.support.spark.session import QUICK_JAVA, SETTINGS

def at(boundary):
    print(boundary, flush=True)
spark = local_session('killed', heap='1g', java_options=QUICK_JAVA, settings=SETTINGS)
root = sys.argv[1]
"""


class Stopped(Exception):
    """A job that a test stops at a boundary, in its own JVM."""


def stop_at(boundary: str) -> Callable[[str], None]:
    """What raises `Stopped` at one boundary."""

    def stop(reached: str) -> None:
        if reached == boundary:
            raise Stopped

    return stop


def kill_a_job(call: str, arguments: list[str], place: str, delay_s: float) -> None:
    """Run a call of a job on `root` in a process of its own; kill that after a boundary.

    Args:
        call: Python, in which `spark`, `root`, `at` and `sys.argv` are there.
        arguments: The first is the root.
        place: The boundary; the job must reach it.
        delay_s: Seconds after it: the kill comes somewhere in what follows.
    """
    job = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", JOB + call, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert job.stdout is not None
    assert place in (line.strip() for line in job.stdout)
    threading.Event().wait(delay_s)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(timeout=60)
    job.stdout.close()

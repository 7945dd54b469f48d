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
at('Spark is there')
sys.stdin.readline()
"""


class Stopped(Exception):
    """A job that a test stops at a boundary, in its own JVM."""


def stop_at(boundary: str) -> Callable[[str], None]:
    """What raises `Stopped` at one boundary."""

    def stop(reached: str) -> None:
        if reached == boundary:
            raise Stopped

    return stop


class StartedJob:
    """A job in a process of its own, which is to be killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def reach(self, place: str) -> None:
        """Wait until it has reached a boundary, which it must."""
        assert self._process.stdout is not None
        assert place in (line.strip() for line in self._process.stdout)

    def begin(self) -> None:
        """Let it begin, when it has a session; what it is to find may be made until then."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()

    def kill_after(self, place: str, delay_s: float) -> None:
        """Kill it some seconds after a boundary, which it must reach."""
        self.reach(place)
        threading.Event().wait(delay_s)
        self._kill()

    def kill_when(self, is_there: Callable[[], bool]) -> None:
        """Kill it as soon as something is there; the job must not have ended before."""
        tick = threading.Event()
        while not is_there():
            assert self._process.poll() is None, "the job ended before it was to be killed"
            tick.wait(0.001)
        self._kill()

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()


def started_job(call: str, arguments: list[str]) -> StartedJob:
    """Start a call of a job on `root` in a process of its own, where it waits for `begin`.

    Args:
        call: Python, in which `spark`, `root`, `at` and `sys.argv` are there.
        arguments: The first is the root.
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", JOB + call, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    return StartedJob(process)


def kill_a_job(call: str, arguments: list[str], place: str, delay_s: float) -> None:
    """Start a job and kill it after a boundary: somewhere in what follows (`started_job`)."""
    job = started_job(call, arguments)
    job.begin()
    job.kill_after(place, delay_s)

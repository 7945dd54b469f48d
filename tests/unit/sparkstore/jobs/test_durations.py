"""When a command was started, and how long threads waited for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

from sparkstore.jobs.durations import Stopwatch, process_began, waited_s


def test_a_process_began_when_the_system_says_it_did() -> None:
    age_s = time.time() - psutil.Process().create_time()
    assert abs(time.monotonic() - process_began() - age_s) < 1


def test_a_command_counts_from_its_start_and_not_from_its_first_line() -> None:
    code = (
        "import time; came = time.monotonic()\n"
        "from sparkstore.jobs.durations import process_began\n"
        "print(came - process_began())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert float(printed) > 0


def test_a_run_that_has_no_session_yet_has_no_times_below_zero() -> None:
    found = Stopwatch(time.monotonic() - 5).over()
    assert found.seconds >= 5
    assert found.planning_seconds == found.task_seconds == found.waiting_seconds == 0


def test_who_is_on_a_core_alone_has_waited_less_than_he_lives() -> None:
    age_s = time.time() - psutil.Process().create_time()
    assert 0 <= waited_s(os.getpid()) <= 100 * age_s
    assert waited_s(1 << 30) == 0

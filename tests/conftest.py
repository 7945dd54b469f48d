"""How long properties are searched, how Java compiles, who runs what, and what CI may skip.

`local` is bounded and tries something else each time; `ci` is `local` with the same tries each
time, so that a submission is judged by its own change; `soak` takes as long as it takes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling, Scheduling

from sparkstore.jobs import job
from sparkstore.jobs.job import lower_priority
from tests.support.system.processes import BrokerProcess, StartBroker

if os.environ.get("SPARKSTORE_SPARK") != "shipped":
    # A job on few rows ends before code that Java compiled well pays: a third less time.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("local", deadline=None, max_examples=60, suppress_health_check=_SLOW)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=3_000, suppress_health_check=_SLOW)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "soak" if "SPARKSTORE_SOAK" in os.environ else "local")
)

_SPARK, _NOTEBOOK = "tests/spark/", "tests/spark/test_notebook.py"

_OF_JOBS = ("disaster_drill", "killed", "reconcile", "replicate")
"""Tests of Spark that start JVMs of their own, and wait for them while their session is idle."""


class TwoSessions(LoadFileScheduling):  # type: ignore[misc]
    """Each file goes to one worker, and all that share a Spark session to the same one.

    A session costs a minute of a core before its code is warm, so a run has two: one for tests of
    jobs, one for all others. The notebook has its own in any case, in a kernel.
    """

    def _split_scope(self, nodeid: str) -> str:
        path: str = super()._split_scope(nodeid)
        if not path.startswith(_SPARK) or path == _NOTEBOOK:
            return path
        is_of_jobs = path.removeprefix(f"{_SPARK}test_").startswith(_OF_JOBS)
        return f"{_SPARK}jobs" if is_of_jobs else _SPARK


_DEAREST = (
    "tests/system/test_brokerj_module.py",
    "tests/system/test_demo_run.py",
    _NOTEBOOK,
    "tests/system/test_job_process.py",
)
_ORDER = ("system", "schedules", "properties", "contract", "unit", "architecture")


def _rank(item: pytest.Item) -> int:
    """When a file is given out: the longest first, so that no worker waits for one at the end."""
    path = item.nodeid.partition("::")[0]
    if path in _DEAREST:
        return 1 + _DEAREST.index(path)
    if path.startswith(_SPARK):
        return 0
    folder = path.split("/")[1]
    return len(_DEAREST) + 1 + (_ORDER.index(folder) if folder in _ORDER else len(_ORDER))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put them in that order: pytest 9 collects by name, whatever the order of its arguments."""
    items.sort(key=_rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Whatever `--dist` says: the files of a run go to its workers in the order of collection."""
    return TwoSessions(config, log)


SKIPPED_IN_CI = (
    "proton's own client ends an address at NUL",
    "root writes everywhere",
    "only root can",
    "CI has no time for it: five kills in make test, 50 in soak",
)
"""Why a test may be skipped where `CI` is set. Nothing that a machine lacks is among them: a run
that is green because a client or a compiler was missing says nothing of what it did not run."""


_OTHERS_NICE = 3
"""Three workers share two cores: with this, those that have Spark come first."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Who has a Spark session has the longest way to go, so the other worker lets it pass."""
    if "PYTEST_XDIST_WORKER" in os.environ and _rank(item) > 0:
        lower_priority(_OTHERS_NICE)


@pytest.fixture(autouse=True)
def priority_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a job that runs in this process from lowering it, and all later tests with it.

    Without, the worker of the Spark sessions is the slowest of all from the first such test on.
    A job as a process lowers its own (tests/system/test_job_process.py).
    """
    monkeypatch.setattr(job, "lower_priority", lambda _nice: None)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """What a test ignores of signals ends with it.

    A broker that ends ignores SIGTERM, in this process where a test serves here. A child inherits
    that, and a JVM that was born with SIGTERM ignored never notices one.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    """Start a broker on a free port with these arguments; killed at the end if it still runs."""
    started: list[BrokerProcess] = []

    def start(*arguments: str) -> BrokerProcess:
        broker = BrokerProcess("--listen", "127.0.0.1:0", *arguments)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        if broker.is_running:
            broker.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that is skipped for want of a tool has failed."""
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = _reason(report.longrepr)
        if not reason.endswith(SKIPPED_IN_CI):
            report.outcome = "failed"
            report.longrepr = f"CI must not skip this: {reason}"
    return report


def _reason(skipped: Any) -> str:
    return str(skipped[2] if isinstance(skipped, tuple) else skipped)

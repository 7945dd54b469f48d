"""Jobs as processes: a second start while the first holds the lease; spark-submit; priority."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.support.checkout import CHECKOUT
from tests.support.stores.calls import root_with_orders

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.spark]
BIN = Path(sys.executable).parent

HOLDING = """
import sys
from functools import partial
from sparkstore.cli.command_line import main
from sparkstore.compaction import compact

def at(boundary):
    if boundary == "healed":
        print("holding", flush=True)
        sys.stdin.readline()

compact.run = partial(compact.run, at=at)
sys.exit(main(["compact", "--json", "--heap", "1g", "--nice", "10", sys.argv[1]]))
"""
"""The command `compact`, which waits for a line in the middle of its work."""


PRIORITIES = """
import os
from pathlib import Path
from sparkstore.jobs.job import lower_priority

def of_the_jvm():
    threads = [int(path.name) for path in Path(f"/proc/{os.getppid()}/task").iterdir()]
    return {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}

before = of_the_jvm()
lower_priority(19)
print("java", Path(f"/proc/{os.getppid()}/comm").read_text().strip())
print("priorities", max(before), of_the_jvm(), os.getpriority(os.PRIO_PROCESS, 0))
lower_priority(5)
print("never raised", of_the_jvm(), os.getpriority(os.PRIO_PROCESS, 0))
"""


def ended(*words: Path | str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(
        words,
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return root_with_orders(tmp_path / "root", 200)


def test_a_second_start_leaves_at_once_and_the_first_goes_on_then_sql_then_verify(
    root: Path,
) -> None:
    first = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLDING, root],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "holding\n"
    family = [psutil.Process(first.pid), *psutil.Process(first.pid).children(recursive=True)]
    assert "java" in {process.name() for process in family}
    assert {process.nice() for process in family} == {10}  # at 19, CI has it wait for minutes
    for job in (
        ["compact", root],
        ["compact", "--json", "--progress", root],
        ["compact", "--log-format=json", root],
    ):
        second = ended(BIN / "sparkstore", *map(str, job))
        assert (second.returncode, second.stdout) == (75, "")
        assert second.stderr.count("\n") == 1
        assert "another job is at work" in second.stderr
    assert json.loads(second.stderr)["logger"] == "sparkstore"
    told, _ = first.communicate("\n", timeout=600)
    assert first.returncode == 0
    assert json.loads(told)["records_moved"] >= 200
    rows = DeltaTable(str(root / "job_runs")).to_pyarrow_table().to_pylist()
    assert [row["outcome"] for row in rows] == ["done"]
    query = "SELECT queue, depth FROM queues"
    answered = ended(BIN / "sparkstore", "sql", "--json", "--engine", "spark", root, query)
    assert answered.returncode == 0, answered.stderr
    assert json.loads(answered.stdout) == {"queue": "orders", "depth": 200}
    verified = ended(BIN / "sparkstore", "verify", "--deep", root)
    assert verified.returncode == 0, verified.stdout


def test_spark_submit_runs_the_job_and_ends_with_its_exit_code(root: Path, tmp_path: Path) -> None:
    submit = ["spark-submit", "--properties-file", "conf/spark-defaults.conf", "jobs/compact.py"]
    done = ended(*submit, "--nice", "0", "--textfile", str(tmp_path), str(root))
    assert done.returncode == 0, done.stderr
    # What spark-submit itself says comes before, and a job's standard error with it.
    assert json.loads(done.stdout.splitlines()[-1])["position_after"] >= 200
    assert len([*tmp_path.glob("*.prom")]) == 1
    refused = ended(*submit, str(tmp_path / "nothing"))
    assert refused.returncode == 2
    assert "not a sparkstore root" in refused.stdout


def test_a_job_lowers_the_jvm_that_spark_submit_started_before_it(tmp_path: Path) -> None:
    script = tmp_path / "priorities.py"
    script.write_text(PRIORITIES)
    found = ended("spark-submit", "--properties-file", "conf/spark-defaults.conf", str(script))
    java, lowered, again = found.stdout.splitlines()[-3:]
    assert java == "java java"
    before, after = lowered.removeprefix("priorities ").split(" ", 1)
    assert int(before) < 19
    assert after == "{19} 19"
    assert again == "never raised {19} 19"

"""Jobs on a root in a bucket that are given a standalone Spark cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.checkout import CHECKOUT
from tests.support.stores.stores import TIMEOUT_S

pytestmark = [pytest.mark.system, pytest.mark.slow]

SPARK = Path(pyspark.__file__).parent


@pytest.mark.parametrize("job", ["compact", "reconcile"])
def test_a_job_whose_executors_do_not_see_its_copy_is_refused_at_once(job: str) -> None:
    submit = [str(SPARK / "bin" / "spark-submit"), "--master", "spark://127.0.0.1:1"]
    program = [str(CHECKOUT / "jobs" / f"{job}.py"), "s3://lake/queues"]
    ended = subprocess.run(
        [*submit, *program],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(SPARK)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=CHECKOUT,
    )
    assert ended.returncode == 2
    assert "s3://lake/queues: this job works on a copy" in ended.stdout
    assert "give spark-submit --master 'local[2]'" in ended.stdout

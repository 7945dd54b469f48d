"""Each schedule in `conf/schedules` is read by the strongest reader that installs here.

What a schedule runs is judged by the command line's own parser: an option that is gone, or a job
that is called by a wrong name, fails here. The DAGs are imported by a real Airflow in
`make check-schedules`: it is too large for `make test`, where they are only compiled.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from croniter import croniter
from databricks.bundles.jobs import Job
from jsonschema import Draft202012Validator

from broker_shim.serve.options import parser as serve_parser
from sparkstore.cli import command_line
from sparkstore.session import SETTINGS

TOP = Path(__file__).parents[2]
SCHEDULES = TOP / "conf" / "schedules"
UNITS = sorted((SCHEDULES / "systemd").iterdir())
BROKER = TOP / "conf" / "systemd" / "sparkstore@.service"
JOBS = {"compact", "reconcile", "replicate"}
OF_ONE_MACHINE = {"spark.driver.host", "spark.driver.bindAddress", "spark.jars.packages"}


def assert_taken(words: Sequence[str]) -> None:
    """Fail unless `sparkstore` takes this command line and runs the job that it names."""
    parsed = command_line._parser({}).parse_args(list(words))
    assert parsed.run.__name__ == words[0]


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((TOP / "tests" / "schemas" / name).read_text()))


def complaints(validator: Draft202012Validator, document: object) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


# ------------------------------------------------------------------------------------------ cron


def cron_lines() -> list[tuple[str, str]]:
    lines = (SCHEDULES / "crontab").read_text().splitlines()
    split = [
        re.fullmatch(r"((?:\S+\s+){5})([^%]+)", line) for line in lines if line[:1] in "*0123456789"
    ]
    return [(found[1].strip(), found[2]) for found in split if found]


def test_the_crontab_runs_each_job_at_times_that_cron_understands() -> None:
    assert all(croniter.is_valid(times) for times, _ in cron_lines())
    commands = [command.split("|")[0].split() for _, command in cron_lines()]
    assert {words[1] for words in commands} == JOBS
    for words in commands:
        assert words[0] == "sparkstore"
        assert_taken(words[1:])


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("crontab"), reason="no crontab: apt-get install cron")
def test_cron_itself_takes_the_crontab_and_refuses_a_wrong_one(tmp_path: Path) -> None:
    def dry_run(path: Path) -> str:
        run = subprocess.run(["crontab", "-n", path], capture_output=True, text=True, check=False)
        return run.stderr

    assert "errors in crontab" not in dry_run(SCHEDULES / "crontab")
    wrong = tmp_path / "crontab"
    wrong.write_text((SCHEDULES / "crontab").read_text().replace("17 3 *", "17 25 *"))
    assert "bad hour" in dry_run(wrong)


# --------------------------------------------------------------------------------------- systemd


def verified(folder: Path, change: tuple[str, str] = ("", "")) -> str:
    """What `systemd-analyze verify` says of the units, as instances with a program that exists."""
    folder.mkdir()
    program = Path(sys.executable).with_name("sparkstore")
    for unit in (*UNITS, BROKER):
        text = unit.read_text().replace("/opt/sparkstore/bin/sparkstore", str(program))
        (folder / unit.name.replace("@", "@orders")).write_text(text.replace(*change))
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(folder.iterdir())],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return run.stderr + ("" if run.returncode == 0 else f"exit code {run.returncode}")


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="no systemd-analyze: apt-get install systemd"
)
def test_systemd_takes_the_units_and_says_what_is_wrong_with_others(tmp_path: Path) -> None:
    assert verified(tmp_path / "right") == ""
    exposure = ["systemd-analyze", "security", "--offline=true", "--threshold=20"]
    broker = tmp_path / "right" / BROKER.name.replace("@", "@orders")
    subprocess.run([*exposure, broker], capture_output=True, check=True)
    assert "CPUWait" in verified(tmp_path / "wrong", ("CPUWeight", "CPUWait"))
    assert "03:77" in verified(tmp_path / "late", ("03:17", "03:77"))


def test_each_job_has_a_service_that_runs_it_and_a_timer() -> None:
    assert {unit.name for unit in UNITS} == {
        f"sparkstore-{job}@.{kind}" for job in JOBS for kind in ("service", "timer")
    }
    for unit in UNITS:
        if unit.suffix == ".service":
            started = re.search(r"^ExecStart=\S+/sparkstore (.+)$", unit.read_text(), re.MULTILINE)
            assert started is not None
            assert_taken(started[1].split())


def test_the_service_of_the_broker_starts_what_there_is_and_is_told_when_it_serves() -> None:
    unit = BROKER.read_text()
    started = re.search(r"^ExecStart=\S+/sparkstore serve (.+)$", unit, re.MULTILINE)
    assert started is not None
    options = serve_parser().parse_args(started[1].split())
    assert (options.root, options.listen) == ("${ROOT}", "${LISTEN}")
    assert "\nType=notify\n" in unit


# --------------------------------------------------------------------------------------- airflow


def test_the_dags_compile_and_submit_each_job_of_ours() -> None:
    source = (SCHEDULES / "sparkstore_dags.py").read_text()
    values = {
        node.targets[0].id: node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    schedules = ast.literal_eval(values["SCHEDULES"])
    assert set(schedules) == JOBS
    assert all(croniter.is_valid(times) for times in schedules.values())
    names = {name: name for name in ("ROOT", "REPLICA")}
    arguments = eval(ast.unparse(values["ARGUMENTS"]), names)
    for job in JOBS:
        assert_taken([job, "--textfile", "METRICS", *arguments[job]])
    compile(source, "sparkstore_dags.py", "exec")


# ------------------------------------------------------------------------------------ databricks


def bundle() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SCHEDULES / "databricks.yml").read_text())
    return found


def test_databricks_own_package_reads_the_jobs_of_the_bundle() -> None:
    assert complaints(schema("databricks_bundle.json"), bundle()) == []
    written = bundle()["resources"]["jobs"]
    assert set(written) == JOBS
    for name, job in written.items():
        assert (TOP / "jobs" / f"{name}.py").is_file()
        read = Job.from_dict(job).as_dict()
        assert read == job
        (task,) = job["tasks"]
        assert task["spark_python_task"]["python_file"] == f"jobs/{name}.py"
        assert_taken([name, *task["spark_python_task"]["parameters"]])
        times = job["schedule"]["quartz_cron_expression"].replace("?", "*")
        assert croniter.is_valid(times, second_at_beginning=True)


def test_databricks_own_package_refuses_a_field_that_is_not_there() -> None:
    job = bundle()["resources"]["jobs"]["compact"]
    with pytest.raises(ValueError, match="scedule"):
        Job.from_dict({**job, "scedule": job["schedule"]})


# ------------------------------------------------------------------------------------ kubernetes


def applications() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((SCHEDULES / "kubernetes.yaml").read_text()))


def test_each_kubernetes_application_fits_the_operators_definition() -> None:
    validator = schema("scheduled_spark_application.json")
    assert [complaints(validator, found) for found in applications()] == [[], [], []]
    wrong = applications()[0]
    wrong["spec"]["template"]["driver"]["cores"] = "one"
    wrong["spec"]["concurrencyPolicie"] = "Forbid"
    assert len(complaints(validator, wrong)) == 2


def test_each_kubernetes_application_submits_a_job_with_the_settings_that_a_session_needs() -> None:
    seen = set()
    for found in applications():
        spec, template = found["spec"], found["spec"]["template"]
        job = found["metadata"]["name"].removeprefix("sparkstore-")
        assert template["mainApplicationFile"].endswith(f"/share/sparkstore/jobs/{job}.py")
        assert croniter.is_valid(spec["schedule"])
        assert_taken([job, *template["arguments"]])
        expected = {name: value for name, value in SETTINGS.items() if name not in OF_ONE_MACHINE}
        assert template["sparkConf"] == expected
        seen.add(job)
    assert seen == JOBS

"""A job is the same by every road: the command, the script of spark-submit, and Airflow's task.

Each road is run up to the frame of the job, where another job is found at work: exit code 75. What
the frame was asked for is held against what the options say, with none of them left out.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparkstore.cli import command_line
from sparkstore.compaction.plans.compact_plan import Limits, Upkeep
from sparkstore.config import read_config
from sparkstore.errors import Locked
from sparkstore.jobs import job as frame
from sparkstore.replication import replicate
from sparkstore.tables.root import open_or_create_root
from tests.support.checkout import CHECKOUT

SETTINGS = '[store]\ncopy_dir = "copies"\n[security]\naudit_file = "audit"\n'
FRAME = ["--heap", "1500m", "--nice", "7", "--textfile", "metrics", "--no-progress"]
OPTIONS: Mapping[str, Sequence[str]] = {
    "compact": [
        *("--step-records", "5", "--history-days", "9", "--publish", "lake", "--current"),
        *("--min-records", "0", "--config", "FILE", "ROOT"),
    ],
    "replicate": ["--step-records", "5", "ROOT", "REPLICA"],
    "reconcile": ["--repair", "--purge-lost", "--config", "FILE", "ROOT"],
}
PLAIN = {"compact": ["ROOT"], "replicate": ["ROOT", "REPLICA"], "reconcile": ["ROOT"]}


@dataclass
class Asked:
    """What the frame of a job was asked for.

    Attributes:
        calls: Name and root of the job, its options, and the settings of the frame.
    """

    calls: list[tuple[str, str, Any, Any]]

    def run(
        self, job: str, where: str | Path, work: Callable[[Any], object], settings: object
    ) -> None:
        """Stand for `frame.run`: note what is asked for, and find another job at work."""
        bound = getattr(work, "__self__", None)
        options = bound.options if bound is not None else limits_of(work)
        told = asdict(options) if is_dataclass(options) else options  # type: ignore[arg-type]
        kept = {**asdict(settings), "began": None}  # type: ignore[call-overload]
        self.calls.append((job, str(where), told, kept))
        raise Locked("another job is at work")


def limits_of(work: Callable[[Any], object]) -> object:
    """Return the arguments with which a replication would copy."""
    seen: list[object] = []

    def noted(_spark: object, *places: object, **more: object) -> None:
        seen.append((places, more))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicate, "run", noted)
        work(None)
    return seen[0]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked([])
    monkeypatch.setattr(frame, "run", found.run)
    return found


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The words of `OPTIONS` that stand for places."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.toml").write_text(SETTINGS)
    open_or_create_root(tmp_path / "root")
    names = {"FILE": "settings.toml", "ROOT": "root", "REPLICA": "replica"}
    return {word: str(tmp_path / name) for word, name in names.items()}


def by_command(job: str, words: list[str], _patch: pytest.MonkeyPatch) -> int:
    return command_line.main([job, *words])


def by_script(job: str, words: list[str], patch: pytest.MonkeyPatch) -> int:
    return submitted(CHECKOUT / "jobs" / f"{job}.py", words, patch)


def submitted(script: Path, words: list[str], patch: pytest.MonkeyPatch) -> int:
    """Run a script as spark-submit's driver does, in this process."""
    patch.setattr(sys, "argv", [str(script), *words])
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def by_airflow(job: str, words: list[str], patch: pytest.MonkeyPatch) -> int:
    """Run the task of the shipped DAG, with other arguments."""
    task = tasks(patch)[job]
    script = CHECKOUT / "jobs" / Path(str(task["application"])).name
    return submitted(script, words, patch)


def tasks(patch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Read the tasks of the shipped DAGs; Airflow itself imports them in `check-schedules`."""
    found: dict[str, dict[str, Any]] = {}

    class Dag:
        def __init__(self, *, dag_id: str, **_more: object) -> None:
            self.dag_id = dag_id

        def __enter__(self) -> Dag:
            return self

        def __exit__(self, *_reason: object) -> None:
            pass

    def operator(*, task_id: str, **more: Any) -> None:
        found[task_id] = more

    parents = ("airflow", "airflow.providers", "airflow.providers.apache")
    spark = "airflow.providers.apache.spark"
    for name in (*parents, spark, f"{spark}.operators"):
        patch.setitem(sys.modules, name, ModuleType(name))
    made = {"airflow.sdk": ("DAG", Dag), f"{spark}.operators.spark_submit": ("", operator)}
    for name, (what, value) in made.items():
        module = ModuleType(name)
        setattr(module, what or "SparkSubmitOperator", value)
        patch.setitem(sys.modules, name, module)
    runpy.run_path(str(CHECKOUT / "conf" / "schedules" / "sparkstore_dags.py"))
    return found


ROADS = [by_command, by_script, by_airflow]


@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.__name__)
@pytest.mark.parametrize("job", OPTIONS)
def test_a_road_hands_every_option_to_the_one_function_of_the_job(
    job: str,
    road: Callable[[str, list[str], pytest.MonkeyPatch], int],
    asked: Asked,
    places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [*FRAME, *(places.get(word, word) for word in OPTIONS[job])]
    assert road(job, words, monkeypatch) == 75
    (name, _, options, settings), *more = asked.calls
    assert more == []
    assert name == job
    assert options == expected(job, places)
    assert {name: settings[name] for name in ("heap", "nice", "textfile", "progress")} == {
        "heap": "1500m",
        "nice": 7,
        "textfile": Path("metrics"),
        "progress": False,
    }


def expected(job: str, places: dict[str, str]) -> Any:
    """The options of a job, as the line of `OPTIONS` says."""
    if job == "replicate":
        return (places["ROOT"], places["REPLICA"]), {"limits": Limits(5)}
    config = asdict(read_config(Path(places["FILE"])))
    both = {"config": config, "audit_file": Path("audit")}
    if job == "reconcile":
        return {"replica": None, "repair": True, "purge_lost": True, **both}
    upkeep = {"history_days": 9.0, "reader_grace_s": Upkeep().reader_grace_s}
    also = {"min_records": 0, "is_current": True, "schema": "lake"}
    return {"limits": {"step_records": 5}, "upkeep": upkeep, **also, **both}


@pytest.mark.parametrize("job", OPTIONS)
def test_what_is_left_out_is_the_same_by_every_road(
    job: str, asked: Asked, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [places[word] for word in PLAIN[job]]
    for road in ROADS:
        assert road(job, words, monkeypatch) == 75
    first, *others = asked.calls
    assert others == [first, first]


@pytest.mark.parametrize("job", OPTIONS)
def test_the_arguments_of_airflow_are_options_of_the_job(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tasks(monkeypatch)[job]["application_args"]
    parsed = command_line._parser({}).parse_args([job, *words])
    assert parsed.run.__name__ == job


@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.__name__)
@pytest.mark.parametrize("job", OPTIONS)
def test_an_option_that_is_none_is_refused_by_every_road(
    job: str,
    road: Callable[[str, list[str], pytest.MonkeyPatch], int],
    asked: Asked,
    places: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["--step-recrods", "5", *(places[word] for word in PLAIN[job])]
    try:
        code = road(job, words, monkeypatch)
    except SystemExit as end:  # argparse ends the process of a command
        code = int(end.code or 0)
    assert code == 2
    assert "--step-recrods" in capsys.readouterr().err
    assert asked.calls == []

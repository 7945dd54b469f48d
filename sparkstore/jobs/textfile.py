"""The last run of a job as metrics, for the textfile collector of Prometheus' node exporter.

    sparkstore_job_last_run_timestamp_seconds      when the last run ended
    sparkstore_job_last_success_timestamp_seconds  when the last run ended that did not fail
    sparkstore_job_success                         1, or 0 if the last run failed
    sparkstore_job_seconds                         how long it took
    sparkstore_job_<figure>                        each number of the job's report

Each with the labels `job` and `root`. One file for each pair of them, so that no job writes
another's; the collector reads every `*.prom` in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from sparkstore.jobs.job_runs import JobRun
from sparkstore.metrics.exposition import encoded, gauge, replace_textfile

_PREFIX = "sparkstore_job_"
_LAST_SUCCESS = "last_success_timestamp_seconds"
_HELP = {
    "last_run_timestamp_seconds": "When the last run ended, seconds since 1970.",
    _LAST_SUCCESS: "When the last run ended that did not fail, seconds since 1970.",
    "success": "1 if the last run did what it is for, 0 if it failed.",
    "seconds": "How long the last run took.",
}


def file_name(job: str, root: str) -> str:
    """Name of the file for a job on a root."""
    return f"sparkstore_{job}_{sha256(root.encode(errors='surrogateescape')).hexdigest()[:12]}.prom"


def write(folder: Path, run: JobRun, root: str) -> Path:
    """Replace the file at once: a collector reads the old or the new one; the path.

    After a failure the time of the last success stays what it was.

    Raises:
        OSError: The folder is not there, or cannot be written.
    """
    path = folder / file_name(run.job, root)
    kept = _last_success(path) if run.outcome == "failed" else None
    replace_textfile(path, text(run, root, kept).encode())
    return path


def text(run: JobRun, root: str, last_success_s: float | None = None) -> str:
    """The metrics of a run, in Prometheus' text format.

    Args:
        run: The run that has ended, well or not.
        root: Value of the label `root` of each metric.
        last_success_s: When the last success was, seconds since 1970, if this run is none.
    """
    ended_s = run.began_at.timestamp() + run.seconds
    is_success = run.outcome != "failed"
    values: dict[str, float | None] = {
        "last_run_timestamp_seconds": ended_s,
        _LAST_SUCCESS: ended_s if is_success else last_success_s,
        "success": int(is_success),
        "seconds": run.seconds,
        **dict(_numbers(run.figures)),
    }
    labels = {"job": run.job, "root": root}
    families = [
        gauge(_PREFIX + name, _HELP.get(name) or _help_of(name), [(labels, value)])
        for name, value in values.items()
        if value is not None
    ]
    return encoded(families).decode()


def _help_of(name: str) -> str:
    return name.replace("_", " ") + " of the last run"


def _numbers(figures: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Figures that are numbers; of a list, how many it has."""
    for name, value in figures.items():
        if isinstance(value, bool | int | float):
            yield name, float(value) if isinstance(value, float) else int(value)
        elif isinstance(value, list | tuple):
            yield f"{name}_count", len(value)


def _last_success(path: Path) -> float | None:
    """Return the time of the last success in a metrics file; None without one of ours."""
    try:
        written = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(rf"^{_PREFIX}{_LAST_SUCCESS}\{{.*\}} ([0-9.e+]+)$", written, re.MULTILINE)
    return float(match[1]) if match else None
